"""The edits of a port's source: confirmed changes of settings, written where the value is made, and of its own code.

An argument that stands in the call of a layer is changed there; a name is followed to its default, its constant or the
call that hands it down; an argument that is missing is added. Of the places that a value goes through the one nearest
to its origin is taken at which no layer changes that is right as it is. All else of a file stays byte for byte.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from align.core.align_sequences import grouped
from align.fixes.follow_argument import CallsOfLayers, Site, arguments_of, is_open
from align.models.function_source import (
    CONSTRUCTOR,
    called_name,
    class_of,
    compiled,
    keywords,
    methods_of,
    name_in,
    own_classes,
    written,
)
from align.models.source_lines import agrees_with

if TYPE_CHECKING:
    from align.core.protocols import Setting
    from align.fixes.follow_argument import LayerCall
    from align.forward.forward_result import Culprit
    from align.models.function_source import CodeChange


Layers = Mapping[str, Any]
FRAMEWORKS = ("mindspore", "torch")
PARTIAL = "partial"
KIND = ""  # what a layer of another class is wanted as, among the arguments
EXPLICIT = "pad"  # the only mode of MindSpore's layers with which they take a padding


class _RefusedError(Exception):
    """Why no edit is made: the key of a text, and its facts."""

    def __init__(self, key: str, **facts: object) -> None:
        super().__init__(key)
        self.key, self.facts = f"fix_refused.{key}", facts


@dataclass(frozen=True, slots=True)
class _Place:
    """A part of a file that is to be written anew: what stands there, the new text, and the layers that it makes."""

    site: Site
    text: str
    layers: tuple[str, ...]
    arguments: dict[str, Setting]
    cause: str
    adds: bool = False


def plan_edits(culprits: Sequence[Culprit], model: Any, checkpoint: str = "") -> PlannedEdits:
    """Return the edits of confirmed culprits, one a place of source, and those that are refused with the reason.

    No names of parameters are moved where a `checkpoint` fills the model.
    """
    plan = _Plan(dict(_layers(model)) if culprits else {}, culprits, checkpoint)
    refused = [refusal for refusal in map(plan.tried, culprits) if refusal is not None]
    edits: list[SourceEdit] = []
    texts: dict[Path, str] = {}
    for file, places in plan.by_file().items():
        result = _written(file, places)
        if isinstance(result, _RefusedError):
            refused += [RefusedFix(place.layers, place.cause, result.key, result.facts) for place in places]
        else:
            edits += result[0]
            texts[Path(file)] = result[1]
    return PlannedEdits(tuple(edits), tuple(_joined(refused)), texts)


def _layers(model: Any) -> Iterator[tuple[str, Any]]:
    for walk in ("cells_and_names", "named_modules"):
        if hasattr(model, walk):
            yield from getattr(model, walk)()
            return


def _joined(refused: Sequence[RefusedFix]) -> Iterator[RefusedFix]:
    """One refusal for layers that have one reason."""
    for own in grouped(((one.cause, one.reason, str(one.facts)), one) for one in refused).values():
        layers = dict.fromkeys(path for one in own for path in one.layers)
        yield RefusedFix(tuple(layers), own[0].cause, own[0].reason, own[0].facts)


class _Plan:
    """What is to change so far; two culprits that want one place otherwise are told apart here."""

    def __init__(self, layers: Layers, culprits: Sequence[Culprit], checkpoint: str) -> None:
        self.layers, self.culprits, self.checkpoint = layers, culprits, checkpoint
        self.calls = CallsOfLayers(layers)
        self.places: dict[tuple[Any, ...], _Place] = {}
        self.wanted: dict[str, dict[str, Setting]] = {}
        for one in culprits:
            for path in (one.candidate, *one.also):
                self.wanted.setdefault(path, {}).update({KIND: one.layer} if one.layer else one.arguments)

    def by_file(self) -> dict[str, list[_Place]]:
        return grouped((place.site.file, place) for place in self.places.values())

    def tried(self, culprit: Culprit) -> RefusedFix | None:
        """Plan the change of one culprit; its refusal where that is not sure."""
        try:
            new = list(self._planned(culprit))
            self._require_free(new)
        except _RefusedError as why:
            return RefusedFix((culprit.candidate,), culprit.cause, why.key, why.facts)
        for one in new:
            self.places[self._key(one)] = one
        return None

    def _key(self, place: _Place) -> tuple[Any, ...]:
        return (*place.site.key, *(place.arguments if place.adds else ()))

    def _require_free(self, new: Sequence[_Place]) -> None:
        for one, known in product(new, self.places.values()):
            is_one_place = self._key(known) == self._key(one)
            if (is_one_place or _overlap(known, one)) and (known.text, _extent(known)) != (one.text, _extent(one)):
                raise _RefusedError("two_values", line=_line(one.site), values=[known.text, one.text])

    def _planned(self, culprit: Culprit) -> Iterator[_Place]:
        if culprit.code:
            yield self._in_code(culprit, culprit.code)
            return
        if not (culprit.arguments or culprit.layer) or culprit.part != "layer":
            raise _RefusedError("no_setting", change=culprit.change)
        layer_call = self.calls.construction(culprit.candidate)
        if layer_call is None or not agrees_with(layer_call.node, self.layers[culprit.candidate]):
            raise _RefusedError("no_line", line=culprit.line)
        if culprit.layer:
            yield self._of_other_class(culprit, layer_call)
            return
        if not self.calls.is_of_class(culprit.candidate, layer_call):
            raise _no_call(layer_call, self.layers[culprit.candidate])
        missing = {}
        culprit = self._without_padding(culprit, self._given(culprit.candidate, layer_call))
        for name, value in culprit.arguments.items():
            layer_call = self._call_that_takes(culprit.candidate, name, layer_call)
            _require_own(layer_call.source.file)
            given = self._given(culprit.candidate, layer_call).get(name)
            if given is None:
                missing[name] = value
            else:
                yield from self._changed(culprit, name, self.calls.places(layer_call, given))
        if missing:
            yield self._added(culprit, missing, layer_call)

    def _in_code(self, culprit: Culprit, change: CodeChange) -> _Place:
        """The expression that was tried in the live code, and all layers that run it."""
        _require_own(change.file)
        text = decoded(Path(change.file).read_bytes())
        nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.expr))
        begun = [node for node in nodes if (node.lineno, node.col_offset) == (change.line, change.column)]
        meant = [node for node in begun if text[slice(*ends(text, node))] == change.before]
        line = f"{Path(change.file).name}:{change.line}"
        if not meant:
            raise _RefusedError("no_expression", line=line, before=change.before)
        if change.moves and self.checkpoint:
            raise _RefusedError("moves_names", line=line, count=change.moves, checkpoint=self.checkpoint)
        layers = {path for path, layer in self.layers.items() if _runs(layer, change)}
        layers |= {culprit.candidate for culprit in self.culprits if culprit.code == change}
        unseen = tuple(sorted(layers - self.layers.keys()))  # a plain list of layers is none that the framework knows
        return _Place(Site(change.file, meant[0]), change.after, unseen or self._in_order(layers), {}, culprit.cause)

    def _without_padding(self, culprit: Culprit, given: Mapping[str, ast.expr]) -> Culprit:
        """The culprit with a padding of 0 where a mode without padding is wanted, and the call gives one."""
        asks = culprit.arguments.get("pad_mode", EXPLICIT) != EXPLICIT
        if not asks or "padding" not in given or "padding" in culprit.arguments:
            return culprit
        whole = {**culprit.arguments, "padding": 0}
        for path in (culprit.candidate, *culprit.also):
            self.wanted[path].update(whole)
        return replace(culprit, arguments=whole)

    def _call_that_takes(self, path: str, name: str, layer_call: LayerCall) -> LayerCall:
        """The call of the layer's class, or that of its base in a class of the user's own that hides the argument."""
        if is_open(layer_call.node):
            raise _no_call(layer_call, self.layers[path])
        if _takes(type(self.layers[path]), name):
            return layer_call
        base = self.calls.super_call(path)
        if base is None or is_open(base.node):
            raise _RefusedError("not_taken", name=name, kind=_class(self.layers[path]))
        return base

    def _given(self, path: str, layer_call: LayerCall) -> dict[str, ast.expr]:
        kind = type(self.layers[path])
        if layer_call.owner == path:  # in its own constructor
            kind = next(one for one in kind.__mro__ if one.__module__.partition(".")[0] in FRAMEWORKS)
        return arguments_of(layer_call.node, [*_parameters(kind)])

    def _changed(self, culprit: Culprit, name: str, sites: Sequence[Site]) -> Iterator[_Place]:
        """The value where it is made, else on its way, so that only layers change that are to."""
        value = culprit.arguments[name]
        if not sites[-1].is_literal:
            raise _RefusedError("computed", name=name, value=ast.unparse(sites[-1].node), line=_line(sites[-1]))
        if ast.literal_eval(sites[-1].node) == value:
            if name == "padding":  # which only goes with the mode
                return
            raise _RefusedError("no_line", line=culprit.line)  # what makes the layer stands elsewhere
        for site in reversed(sites):
            layers = self.calls.made_at(site.key)
            if not self._right(layers, {name: value}):
                _require_own(site.file)
                yield _Place(site, written(value), self._in_order(layers), {name: value}, culprit.cause)
                return
        self._refuse_shared(sites[0], {name: value})

    def _added(self, culprit: Culprit, missing: dict[str, Setting], layer_call: LayerCall) -> _Place:
        """The keywords that a call lacks; where a class that is handed down is named, if the call gives none."""
        text = keywords(missing)
        if kind := self._handed_class(culprit, layer_call, missing):
            handed = f"{PARTIAL}({ast.unparse(kind.node)}, {text})"
            return _Place(kind, handed, self._in_order(self.calls.made_at(kind.key)), missing, culprit.cause)
        site = Site(layer_call.source.file, layer_call.node)
        layers = self.calls.made_at(site.key)
        if self._right(layers, missing):
            self._refuse_shared(site, missing)
        return _Place(site, text, self._in_order(layers), missing, culprit.cause, adds=True)

    def _handed_class(self, culprit: Culprit, layer_call: LayerCall, wanted: Mapping[str, Setting]) -> Site | None:
        """Where the class is named that a call without arguments is handed, if no layer changes that is right."""
        call = layer_call.node
        bare = not call.args and not call.keywords and isinstance(call.func, ast.Name)
        for kind in reversed(self.calls.places(layer_call, call.func)[1:] if bare else []):
            named = ast.unparse(kind.node).rpartition(".")[2] == _class(self.layers[culprit.candidate])
            if named and not self._right(self.calls.made_at(kind.key), wanted) and not isinstance(kind.node, ast.Call):
                _require_own(kind.file)
                return kind
        return None

    def _of_other_class(self, culprit: Culprit, layer_call: LayerCall) -> _Place:
        """The call of another class, or the class that is handed down."""
        _require_own(layer_call.source.file)
        wanted: dict[str, Setting] = {KIND: culprit.layer}
        order = [*_parameters(class_of(culprit.layer))]
        text = keywords(dict(sorted(culprit.arguments.items(), key=lambda one: order.index(one[0]))))
        kind = self._handed_class(culprit, layer_call, wanted)
        site = kind or Site(layer_call.source.file, layer_call.node)
        if kind is None and called_name(layer_call.node) != _class(self.layers[culprit.candidate]):
            raise _RefusedError("no_call", line=_line(site), name=_class(self.layers[culprit.candidate]))
        name = name_in(site.file, culprit.layer)
        if not name:
            raise _RefusedError("no_import", line=_line(site), name=culprit.layer)
        layers = self.calls.made_at(site.key)
        if self._right(layers, wanted):
            self._refuse_shared(site, wanted)
        handed = f"{PARTIAL}({name}, {text})" if text else name
        return _Place(site, handed if kind else f"{name}({text})", self._in_order(layers), {}, culprit.cause)

    def _right(self, layers: set[str], arguments: Mapping[str, Setting]) -> list[str]:
        """Layers among these that are right as they are."""
        return sorted(one for one in layers if not arguments.items() <= self.wanted.get(one, {}).items())

    def _refuse_shared(self, site: Site, arguments: Mapping[str, Setting]) -> None:
        right = self._right(self.calls.made_at(site.key), arguments)
        raise _RefusedError("shared_line", line=_line(site), names=right, count=len(right))

    def _in_order(self, layers: set[str]) -> tuple[str, ...]:
        return tuple(path for path in self.layers if path in layers)


def _runs(layer: object, change: CodeChange) -> bool:
    """Tell whether a method of a layer's classes holds the changed line; what a constructor makes is another layer."""
    methods = (one for cls in own_classes(layer) for one in methods_of(cls) if one.node.name != CONSTRUCTOR)
    return any(
        one.file == change.file and one.node.lineno <= change.line <= (one.node.end_lineno or 0) for one in methods
    )


def _takes(kind: type, name: str) -> bool:
    parameters = _parameters(kind)
    return name in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _parameters(kind: type) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(kind).parameters


def _no_call(made: LayerCall, layer: object) -> _RefusedError:
    return _RefusedError("no_call", line=_line(Site(made.source.file, made.node)), name=_class(layer))


def _class(layer: object) -> str:
    return type(layer).__name__


def _overlap(one: _Place, other: _Place) -> bool:
    if one.site.file != other.site.file or (one.adds and other.adds):
        return False
    (start, stop), (other_start, other_stop) = _extent(one), _extent(other)
    return start < other_stop and other_start < stop


def _extent(place: _Place) -> tuple[tuple[int, int], tuple[int, int]]:
    """The lines and columns where what is written anew begins and ends; for an added argument, the call's end."""
    node = place.site.node
    stop = node.end_lineno or 0, node.end_col_offset or 0
    return (stop[0], stop[1] - 1) if place.adds else (node.lineno, node.col_offset), stop


def _line(site: Site) -> str:
    return f"{Path(site.file).name}:{site.node.lineno}"


def _require_own(file: str) -> None:
    """Raise _RefusedError for a file of a framework, and for what is no file."""
    parts = Path(file).parts
    if not Path(file).is_file():
        raise _RefusedError("no_file", file=file)
    if any(
        f"{place}/{name}" in Path(*parts).as_posix()
        for place in ("site-packages", "dist-packages")
        for name in FRAMEWORKS
    ):
        raise _RefusedError("of_framework", file=file)


def _written(file: str, places: Sequence[_Place]) -> tuple[list[SourceEdit], str] | _RefusedError:
    """The edits of a file, and its new text; the refusal of all where that says another thing than was meant."""
    text = decoded(Path(file).read_bytes())
    spans = [_span(text, place) for place in places]
    uses_partial = any(f"{PARTIAL}(" in span.text for span in spans)
    more = import_of(text, "functools", PARTIAL) if uses_partial else []
    new = replaced(text, [*spans, *more])
    if not alike_but_for(text, new, len(more)):
        return _RefusedError("no_call", line=_line(places[0].site), name=places[0].cause)
    return _edits(text, sorted(zip(spans, places, strict=True), key=lambda pair: pair[0])), new


def _span(text: str, place: _Place) -> Span:
    if place.adds and isinstance(place.site.node, ast.Call):
        return added_argument(text, place.site.node, place.text)
    return Span(*ends(text, place.site.node), place.text)


def _edits(text: str, changes: Sequence[tuple[Span, _Place]]) -> list[SourceEdit]:
    edits: list[SourceEdit] = []
    for (start, stop), group in groupby(changes, key=lambda one: _lines_of(text, one[0])):
        pairs = list(group)
        before = text[start:stop]
        after = replaced(before, [Span(one.start - start, one.stop - start, one.text) for one, _ in pairs])
        layers = tuple(dict.fromkeys(path for _, place in pairs for path in place.layers))
        cause = " + ".join(dict.fromkeys(place.cause for _, place in pairs))
        arguments = {name: value for _, place in pairs for name, value in place.arguments.items()}
        line = text.count("\n", 0, start) + 1
        edits.append(SourceEdit(pairs[0][1].site.file, line, before.strip(), after.strip(), layers, cause, arguments))
    return edits


def _lines_of(text: str, span: Span) -> tuple[int, int]:
    last = text.find("\n", span.stop)
    return text.rfind("\n", 0, span.start) + 1, last if last >= 0 else len(text)


# What is to change in the source of a port: the edits, what was refused, and the new text of each file.


@dataclass(frozen=True, slots=True)
class SourceEdit:
    """One place of the port's source that changes.

    `line` is that of the old text, `before` and `after` the source of the changed statement or expression. `layers` are
    all layers of the port that this place makes, `cause` the id of a rule or relation, `arguments` what is set.
    """

    file: str
    line: int
    before: str
    after: str
    layers: tuple[str, ...]
    cause: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RefusedFix:
    """A confirmed change for which no safe edit was found; `reason` is a key of words, `facts` are its facts."""

    layers: tuple[str, ...]
    cause: str
    reason: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedEdits:
    """All edits, all refusals, and the new whole text of each changed file."""

    edits: tuple[SourceEdit, ...]
    refused: tuple[RefusedFix, ...]
    texts: Mapping[Path, str]


# Parts of a text of Python that are written anew, and the proof that nothing else of it means another thing.


class Span(NamedTuple):
    """A part of a text, and what stands there afterwards."""

    start: int
    stop: int
    text: str


def replaced(text: str, spans: Sequence[Span]) -> str:
    """Return the text with all parts written anew; they do not overlap."""
    for one in sorted(spans, reverse=True):
        text = text[: one.start] + one.text + text[one.stop :]
    return text


def ends(text: str, node: ast.expr) -> tuple[int, int]:
    """Where an expression begins and ends in a text; Python counts lines, and bytes of UTF-8 in a line."""
    lines = split_lines(text)
    stops = ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
    first, last = (
        sum(map(len, lines[: row - 1])) + len(lines[row - 1].encode()[:column].decode()) for row, column in stops
    )
    return first, last


def split_lines(text: str) -> list[str]:
    r"""Return the lines as Python counts them: other marks than `\n`, `\r` and `\r\n` end none."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def added_argument(text: str, call: ast.Call, argument: str) -> Span:
    """New keywords of a call, right behind its last argument, or between its empty parentheses."""
    present = [*call.args, *(keyword.value for keyword in call.keywords)]
    stop = ends(text, call)[1] - 1
    if not present:
        return Span(stop, stop, argument)
    end = max(ends(text, node)[1] for node in present)
    while text[end:stop].lstrip().startswith(")"):  # parentheses around the last argument
        end = text.index(")", end) + 1
    return Span(end, end, f", {argument}")


def import_of(text: str, module: str, name: str) -> list[Span]:
    """The line that imports a name, below the other imports of a module; none where it is there."""
    tree = ast.parse(text)
    imports = [statement for statement in tree.body if isinstance(statement, (ast.Import, ast.ImportFrom))]
    if any(
        isinstance(statement, ast.ImportFrom) and statement.module == module and _imports(statement, name)
        for statement in imports
    ):
        return []
    future = [
        statement for statement in imports if isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    ]
    lines = split_lines(text)
    behind = next((statement for statement in imports if statement not in future), None)
    row = behind.lineno - 1 if behind else (future[-1].end_lineno or 0) if future else 0
    start = sum(map(len, lines[:row]))
    end = "\r\n" if "\r\n" in text else "\n"
    return [Span(start, start, f"from {module} import {name}{end}")]


def _imports(statement: ast.ImportFrom, name: str) -> bool:
    return any(one.name == name and one.asname is None for one in statement.names)


def alike_but_for(before: str, after: str, statements: int) -> bool:
    """Tell whether a new text is one of Python, of as many statements as before and `statements` more."""
    try:
        trees = [ast.parse(text) for text in (before, after)]
        compiled(after, "<edited>")
    except (SyntaxError, ValueError):
        return False
    counts = [sum(isinstance(one, ast.stmt) for one in ast.walk(tree)) for tree in trees]
    return counts[1] == counts[0] + statements


# Source as bytes and as text: its encoding is the one that Python would read it in, its line ends are kept.

BOM = "\ufeff"


def encoding_of(raw: bytes) -> str:
    """The encoding that a file's mark or first lines name, else UTF-8; raises SyntaxError for one that there is not."""
    return tokenize.detect_encoding(io.BytesIO(raw).readline)[0]


def decoded(raw: bytes) -> str:
    """A file's text with its own line ends, without a mark of the encoding."""
    return raw.decode(encoding_of(raw))


def whole_text(raw: bytes) -> str:
    """A file's text; a mark of the encoding, if it has one, is its first character, since a diff shows lines whole."""
    return raw.decode(_without_mark(raw))


def as_in_file(text: str, like: bytes) -> bytes:
    """What `whole_text` returned, or a part of it, as bytes again."""
    return text.encode(_without_mark(like))


def encoded(text: str, like: bytes) -> bytes:
    """A text in the encoding of another content of the same file, with its mark if that has one."""
    return text.removeprefix(BOM).encode(encoding_of(like))


def _without_mark(raw: bytes) -> str:
    return encoding_of(raw).removesuffix("-sig")
