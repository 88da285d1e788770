"""A port's layers as a file: nested cells with the names of the torch model, `construct` left to fill in.

Modules of equal layers share one class. The file imports whatever is left to do: what has no counterpart is a cell that
says so when it is called.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.atomic_files import write_text
from align.errors import CannotRunError, DestinationError
from align.models.open_side import ModelOutliner, open_side
from align.rules.ascend_rules import api_entries
from align.rules.layer_rules import mappings_folder, read_rules
from align.rules.pitfalls import SAME, pitfalls
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.protocols import Model, Setting
    from align.models.open_side import ModuleOutline, OutlinedTensor, Side
    from align.rules.pitfalls import Form


INDENT = " " * 4
BODY = 2 * INDENT
CODE_WIDTH = 100  # format: a call that is longer is broken into one item a line, and fits most screens then


def write_skeleton(side: str | Model | Side, file: Path | str, *, force: bool = False) -> Path:
    """Write the layers of a torch model in MindSpore into a file, whole or not at all; return its path.

    Raises DestinationError for a file that is there, unless it is to be replaced by `force`, CannotRunError for a
    model of another framework.
    """
    destination = Path(file)
    if destination.exists() and not force:
        raise DestinationError.of("scan_error.skeleton_exists", path=destination)
    opened = open_side(side)
    if not isinstance(opened.reader, ModelOutliner):
        raise CannotRunError.of("scan_error.no_torch_model", side=opened.label, framework=opened.reader.name)
    text = skeleton_text(opened.reader.outline(opened.model), opened.reader.ties(opened.model), opened.label)
    compile(text, str(destination), "exec")
    write_text(destination, text)
    return destination


def skeleton_text(model: ModuleOutline, ties: Sequence[tuple[str, str]], label: str) -> str:
    """The file; its function `build` returns the port."""
    classes = _Classes()
    root = classes.made(model)
    tied = [*_again(model, ""), *((one, first) for one, first in ties)]
    head = say("skeleton.head", label=label)
    code = "\n\n\n".join([*classes.helpers(), *classes.texts, _build(root, tied, classes)])
    return f'"""{head}"""\n\n{_imports(code)}\n\n\n{code}\n'


def _imports(code: str) -> str:
    lines = [say("skeleton.future")]
    lines += [say("skeleton.ordered")] if "OrderedDict(" in code else []
    names = ", ".join(name for name in ("Parameter", "mint", "nn", "ops") if re.search(rf"\b{name}\b[.(]", code))
    module = "import mindspore\n" if "(mindspore," in code else ""
    return "\n\n".join([*lines, f"{module}from mindspore import {names}"])


def _build(root: str, tied: Sequence[tuple[str, str]], classes: _Classes) -> str:
    lines = ["def build():", f'{INDENT}"""{say("skeleton.build")}"""', f"{INDENT}net = {root}"]
    for one, first in tied:
        lines.append(INDENT + say("skeleton.again", place=_access(one, classes), first=_access(first, classes)))
    return "\n".join([*lines, f"{INDENT}return net"])


def _again(module: ModuleOutline, path: str) -> Iterator[tuple[str, str]]:
    """Paths of modules that stand somewhere else already, and where."""
    for child in module.children:
        inner = f"{path}.{child.name}" if path else child.name
        if child.same_as:
            yield inner, child.same_as
        else:
            yield from _again(child, inner)


def _access(path: str, classes: _Classes) -> str:
    """A path as code: `.blocks[0].attn`; the weight of an embedding has a name of its own."""
    owner, _, leaf = path.rpartition(".")
    leaf = classes.renamed.get((classes.class_at.get(owner, ""), leaf), leaf)
    names = [*owner.split("."), leaf] if owner else [leaf]
    return "".join(f"[{name}]" if name.isdigit() else f".{name}" for name in names)


class _Classes:
    """The classes of the file, each written once; `class_at` says which class of mindspore.nn stands at a path."""

    renamed = {("nn.Embedding", "weight"): "embedding_table"}  # noqa: RUF012 - never changed

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.class_at: dict[str, str] = {}
        self._made: dict[tuple[str, str], str] = {}
        self._names: dict[str, int] = {}
        self._uses: set[str] = set()

    def helpers(self) -> Iterator[str]:
        for name in ("parameter", "Missing"):
            if name in self._uses:
                yield say(f"skeleton.{name.lower()}")

    def made(self, module: ModuleOutline, path: str = "") -> str:
        if module.kind == "layer" or (module.classes and module.classes[0] in constructors()):
            return self._layer(module, path)
        if module.kind in ("sequence", "list", "dict"):
            return self._holder(module, path)
        return f"{self._class(module, path)}()"

    def _layer(self, module: ModuleOutline, path: str) -> str:
        code = layer_code(module)
        self.class_at[path] = code.cls
        if code.call:
            return code.call
        if module.tensors or module.children:
            return f"{self._class(module, path, todo=code.todo)}()"
        self._uses.add("Missing")
        return f"Missing({code.todo[0]!r})"

    def _holder(self, module: ModuleOutline, path: str) -> str:
        cls = {"sequence": "nn.SequentialCell", "list": "nn.CellList", "dict": "nn.CellDict"}[module.kind]
        children = [child for child in module.children if not child.same_as]
        items = [(child.name, self.made(child, f"{path}.{child.name}" if path else child.name)) for child in children]
        if module.kind == "dict":
            return _call(cls, [f'"{name}": {code}' for name, code in items], "{", "}")
        if module.kind == "sequence" and [name for name, _ in items] != [*map(str, range(len(items)))]:
            return _call(cls, [f'("{name}", {code})' for name, code in items], "OrderedDict([", "])")
        runs = [(code, len([*same])) for code, same in groupby(code for _, code in items)]
        repeated = [f"*({code} for _ in range({count}))" if count > 1 else code for code, count in runs]
        return _call(cls, repeated, "[" if module.kind == "list" else "", "]" if module.kind == "list" else "")

    def _class(self, module: ModuleOutline, path: str, todo: Sequence[str] = ()) -> str:
        """The name of the class of a module, written if there is none of equal layers."""
        base, first = "nn.Cell", f"{BODY}super().__init__()"
        if module.kind == "derived" and (code := layer_code(module)).call:
            base, todo = code.cls, (*todo, *code.todo, say("skeleton.derived", torch=module.classes[0]))
            first = f"{BODY}super().__init__({code.inner})"
            self.class_at[path] = code.cls
        lines = [f"{BODY}# TODO: {one}" for one in todo] + [first]
        if base == "nn.Cell":
            lines += [line for one in module.tensors for line in self._tensor(one)]
        lines += [line for child in module.children if not child.same_as for line in self._child(child, path)]
        body = "\n".join([f"{INDENT}def __init__(self):", *lines, "", *_construct(module)])
        name = module.class_name
        key = (name, f"{base}\n{body}")
        if key not in self._made:
            self._names[name] = self._names.get(name, 0) + 1
            number = self._names[name]
            self._made[key] = name if number == 1 else f"{name}{number}"
            said = say("skeleton.class_of", torch=module.classes[0] if module.classes else name)
            self.texts.append(f'class {self._made[key]}({base}):\n{INDENT}"""{said}"""\n\n{body}')
        return self._made[key]

    def _tensor(self, tensor: OutlinedTensor) -> Iterator[str]:
        if not tensor.kept:
            yield f"{BODY}# {say('skeleton.buffer', name=tensor.name, shape=str(tensor.shape), dtype=tensor.dtype)}"
            return
        self._uses.add("parameter")
        kind = "" if tensor.dtype == "float32" else f', dtype="{tensor.dtype}"'
        trained = "" if tensor.trainable else ", requires_grad=False"
        call = f'parameter("{tensor.name}", {tensor.shape}{kind}{trained})'
        is_name = tensor.name.isidentifier()
        yield (
            f"{BODY}self.{tensor.name} = {call}"
            if is_name
            else f'{BODY}self.insert_param_to_cell("{tensor.name}", {call})'
        )

    def _child(self, child: ModuleOutline, path: str) -> Iterator[str]:
        inner = f"{path}.{child.name}" if path else child.name
        made = self.made(child, inner)
        if child.kind == "layer" and (code := layer_code(child)).todo:
            yield from (f"{BODY}# TODO: {one}" for one in code.todo)
        indented = made.replace("\n", f"\n{BODY}")
        if child.name.isidentifier():
            yield f"{BODY}self.{child.name} = {indented}"
        else:
            yield f'{BODY}self.insert_child_to_cell("{child.name}", {indented})'


def _construct(module: ModuleOutline) -> Iterator[str]:
    yield f"{INDENT}def construct(self{', ' if module.takes else ''}{module.takes}):"
    if module.line:
        yield f"{BODY}# {module.line}"
    yield from (f"{BODY}# {line}".rstrip() for line in module.forward.splitlines())
    yield f'{BODY}raise NotImplementedError("{module.class_name}.construct")'


def _call(cls: str, items: Sequence[str], before: str, after: str) -> str:
    """A call on one line where there is room, else with one item a line."""
    line = f"{cls}({before}{', '.join(items)}{after})"
    if len(line) <= CODE_WIDTH and "\n" not in line:
        return line
    inner = "".join(f"{INDENT}{one},\n".replace("\n", f"\n{INDENT}").rstrip(" ") for one in items)
    return f"{cls}({before}\n{inner}{after})"


# The line of MindSpore that makes a torch layer, with its settings translated.
#
# `mappings/skeleton.toml` says what a constructor is given by place and by name, the rules of `mappings/pitfalls` how
# every other setting is written there. What has no counterpart is told with what to write instead.

TORCH, NN = "torch.nn.", "mindspore.nn."
NOT_WRITTEN = ("initialisers",)  # topics of rules: values are loaded
ABSENT = (None, False, 0)  # no limit: values of a setting that a layer does not have
LEFT_OUT = ("device", "dtype", "inplace")  # arguments of torch that say nothing of what is computed


@dataclass(frozen=True, slots=True)
class LayerCode:
    """What makes a layer: `call` as `nn.Dense(3, 4)`, its class, and what is left `todo`; `call` is "" for nothing."""

    call: str
    cls: str
    inner: str
    todo: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Constructor:
    """How a class of mindspore.nn is built; see `mappings/skeleton.toml`."""

    nn: str
    places: tuple[str, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)


def layer_code(layer: ModuleOutline) -> LayerCode:
    """Translate a layer of torch.nn, or the base of one that is derived."""
    torch = next((name for name in layer.classes if name.startswith(TORCH)), "")
    known = constructors().get(layer.classes[0]) or constructors().get(torch.removeprefix(TORCH))
    if known is not None:
        return _built(layer, known)
    entry = api_entries().get(torch)
    counterpart = entry.counterparts[0] if entry and entry.counterparts else None
    if counterpart is not None and counterpart.relation == "same":
        return _same(layer, counterpart.name)
    instead = (counterpart.write or counterpart.name) if counterpart else entry.write if entry else ""
    torch_call = f"{torch}({_joined(_kept(layer))})"
    return LayerCode("", "", "", (say("skeleton.no_counterpart", torch=torch_call, instead=instead),))


def _built(layer: ModuleOutline, known: Constructor) -> LayerCode:
    values = {**layer.settings, **layer.arguments}
    named: dict[str, Setting] = {name: values.get(setting) for name, setting in known.named.items()}
    todo: list[str] = []
    for form, nn_form, silent in _forms(layer, NN + known.nn):
        value = _given(form, layer)
        written = nn_form.arguments(value)
        if written and silent(written[-1]):
            continue
        if written:
            _take(named, dict(written))
        elif value not in ABSENT and (instead := nn_form.alternative(value)):
            todo.append(instead)
    places = [_literal(_place(values.get(name), layer)) for name in known.places]
    if axes := _axes(layer):
        named |= {"begin_norm_axis": axes, "begin_params_axis": axes}
    kept = {
        name: value
        for name, value in named.items()
        if value is not None and name not in known.places and not _is_silent(name, value)
    }
    inner = ", ".join([*places, *(f"{name}={_literal(value)}" for name, value in kept.items())])
    return LayerCode(f"nn.{known.nn}({inner})", f"nn.{known.nn}", inner, tuple(todo))


def _forms(layer: ModuleOutline, target: str) -> Iterator[tuple[Form, Form, Any]]:
    for rule in pitfalls():
        form, own = rule.form_of(layer.classes), rule.form_of((target,))
        if form and own and rule.topic not in NOT_WRITTEN and form.readable(layer.settings) and _plainly(form, layer):
            yield form, own, lambda last: _is_silent(*last)


def _given(form: Form, layer: ModuleOutline) -> Setting:
    """The common value; padding to the input's size stays a word, as MindSpore's Conv1d takes no two numbers."""
    same = form.means == "padding" and layer.settings.get("padding") == SAME
    return SAME if same else form.given(layer.settings, layer.classes)


def _plainly(form: Form, layer: ModuleOutline) -> bool:
    """Tell whether a rule has a say: zeros as padding need no word."""
    zeros = "padding_mode" in form.attributes and layer.settings.get("padding_mode") == "zeros"
    return not zeros and form.means != "first_axis"  # the axes of a LayerNorm are counted here


def _take(named: dict[str, Setting], written: dict[str, Setting]) -> None:
    if named.get("pad_mode") == "pad" and written == {"pad_mode": "valid"}:
        return
    named.update(written)


def _axes(layer: ModuleOutline) -> int:
    """The first axis of a LayerNorm over several, counted from behind; 0 where it is the last."""
    shape = layer.settings.get("normalized_shape")
    return -len(shape) if isinstance(shape, tuple) and len(shape) > 1 else 0


def _place(value: Setting, layer: ModuleOutline) -> Setting:
    """A value given by place; of one axis a number alone, of several alike one number."""
    if not isinstance(value, tuple) or layer.class_name.startswith("LayerNorm") or "normalized_shape" in layer.settings:
        return value
    return value[0] if len(set(value)) == 1 else value


def _same(layer: ModuleOutline, name: str) -> LayerCode:
    """A class that takes the same arguments."""
    package, inner = name.removeprefix("mindspore."), _joined(_kept(layer))
    return LayerCode(f"{package}({inner})", package, inner)


def _kept(layer: ModuleOutline) -> dict[str, Setting]:
    return {name: value for name, value in layer.arguments.items() if name not in LEFT_OUT}


def _joined(arguments: Mapping[str, Setting]) -> str:
    return ", ".join(f"{name}={_literal(value)}" for name, value in arguments.items())


def _literal(value: Setting) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _is_silent(name: str, value: Setting) -> bool:
    return any(value is one or (value == one and not isinstance(value, bool)) for one in silent_values().get(name, ()))


@cache
def constructors() -> Mapping[str, Constructor]:
    """Constructors by torch's class, without `torch.nn.`."""
    return read_rules(mappings_folder() / "skeleton.toml", _constructors)


def _constructors(document: dict[str, Any]) -> dict[str, Constructor]:
    by_torch_class: dict[str, Constructor] = {}
    for table in document["layer"]:
        for torch, nn in zip(table["torch"], table.get("nn", table["torch"]), strict=True):
            by_torch_class[torch] = Constructor(nn, tuple(table.get("places", ())), table.get("named", {}))
    return by_torch_class


@cache
def silent_values() -> Mapping[str, list[Setting]]:
    """What MindSpore's constructors have by default, by argument."""
    return read_rules(mappings_folder() / "skeleton.toml", lambda document: {**document["silent"]})
