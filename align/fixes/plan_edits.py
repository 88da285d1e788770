"""The edits of a port's source: settings that a confirmed change writes into the call that makes a layer.

A keyword or a positional argument that is there is changed, one that is missing is added. All else of the file stays.
A line that makes other layers of that class too, or whose call cannot be found, is refused.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from align.fixes.planned_edits import PlannedEdits, RefusedFix, SourceEdit
from align.fixes.source_bytes import decoded
from align.models.source_lines import called_name, made_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.forward.forward_result import Culprit

Layers = dict[str, Any]


class _RefusedError(Exception):
    """Why no edit is made: the key of a text, and its facts."""

    def __init__(self, key: str, **facts: object) -> None:
        super().__init__(key)
        self.key, self.facts = f"fix_refused.{key}", facts


class _Edited(NamedTuple):
    """An edit, the file that it is of, and the parts of its text that change."""

    file: Path
    edit: SourceEdit
    spans: list[_Span]


class _Span(NamedTuple):
    """A part of a text, and what stands there afterwards."""

    start: int
    stop: int
    text: str


def plan_edits(culprits: Sequence[Culprit], model: Any) -> PlannedEdits:
    """Return the edits of confirmed culprits, one a line of source, and those that are refused with the reason."""
    layers = dict(_layers(model))
    found = [_tried(line, change, own, layers) for (line, change), own in _groups(culprits).items()]
    spans: dict[Path, list[_Span]] = {}
    for one in found:
        if isinstance(one, _Edited):
            spans.setdefault(one.file, []).extend(one.spans)
    texts = {file: _replaced(decoded(file.read_bytes()), changed) for file, changed in spans.items()}
    edits = tuple(one.edit for one in found if isinstance(one, _Edited))
    return PlannedEdits(edits, tuple(one for one in found if isinstance(one, RefusedFix)), texts)


def _tried(line: str, change: str, own: Sequence[Culprit], layers: Layers) -> _Edited | RefusedFix:
    try:
        return _edited(line, change, own, layers)
    except _RefusedError as why:
        names = tuple(dict.fromkeys(one.candidate for one in own))
        return RefusedFix(names, own[0].cause, why.key, why.facts)


def _groups(culprits: Sequence[Culprit]) -> Mapping[tuple[str, str], list[Culprit]]:
    groups: dict[tuple[str, str], list[Culprit]] = {}
    for one in culprits:
        groups.setdefault((one.line, one.change), []).append(one)
    return groups


def _layers(model: Any) -> Iterator[tuple[str, Any]]:
    """All layers of a port by their paths, the model itself as ""."""
    for walk in ("cells_and_names", "named_modules"):
        if hasattr(model, walk):
            yield from getattr(model, walk)()
            return


def _edited(line: str, change: str, own: Sequence[Culprit], layers: Layers) -> _Edited:
    """What changes where a line makes layers; raises _RefusedError where that is not sure."""
    layer = layers[own[0].candidate]
    wanted = _wanted(change, type(layer).__name__)
    arguments = _literals(wanted)
    alike = (path for path, one in layers.items() if path and type(one) is type(layer))
    made = [path for path in alike if made_at(layers[""], path) == line]
    _require_all(line, made, own)
    file, number = _file(line, layers), int(line.rpartition(":")[2])
    text = decoded(file.read_bytes())
    call = _call(text, number, called_name(wanted), line)
    _require_same(call, layer, line)
    if arguments.get("pad_mode") == "pad" and "padding" not in {*arguments, *_given(call, layer)}:
        raise _RefusedError("no_padding", change=change)
    spans = _argument_spans(text, call, wanted, layer)
    if _replaced(text, spans) == text:
        raise _RefusedError("no_line", line=line)
    first, last = _ends(text, call)
    inside = [_Span(one.start - first, one.stop - first, one.text) for one in spans]
    before = text[first:last]
    edit = SourceEdit(str(file), number, before, _replaced(before, inside), tuple(made), own[0].cause, arguments)
    return _Edited(file, edit, spans)


def _wanted(change: str, class_name: str) -> ast.Call:
    """The call that a change says to write: `nn.Conv2d(..., has_bias=True)`, or its arguments alone."""
    tree = _parsed(change) or _parsed(f"{class_name}({change})")
    if not isinstance(tree, ast.Call) or not tree.keywords or any(one.arg is None for one in tree.keywords):
        raise _RefusedError("no_setting", change=change)
    return tree


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return None


def _require_same(call: ast.Call, layer: Any, line: str) -> None:
    """Raise _RefusedError if a whole number of the call is not that of the layer: another branch makes it."""
    for name, node in _given(call, layer).items():
        value = getattr(layer, str(name), None)
        sizes = {*value} if isinstance(value, (tuple, list)) else {value}
        is_number = isinstance(node, ast.Constant) and type(node.value) is int
        if is_number and all(type(size) is int for size in sizes) and node.value not in sizes:  # type: ignore[attr-defined]
            raise _RefusedError("no_line", line=line)


def _given(call: ast.Call, layer: Any) -> dict[str | None, ast.expr]:
    """The arguments of a call by the names that the layer's constructor has for them."""
    places = [*inspect.signature(type(layer)).parameters]
    return {one.arg: one.value for one in call.keywords} | dict(zip(places, call.args, strict=False))


def _literals(wanted: ast.Call) -> dict[str, Any]:
    try:
        return {str(one.arg): ast.literal_eval(one.value) for one in wanted.keywords}
    except ValueError:
        raise _RefusedError("no_setting", change=ast.unparse(wanted)) from None


def _require_all(line: str, made: Sequence[str], own: Sequence[Culprit]) -> None:
    """Raise _RefusedError if the line makes none of the layers at fault, or others that are right."""
    at_fault = {one.candidate for one in own}
    if not at_fault <= set(made):
        raise _RefusedError("no_line", line=line)
    if right := sorted(set(made) - at_fault):
        raise _RefusedError("shared_line", line=line, names=right, count=len(right))


def _file(line: str, layers: Layers) -> Path:
    """The file that a line is in, as it was loaded: one that defines the class of a layer."""
    name = line.rpartition(":")[0]
    for layer in layers.values():
        for cls in type(layer).__mro__:
            if cls.__module__ != "builtins" and (file := _source_of(cls)) and Path(file).as_posix().endswith(name):
                return Path(file)
    raise _RefusedError("no_line", line=line)


def _source_of(cls: type) -> str:
    try:
        return inspect.getfile(cls)
    except (TypeError, OSError):
        return ""


def _call(text: str, number: int, name: str, line: str) -> ast.Call:
    """The only call of a class that begins in a line."""
    found = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call) and called_name(one) == name]
    in_line = [one for one in found if one.lineno == number]
    if len(in_line) != 1 or any(one.arg is None for one in in_line[0].keywords):
        raise _RefusedError("no_call", line=line, name=name)
    return in_line[0]


def _argument_spans(text: str, call: ast.Call, wanted: ast.Call, layer: Any) -> list[_Span]:
    """The values of arguments that are there, and the end of the call for those that are missing."""
    given = _given(call, layer)
    spans, added = [], []
    for keyword in wanted.keywords:
        value = ast.unparse(keyword.value).replace("'", '"')
        if keyword.arg in given:
            node = given[keyword.arg]
            if not isinstance(node, (ast.Constant, ast.Tuple, ast.UnaryOp)):
                raise _RefusedError("computed", name=keyword.arg, value=ast.unparse(node))
            spans.append(_Span(*_ends(text, node), value))
        else:
            added.append(f"{keyword.arg}={value}")
    return [*spans, *_added(text, call, added)]


def _added(text: str, call: ast.Call, arguments: Sequence[str]) -> list[_Span]:
    """New keywords behind the last argument."""
    if not arguments:
        return []
    present = [*call.args, *(one.value for one in call.keywords)]
    if not present:
        end = _ends(text, call)[1] - 1
        return [_Span(end, end, ", ".join(arguments))]
    end = max(_ends(text, one)[1] for one in present)
    return [_Span(end, end, "".join(f", {one}" for one in arguments))]


def _ends(text: str, node: ast.expr) -> tuple[int, int]:
    """Where an expression begins and ends in a text; Python counts lines, and bytes in a line."""
    lines = text.splitlines(keepends=True)
    stops = ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
    first, last = (
        sum(map(len, lines[: row - 1])) + len(lines[row - 1].encode()[:column].decode()) for row, column in stops
    )
    return first, last


def _replaced(text: str, spans: Sequence[_Span]) -> str:
    for one in sorted(spans, reverse=True):
        text = text[: one.start] + one.text + text[one.stop :]
    return text
