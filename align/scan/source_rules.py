"""What the source of a torch model says besides its calls: lines that mean something else in MindSpore, or fail there.

A rule is a table of `mappings/source_rules.toml` and a function here. Types are not known: a name counts as a tensor
where torch, or a method that only tensors have, has made it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

from align.core.verdicts import Finding
from align.models.function_source import function_source, methods_of, own_classes, shown
from align.rules.layer_rules import mappings_folder, read_rules
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from align.core.protocols import Model
    from align.models.function_source import FunctionSource

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
    """Tell whether the answer depends on values, and not on shapes and on what is there."""
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
