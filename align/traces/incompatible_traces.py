"""Why two traces must not be compared: what was run was not the same, or a run did not come to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.words.message_words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.trace_metadata import TraceHead

# What both runs must have been given alike, and its name for the reader.
SAME = {"mode": "mode", "step": "step", "seed": "seed", "direction": "direction"}


def trace_faults(reference: TraceHead, candidate: TraceHead) -> Iterator[str]:
    """Say, one line each, in what two runs are unlike although a comparison needs it to be the same."""
    for field, name in SAME.items():
        mine, theirs = getattr(reference, field), getattr(candidate, field)
        if mine != theirs:
            yield f"different {name}: {mine} and {theirs}"
    yield from _input_faults(reference.inputs, candidate.inputs)
    parts = {(one.kept.elements, one.kept.sampled) for one in (reference, candidate) if one.kept.elements is not None}
    if len(parts) > 1:
        yield f"different elements are kept: {_part(reference)} and {_part(candidate)}"


def _input_faults(mine: dict[str, dict[str, object]], theirs: dict[str, dict[str, object]]) -> Iterator[str]:
    """Inputs of the same names are held against each other by name, others by their place: ports rename them."""
    if len(mine) != len(theirs):
        yield f"different inputs: {counted(len(mine), 'input')} and {len(theirs)}"
        return
    others = [theirs[name] for name in mine] if mine.keys() == theirs.keys() else list(theirs.values())
    for name, other in zip(mine, others, strict=True):
        if mine[name] != other:
            left, right = (f"{one['dtype']}{one['shape']}" for one in (mine[name], other))
            yield (
                f"different inputs: {name} is {left} and {right}"
                if left != right
                else (f"different inputs: {name} has other values (SHA-256 {_short(mine[name])} and {_short(other)})")
            )


def _short(described: dict[str, object]) -> str:
    return str(described["sha256"])[:12]


def _part(head: TraceHead) -> str:
    if head.kept.elements is None:
        return "all"
    return f"{'a sample of' if head.kept.sampled else 'the first'} {head.kept.elements}"
