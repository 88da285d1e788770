"""What two models returned beside tensors: which parts are compared, and what is left out of the comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.findings import Finding
from align.core.message_words import counted
from align.traces.module_calls import outermost_calls
from align.traces.stored.manifest import TraceManifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.trace_metadata import PartKind, ReturnedParts
    from align.core.traces import Capture, Trace

Captures = tuple["Capture", ...]
Parts = dict[int, "ReturnedParts"]

MOST_LISTED = 20
# What an output may lack on one side: beside tensors and arrays, what is not a result need not be ported.
_OPTIONAL: dict[PartKind, str] = {
    "number": "a number",
    "text": "a text",
    "attribute": "an attribute",
    "cache": "of a cache",
}


def parts_of(trace: Trace) -> Parts:
    """What each call of the model returned beside tensors, by its number; nothing for traces of other tools."""
    manifest = getattr(trace, "manifest", None)
    return {one.call: one for one in manifest.returned} if isinstance(manifest, TraceManifest) else {}


def comparable_captures(captures: tuple[Captures, Captures], parts: Sequence[Parts]) -> list[Captures]:
    """The captures of two runs without those optional parts of the models' outputs that the other side lacks.

    Where both return the same number of parts, all stay: those of unequal names pair by their places.
    """
    sides = [outermost_calls(own) for own in captures]
    lacking: list[set[str]] = [set(), set()]
    for pair in zip(*sides, strict=False):
        if len(pair[0]) != len(pair[1]):
            for side in (0, 1):
                others = {one.output for one in pair[1 - side]}
                optional = [one for one in pair[side] if _optional(one, parts[side])]
                lacking[side] |= {one.key for one in optional if one.output not in others}
    return [tuple(one for one in own if one.key not in out) for own, out in zip(captures, lacking, strict=True)]


def left_out_parts(
    captures: tuple[Captures, Captures], parts: Sequence[Parts], labels: Sequence[str]
) -> Iterator[Finding]:
    """Warn, for each side, of what it returned and was not compared; None only where the other side has something."""
    kept = comparable_captures(captures, parts)
    names = [{one.output for call in outermost_calls(own) for one in call} for own in captures]
    for side, label in enumerate(labels):
        told: dict[str, str] = {}
        for one in parts[side].values():
            told |= {name: what for name, what in one.left_out.items() if what != "None" or _has(names[1 - side], name)}
        stay = {one.key for one in kept[side]}
        lacking = (one for one in captures[side] if one.key not in stay)
        told |= {one.output: f"{_optional(one, parts[side])}, which the other side lacks" for one in lacking}
        if told:
            listed = [f"outputs{'.' if name else ''}{name} ({what})" for name, what in told.items()]
            rest = f", and {counted(len(listed) - MOST_LISTED, 'more part')}" if len(listed) > MOST_LISTED else ""
            message = f"left out of the comparison: {', '.join(listed[:MOST_LISTED])}{rest}"
            yield Finding("outputs-left-out", "warning", label, message, {"parts": len(listed)})


def _has(names: set[str], name: str) -> bool:
    return any(one == name or one.startswith(f"{name}.") for one in names)


def _optional(capture: Capture, parts: Parts) -> str:
    """What an optional part is, "" for one that must be there on both sides."""
    kind = parts[capture.call].kinds.get(capture.output) if capture.call in parts else None
    return _OPTIONAL.get(kind, "") if kind else ""
