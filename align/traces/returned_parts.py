"""What two models returned beside tensors: which parts are compared, and what is left out of the comparison.

An object may have keys and attributes that the other has not, as nobody asks for them. A list that is longer, and a
number where the other has None under the same key, are another result.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import Finding
from align.traces.module_calls import outermost_calls
from align.traces.stored.manifest import TraceManifest
from align.traces.thresholds import MOST_LISTED_PARTS
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from align.core.trace_metadata import ContainerKind, PartKind, ReturnedParts
    from align.core.traces import Capture, Trace

Captures = tuple["Capture", ...]
Parts = dict[int, "ReturnedParts"]

# What an object may lack on one side: beside tensors and arrays, what is not a result need not be ported.
_OPTIONAL: dict[PartKind | None, str] = {
    "number": "returned_part.number",
    "text": "returned_part.text",
    "attribute": "returned_part.attribute",
    "cache": "returned_part.of_cache",
}
_LACKS: dict[Lack, str] = {
    "one more": "returned_part.one_more",
    "other form": "returned_part.other_form",
    "no container": "returned_part.no_container",
    "None": "returned_part.none",
    "behind the end": "returned_part.behind_the_end",
}
Lack = Literal["one more", "other form", "None", "behind the end", "no container", "other container"]


def parts_of(trace: Trace) -> Parts:
    """What each call of the model returned beside tensors, by its number; nothing for traces of other tools."""
    manifest = getattr(trace, "manifest", None)
    return {one.call: one for one in manifest.returned} if isinstance(manifest, TraceManifest) else {}


def comparable_captures(captures: tuple[Captures, Captures], parts: Sequence[Parts]) -> list[Captures]:
    """The captures of two runs without those parts of the models' outputs that are no tensors and the other side lacks.

    Where both return the same number of parts, all stay: those of unequal names pair by their places.
    """
    out = [lacks.keys() for lacks in _lacks(captures, parts)]
    return [tuple(one for one in own if one.key not in lost) for own, lost in zip(captures, out, strict=True)]


def left_out_parts(
    captures: tuple[Captures, Captures], parts: Sequence[Parts], labels: Sequence[str]
) -> Iterator[Finding]:
    """Tell, for each side, of what it returned and was not compared; None only where the other side has something.

    A warning names what the other side need not have, an error what makes it another result.
    """
    names = [{one.output for call in outermost_calls(own) for one in call} for own in captures]
    lacks = _lacks(captures, parts)
    for side, label in enumerate(labels):
        left_out: dict[str, str] = {}
        for one in parts[side].values():
            left_out |= {
                name: what for name, what in one.left_out.items() if what != "None" or _has(names[1 - side], name)
            }
        wrong: dict[str, str] = {}
        for capture, lack in ((one, lacks[side][one.key]) for one in captures[side] if one.key in lacks[side]):
            into = left_out if lack == "one more" else wrong
            kind = sentence(_OPTIONAL[_kind(capture, parts[side])])
            into[capture.output] = sentence("returned_part.lacking", kind=kind, lack=sentence(_LACKS[lack]))
        if left_out:
            message = sentence("trace_finding.outputs_left_out", parts=_listed(left_out), more=_unlisted(left_out))
            yield Finding("outputs-left-out", "warning", label, message, {"parts": len(left_out)})
        if wrong:
            listed, more = _listed(wrong), _unlisted(wrong)
            message = sentence("trace_finding.outputs_lacking", side=label, parts=listed, more=more)
            yield Finding("outputs-lacking", "error", _place(next(iter(wrong))), message, {"parts": len(wrong)})


def _lacks(captures: tuple[Captures, Captures], parts: Sequence[Parts]) -> list[dict[str, Lack]]:
    """By the key of their captures, how the other side lacks the parts that are no tensors, for each side."""
    lacks: list[dict[str, Lack]] = [{}, {}]
    for mine, theirs in zip(*map(outermost_calls, captures), strict=False):
        if len(mine) != len(theirs):
            lacks[0] |= _lacks_of_call(mine, theirs, parts)
            lacks[1] |= _lacks_of_call(theirs, mine, parts[::-1])
    return lacks


def _lacks_of_call(mine: Sequence[Capture], theirs: Sequence[Capture], parts: Sequence[Parts]) -> dict[str, Lack]:
    others = [one.output for one in theirs]
    own, other = (
        tree_of([one.output for one in call], own.get(call[0].call))
        for call, own in zip((mine, theirs), parts, strict=True)
    )
    lacks = {
        one.key: what_lacks(one.output, kind, own, other)
        for one in mine
        if (kind := _kind(one, parts[0])) in _OPTIONAL and kind and one.output not in others
    }
    return {key: lack for key, lack in lacks.items() if lack in _LACKS}


def _listed(left_out: dict[str, str]) -> list[str]:
    return [
        sentence("returned_part.named", place=_place(name), what=what)
        for name, what in islice(left_out.items(), MOST_LISTED_PARTS)
    ]


def _unlisted(left_out: dict[str, str]) -> int:
    return max(len(left_out) - MOST_LISTED_PARTS, 0)


def _place(name: str) -> str:
    return f"outputs{'.' if name else ''}{name}"


def _has(names: set[str], name: str) -> bool:
    return any(one == name or one.startswith(f"{name}.") for one in names)


def _kind(capture: Capture, parts: Parts) -> PartKind | None:
    """What a part is that stands for no tensor."""
    return parts[capture.call].kinds.get(capture.output) if capture.call in parts else None


@dataclass(frozen=True, slots=True)
class ReturnedTree:
    """All names in what a call returned, the containers among them, and those that hold None."""

    names: frozenset[str]
    containers: Mapping[str, ContainerKind]
    empty: frozenset[str]

    def around(self, name: str) -> Iterator[tuple[str, str]]:
        """The containers that a part lies in, the outermost first, each with the name of its item on the way."""
        inside = sorted((one for one in self.containers if not one or name.startswith(f"{one}.")), key=len)
        return zip(inside, [*inside[1:], name], strict=True)


def tree_of(captured: Collection[str], parts: ReturnedParts | None) -> ReturnedTree:
    """The tree of captured names and of what was noted beside; containers are known by the names in earlier traces."""
    left_out = parts.left_out if parts else {}
    containers = parts.containers if parts and parts.containers else _by_names([*captured, *left_out])
    empty = frozenset(name for name, what in left_out.items() if what == "None")
    return ReturnedTree(frozenset([*captured, *left_out, *containers]), containers, empty)


def what_lacks(name: str, kind: PartKind, own: ReturnedTree, other: ReturnedTree) -> Lack:
    """Say how the other side lacks a part that is no tensor."""
    if kind == "cache" and _without_cache(name, own, other):
        return "one more"
    for parent, item in own.around(name):
        if item not in other.names:
            return _in_containers(parent, own, other)
    return "None" if name in other.empty else "other form"


def _in_containers(parent: str, own: ReturnedTree, other: ReturnedTree) -> Lack:
    """How an item lacks of which both have what is around it."""
    mine, theirs = own.containers[parent], other.containers.get(parent)
    if mine != "list" and (theirs not in ("list", None) or (not parent and not other.empty)):
        return "one more"  # a dict against a tuple or a bare tensor: what is returned as a whole may have another form
    if mine == theirs:
        return "behind the end"
    if parent in other.empty:
        return "None"
    return "no container" if theirs is None or parent else "other container"


def _without_cache(name: str, own: ReturnedTree, other: ReturnedTree) -> bool:
    """Whether the other side returned no cache at all; earlier traces do not say."""
    cache = next((one for one, _ in own.around(name) if own.containers[one] == "cache"), None)
    return cache is None or cache not in other.names or cache in other.empty


def _by_names(names: Collection[str]) -> dict[str, ContainerKind]:
    items: dict[str, list[str]] = {}
    for name in names:
        keys = name.split(".") if name else []
        for place, key in enumerate(keys):
            items.setdefault(".".join(keys[:place]), []).append(key)
    return {name: "list" if all(key.isdigit() for key in keys) else "object" for name, keys in items.items()}
