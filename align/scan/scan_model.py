"""Every call of a torch model against the table of what MindSpore has for it.

With inputs the model is run, and its calls are seen with their lines; without, its source is read.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

from align.core.align_sequences import grouped
from align.core.protocols import silent
from align.core.verdicts import Finding, ShownResult
from align.errors import CannotRunError
from align.models.function_source import function_source, methods_of, own_classes, shown
from align.models.fused_calls import by_name, fused_calls
from align.models.inputs import describe_inputs, read_batches, run_fitted
from align.models.open_side import describe_host, open_side
from align.models.rebuild_from_settings import ApiCall, CallWatcher
from align.models.source_lines import made_at
from align.models.user_code import find_function
from align.rules.ascend_rules import BY_EFFORT, api_entries, scan_target
from align.rules.layer_rules import mappings_folder, read_rules
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.parameters import Array
    from align.core.protocols import Inputs, Model, Progress
    from align.core.traces import Capture
    from align.models.function_source import FunctionSource
    from align.models.fused_calls import FusedCall
    from align.models.inputs import InputsSource
    from align.models.open_side import Side
    from align.models.rebuild_from_settings import CallKind
    from align.rules.ascend_rules import ApiEntry, Counterpart, OtherDefault, ScanTarget, Status


FUSED_TARGET = "torch_npu"  # torch itself on an NPU: which of its fused operators the source calls
STAGES = 2  # no limit: what progress is reported of


def scan_model(
    side: str | Model | Side,
    *,
    inputs: InputsSource | None = None,
    target: str = "cpu",
    progress: Progress = silent,
) -> ScanResult:
    """Look up every layer, function and tensor method that a torch model calls in the table of counterparts.

    With `inputs` the model is run, else its source is read. `target` is `cpu`, `gpu` or `ascend:CHIP`: many functions
    have a kernel on Ascend only. With `torch_npu`, `side` is a file or a folder, of which nothing is run: its calls of
    fused operators are listed with their formula. Raises UsageError for another target, CannotRunError for a model that
    is not torch's, or whose source cannot be read.

    >>> scan_model("model.py:build", target="tpu")
    Traceback (most recent call last):
    align.errors.UsageError: no target is called 'tpu'
    Hint: known: cpu, gpu, ascend:910a, ascend:310p, ascend:910b, ascend:910c, ascend:950
    """
    if target.lower() == FUSED_TARGET:
        return _scan_fused(side)
    wanted = scan_target(target)
    opened = open_side(side)
    if not isinstance(opened.reader, CallWatcher):
        raise CannotRunError.of("scan_error.no_torch_model", side=opened.label, framework=opened.reader.name)
    progress("scan", 0, STAGES)
    took: Inputs = {}
    if inputs is None:
        calls = calls_in_source(opened.model, opened.reader, opened.label)
    else:
        calls, took = _seen_in_run(opened, opened.reader, inputs)
    if not calls:
        raise CannotRunError.of("scan_error.nothing_called", side=opened.label)
    progress("scan", 1, STAGES)
    scanned = scanned_calls(calls, wanted, opened.model)
    progress("scan", STAGES, STAGES)
    return ScanResult(
        model=opened.label,
        target=wanted.name,
        seen_by="source" if inputs is None else "run",
        calls=scanned,
        counts={status: sum(one.calls for one in scanned if one.status == status) for status in BY_EFFORT},
        findings=source_findings(opened.model, find_function(side) if isinstance(side, str) else None),
        inputs=describe_inputs(took) if took else {},
        environment={opened.reader.name: opened.reader.environment(), "host": describe_host()},
    )


def _scan_fused(side: str | Model | Side) -> ScanResult:
    if not isinstance(side, str):
        raise CannotRunError.of("scan_error.fused_live")
    calls = fused_calls(side)
    if not calls:
        raise CannotRunError.of("scan_error.no_fused_calls", path=side)
    scanned = tuple(_scanned_fused(name, own) for name, own in by_name(calls).items())
    counts = {status: sum(one.calls for one in scanned if one.status == status) for status in BY_EFFORT}
    findings = tuple(finding for call in calls for finding in call.findings())
    return ScanResult(side, FUSED_TARGET, "source", scanned, counts, findings, {}, {"host": describe_host()})


def _scanned_fused(name: str, calls: Sequence[FusedCall]) -> ScannedCall:
    """A fused operator with its counterpart, and its formula as what to write."""
    operator, places = calls[0].operator, tuple(CallPlace(call.line, "", 1) for call in calls)
    if operator is None:
        return ScannedCall(name, "function", "unknown", len(calls), places)
    status: Status = "other name" if operator.mindspore else "no counterpart"
    if operator.framework == "mindspore":
        status = "same"
    return ScannedCall(
        api=name,
        kind="function",
        status=status,
        calls=len(calls),
        places=places,
        counterpart=operator.mindspore,
        write=sentence("source_finding.formula", torch=operator.torch, mindspore=operator.mindspore),
        certainty="vendor's page",
        source=operator.source,
    )


class _Unkept:
    """A sink for a run of which nothing is kept."""

    def add(self, capture: Capture, value: Array) -> None:
        """Take nothing."""


def _seen_in_run(opened: Side, watcher: CallWatcher, inputs: InputsSource) -> tuple[tuple[ApiCall, ...], Inputs]:
    batches = read_batches(inputs)
    watched: list[Model] = []

    def run(given: Inputs) -> None:
        watched[:] = [watcher.watched(opened.model)]
        watcher.run(watched[0], given, _Unkept())

    took = run_fitted(opened, batches, run)
    return watcher.watched_calls(watched[0]), took


def scanned_calls(calls: Iterable[ApiCall], target: ScanTarget, model: Model) -> tuple[ScannedCall, ...]:
    """Calls by name, with what the table says of each; those that need most work first, then the most frequent."""
    by_name, entries = grouped((call.api, call) for call in calls), api_entries()
    scanned = [_scanned(name, own, entries.get(name), target, model) for name, own in by_name.items()]
    return tuple(sorted(scanned, key=lambda one: (BY_EFFORT.index(one.status), -one.calls, one.api)))


def _scanned(
    name: str, calls: Sequence[ApiCall], entry: ApiEntry | None, target: ScanTarget, model: Model
) -> ScannedCall:
    kind, count, places = calls[0].kind, sum(one.calls for one in calls), _places(calls, model)
    if entry is None:
        return ScannedCall(name, kind, "unknown", count, places)
    status, counterpart = entry.answer(target.platform)
    return ScannedCall(
        api=name,
        kind=kind,
        status=status,
        calls=count,
        places=places,
        counterpart=counterpart.name if counterpart else "",
        settings=counterpart.settings if counterpart else (),
        write=entry.write if status in ("no counterpart", "no kernel") else _written(counterpart, calls, model),
        certainty=counterpart.certainty if counterpart else entry.certainty,
        source=entry.source,
        chip=_on_chip(entry, target),
    )


def _written(counterpart: Counterpart | None, calls: Sequence[ApiCall], model: Model) -> str:
    """What to write for these layers, of several forms each behind its setting; a function's arguments are not seen."""
    if counterpart is None:
        return ""
    layers = dict(model.named_modules()) if counterpart.otherwise else {}
    forms = {counterpart.call_for(vars(layers[call.module]) if call.module in layers else {}) for call in calls}
    if len(forms) == 1:
        return forms.pop().write
    ordered = sorted(forms, key=lambda form: (form.setting, form.value))
    return "; ".join(f"{one.setting}={one.value!r}: {one.write}" if one.setting else one.write for one in ordered)


def _places(calls: Sequence[ApiCall], model: Model) -> tuple[CallPlace, ...]:
    """Where a name is called; of a layer, the line that makes it."""
    return tuple(
        CallPlace(made_at(model, one.module) if one.kind == "layer" else one.line, one.module, one.calls)
        for one in calls
    )


def _on_chip(entry: ApiEntry, target: ScanTarget) -> str:
    """What an Ascend chip does with the operators of an entry, "" where nothing else than float32."""
    if target.chip is None or not entry.operators:
        return ""
    rules = (rule for rule in target.chip.entries() if rule.computes != "float32")
    return next((rule.operator_class for rule in rules if set(rule.torch) & set(entry.operators)), "")


# What of a torch model MindSpore has: every call with its counterpart, where it stands, and what to write.

SeenBy = Literal["run", "source"]


@dataclass(frozen=True, slots=True)
class CallPlace:
    """A place that calls: `line` as `file.py:12` ("" where none can be told), `module` the path of the layer.

    For a layer, `line` makes it and `module` is its own path; for others, `line` calls and `module` is what runs then.
    By source, `calls` counts the places, for nothing is run.
    """

    line: str
    module: str
    calls: int


@dataclass(frozen=True, slots=True)
class ScannedCall:
    """All calls of one name, `api` (`torch.nn.functional.gelu`), and what the table says of it.

    `counterpart` is "" where there is none, or none is known; `write` is what to write there instead, `settings` are
    those that differ by default. `certainty` says how sure this is, `source` where it can be read. `chip` is what an
    Ascend chip does with it, "" for nothing that is known.
    """

    api: str
    kind: CallKind
    status: Status
    calls: int
    places: tuple[CallPlace, ...]
    counterpart: str = ""
    settings: tuple[OtherDefault, ...] = ()
    write: str = ""
    certainty: str = ""
    source: str = ""
    chip: str = ""


@dataclass(frozen=True, slots=True)
class ScanResult(ShownResult):
    """All calls of a model, those that need most work first; `counts` are calls by status.

    They were seen in a `run`, or found in the `source`, which does not show what code of other files does. `findings`
    are what the source tells besides.
    """

    result_kind = "scan"
    model: str
    target: str
    seen_by: SeenBy
    calls: tuple[ScannedCall, ...]
    counts: dict[str, int]
    findings: tuple[Finding, ...]
    inputs: dict[str, dict[str, object]]
    environment: dict[str, dict[str, str]]

    @property
    def exit_code(self) -> int:
        """0 if all calls have a counterpart on the target; 1 if one has none, no kernel there, or is not known."""
        return int(any(self.counts.get(status) for status in ("no counterpart", "no kernel", "unknown")))


# What the source of a torch model calls, without a run: its layers, and the names that its code uses.
#
# The code is that of the model's own classes, and of the functions that they call. A name is looked up where the code
# stands. Of a value whose kind is not known, the method's name alone tells: `x.view(...)` is taken for a tensor's.
# What operators (`a + b`) work on cannot be told; only `@` counts.

METHOD = "torch.Tensor"
MATRIX_PRODUCT = f"{METHOD}.matmul"
NOT_RUN = ("__init__", "extra_repr", "reset_parameters", "init_weights", "_init_weights")  # no part of a forward
Key = tuple[str, "CallKind", str, str]


def calls_in_source(model: Model, watcher: CallWatcher, label: str) -> tuple[ApiCall, ...]:
    """Layers, then other calls; raises CannotRunError where the code of a class cannot be read."""
    calls_read = _Found(watcher)
    unread: dict[str, None] = {}
    layers = watcher.called_layers(model)
    opaque = tuple(f"{layer.module}." for layer in layers if layer.module and not layer.api.endswith(".Sequential"))
    for path, module in model.named_modules():
        if path.startswith(opaque):
            continue
        for cls in own_classes(module):
            sources = [method for method in methods_of(cls) if method.node.name not in NOT_RUN]
            if not sources and "forward" in vars(cls):
                unread[f"{cls.__module__}.{cls.__qualname__}"] = None
            for source in sources:
                calls_read.read(source, path)
    if unread:
        raise CannotRunError.of("scan_error.unread", side=label, classes=[*unread])
    return (*layers, *(ApiCall(*key, calls) for key, calls in calls_read.counts.items()))


class _Found:
    """Counts by name and place; each function is read once."""

    def __init__(self, watcher: CallWatcher) -> None:
        self._watcher = watcher
        self._methods = watcher.tensor_methods()
        self._read: set[tuple[str, int]] = set()
        self.counts: Counter[Key] = Counter()

    def read(self, source: FunctionSource, module: str) -> None:
        if (key := (source.file, source.node.lineno)) in self._read:
            return
        self._read.add(key)
        names = vars(sys.modules.get(source.module, sys))
        for node in ast.walk(source.node):
            for api, kind in self._named(node, source, names, module):
                self.counts[api, kind, module, shown(source, node.lineno)] += 1  # type: ignore[attr-defined]

    def _named(
        self, node: ast.AST, source: FunctionSource, names: dict[str, Any], module: str
    ) -> Iterator[tuple[str, CallKind]]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield MATRIX_PRODUCT, "method"
        if not isinstance(node, ast.Call):
            return
        value = _resolved(node.func, names)
        if value is not None:
            yield from self._of_value(value, module)
        elif isinstance(node.func, ast.Attribute):
            yield from self._of_method(node.func, source)

    def _of_method(self, node: ast.Attribute, source: FunctionSource) -> Iterator[tuple[str, CallKind]]:
        """A method of a value that is not known; what the model itself has is no tensor's."""
        if node.attr in self._methods and not (isinstance(node.value, ast.Name) and node.value.id == source.own):
            yield f"{METHOD}.{node.attr}", "method"

    def _of_value(self, value: object, module: str) -> Iterator[tuple[str, CallKind]]:
        """What torch calls a value that is called; a function of the user's is read."""
        if api := self._watcher.public_name(value):
            yield api, _kind(api, value)
        elif isinstance(value, FunctionType) and (inner := function_source(value)) is not None:
            self.read(inner, module)


def _kind(api: str, value: object) -> CallKind:
    if isinstance(value, type):
        return "layer"
    return "method" if api.startswith(f"{METHOD}.") else "function"


def _resolved(node: ast.expr, names: dict[str, Any]) -> Any:
    """What a name, or a chain of names as `torch.nn.functional.gelu`, stands for in a module; None if it is local."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _resolved(node.value, names)
        return None if owner is None else getattr(owner, node.attr, None)
    return None


# What the source of a torch model says besides its calls: lines that mean something else in MindSpore, or fail there.
#
# A rule is a table of `mappings/source_rules.toml` and a function here. Types are not known: a name counts as a
# tensor where torch, or a method that only tensors have, has made it.

VIEWS = frozenset({
    "view", "view_as", "transpose", "t", "permute", "narrow", "select", "squeeze", "unsqueeze", "expand", "unfold",
    "swapaxes", "swapdims", "movedim", "diagonal",
})  # fmt: skip
REDUCTIONS = frozenset({"sum", "mean", "max", "min", "any", "all", "argmax", "argmin", "norm", "item", "amax", "amin"})
TO_PYTHON = frozenset({"item", "tolist"})
ABOUT_SHAPES = frozenset({"shape", "ndim", "dtype", "device", "is_cuda", "training", "requires_grad"})
ASKING = frozenset({"size", "dim", "numel", "isinstance", "len", "hasattr", "getattr", "is_floating_point", "type"})
NOT_IN_PLACE = frozenset({"requires_grad_", "retain_grad_"})
BEFORE_RUN = frozenset({"__init__", "reset_parameters", "init_weights", "_init_weights", "extra_repr"})
ABOUT_OBJECTS = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
ONLY_TENSORS = VIEWS | {"shape", "dim", "numel", "dtype", "masked_fill", "softmax", "matmul", "contiguous"}
PYTHON_NUMBERS = frozenset({"int", "float", "bool", "str", "list", "tuple"})
FUNCTIONAL = ("F.", "functional.", "nn.functional.", "torch.nn.functional.")
TENSORS = frozenset({"Tensor", "torch.Tensor"})


@dataclass(frozen=True, slots=True)
class SourceRule:
    """A rule with why it matters in a port, what to write there, and examples that it must find and must not."""

    id: str
    why: str
    write: str
    hits: tuple[str, ...]
    misses: tuple[str, ...]


def source_findings(model: Model, builder: Callable[..., Any] | None = None) -> tuple[Finding, ...]:
    """All lines that a rule finds in the model's own classes, and in the function that builds it, by place."""
    sources = {(one.file, one.node.lineno): one for one in _sources(model, builder)}
    rows = [(shown(one, line), rule) for one in sources.values() for rule, line in rules_broken(one.node)]
    return tuple(_finding(rule, place) for place, rule in dict.fromkeys(rows))


def rules_broken(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, int]]:
    """Ids of rules with the lines of a function that they find, rule by rule."""
    for name, finds in FINDERS.items():
        yield from ((name, line) for line in sorted({found.lineno for found in finds(node)}))


def _sources(model: Model, builder: Callable[..., Any] | None) -> Iterator[FunctionSource]:
    classes = {cls: None for _, module in model.named_modules() for cls in own_classes(module)}
    for cls in classes:
        yield from methods_of(cls)
    source = function_source(builder) if isinstance(builder, FunctionType) else None
    if source is not None:
        yield source


def _finding(rule: str, place: str) -> Finding:
    known = source_rules()[rule]
    return Finding(rule, "warning", place, sentence("source_finding.line", why=known.why, write=known.write))


@cache
def source_rules() -> Mapping[str, SourceRule]:
    """All rules by id."""
    tables = read_rules(mappings_folder() / "source_rules.toml", lambda document: [*document["rule"]])
    lists = [{**one, "hits": tuple(one["hits"]), "misses": tuple(one["misses"])} for one in tables]
    return {one["id"]: SourceRule(**one) for one in lists}


def _loads(function: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            placed = len(node.args) > 1 or any(one.arg in ("map_location", None) for one in node.keywords)
            if not placed:
                yield node


def _views(function: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Views that are changed in place, at once or under the name that they got."""
    named = {name for name, value in _assigned(function) if _is_view(value)}
    named -= {name for name, value in _assigned(function) if not _is_view(value)}
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _changes(node.func):
            changed = node.func.value  # type: ignore[attr-defined]
            if _is_view(changed) or (isinstance(changed, ast.Name) and changed.id in named):
                yield node
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in named:
            yield node
        elif isinstance(node, ast.Assign):
            yield from (one for one in node.targets if isinstance(one, ast.Subscript) and _name(one.value) in named)


def _is_view(node: ast.AST) -> bool:
    """A slice with a range or several indices, or a method that returns a view."""
    if isinstance(node, ast.Subscript):
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        is_slice = bool(inside) and not isinstance(node.value, (ast.List, ast.Tuple))
        return is_slice and not (isinstance(node.value, ast.Attribute) and node.value.attr in ABOUT_SHAPES)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS


def _changes(node: ast.expr) -> bool:
    if not isinstance(node, ast.Attribute):
        return False
    return node.attr.endswith("_") and not node.attr.endswith("__") and node.attr not in NOT_IN_PLACE


def _branches(function: ast.AST) -> Iterator[ast.expr]:
    """Tests of branches that need a value, and values handed to Python, in code that runs with the model."""
    if getattr(function, "name", "") in BEFORE_RUN:
        return
    tensors = {name for name, value in _assigned(function) if _is_number_of_tensor(value)} | _arguments(function)
    for node in ast.walk(function):
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)) and _needs_value(node.test, tensors):
            yield node.test
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TO_PYTHON:
            yield node


def _needs_value(test: ast.AST, tensors: set[str]) -> bool:
    if isinstance(test, ast.Compare) and any(isinstance(one, ABOUT_OBJECTS) for one in test.ops):
        return False
    if isinstance(test, ast.Attribute) and test.attr in ABOUT_SHAPES:
        return False
    if isinstance(test, ast.Call):
        return _is_number_of_tensor(test)
    if isinstance(test, ast.Name):
        return test.id in tensors
    return any(_needs_value(child, tensors) for child in ast.iter_child_nodes(test))


def _is_number_of_tensor(node: ast.AST) -> bool:
    """A reduction of a tensor: `x.sum()`, `torch.any(x)`; what asks for sizes is none."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr in ASKING:
        return False
    return node.func.attr in REDUCTIONS and not _is_about_shapes(node)


def _is_about_shapes(node: ast.Call) -> bool:
    inside = (one for one in ast.walk(node) if isinstance(one, ast.Attribute))
    return any(one.attr in ABOUT_SHAPES for one in inside)


def _arguments(function: ast.AST) -> set[str]:
    """Arguments that are tensors: by their annotation, or where there is none by what is done with them."""
    arguments = getattr(function, "args", None)
    listed = [*arguments.args, *arguments.kwonlyargs] if arguments else []
    annotated = {one.arg for one in listed if one.annotation is not None and ast.unparse(one.annotation) in TENSORS}
    plain = {one.arg for one in listed if one.annotation is None and one.arg != "self"}
    return annotated | (plain & _used_as_tensors(function) - _other_kinds(function))


def _used_as_tensors(function: ast.AST) -> set[str]:
    """Names that have a shape or a view, or are what a function of torch.nn.functional computes from."""
    nodes = [*ast.walk(function)]
    owners = [one.value for one in nodes if isinstance(one, ast.Attribute) and one.attr in ONLY_TENSORS]
    calls = [one for one in nodes if isinstance(one, ast.Call) and one.args]
    given = [one.args[0] for one in calls if ast.unparse(one.func).startswith(FUNCTIONAL)]
    return {one.id for one in [*owners, *given] if isinstance(one, ast.Name)}


def _other_kinds(function: ast.AST) -> set[str]:
    """Names that are asked for their class, hold a text, or get another meaning than that of the argument."""
    calls = [one for one in ast.walk(function) if isinstance(one, ast.Call) and one.args]
    asked = {_name(one.args[0]) for one in calls if _name(one.func) == "isinstance"}
    compared = [one for one in ast.walk(function) if isinstance(one, ast.Compare)]
    texts = {_name(one.left) for one in compared if isinstance(getattr(one.comparators[0], "value", None), str)}
    return asked | texts | {name for name, value in _assigned(function) if not _is_computed(value)}


def _is_computed(value: ast.expr) -> bool:
    """Tell a value that is still a tensor where its name was one: a result of arithmetic, of a call, or a part."""
    if isinstance(value, ast.Call):
        attribute = value.func.attr if isinstance(value.func, ast.Attribute) else _name(value.func)
        return attribute not in ASKING | TO_PYTHON | PYTHON_NUMBERS
    if isinstance(value, ast.Subscript):
        return _is_computed(value.value)
    return isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Name))


def _assigned(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            yield from ((one.id, node.value) for one in node.targets if isinstance(one, ast.Name))


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _cuda(function: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        named = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        given: Iterable[ast.expr] = [*node.args, *(one.value for one in node.keywords)]
        if named == "cuda" or any(_says_cuda(one) for one in given):
            yield node


def _says_cuda(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.partition(":")[0] == "cuda"


FINDERS: Mapping[str, Callable[[ast.AST], Iterator[Any]]] = {
    "load-without-map-location": _loads,
    "in-place-on-view": _views,
    "control-flow-on-data": _branches,
    "cuda-call": _cuda,
}
