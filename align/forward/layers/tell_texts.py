"""The texts among what models return, told in the notes of their rows: their bytes alone tell a reader nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.message_words import printable
from align.traces.module_calls import outermost_calls
from align.traces.returned_parts import parts_of
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from align.core.traces import Trace
    from align.forward.forward_result import LayerComparison

LONGEST = 80


def with_texts(layers: Iterable[LayerComparison], traces: tuple[Trace, Trace]) -> Iterator[LayerComparison]:
    """Rows with the text of both sides in their notes, where both returned one."""
    texts = [_texts(trace) for trace in traces]
    for layer in layers:
        place = layer.call, layer.output
        mine, theirs = (own.get(place) for own in texts)
        if layer.reference or mine is None or theirs is None:
            yield layer
        else:
            unlike = sentence("forward_note.texts_differ", reference=mine, candidate=theirs)
            yield replace(layer, note=mine if mine == theirs else unlike)


def _texts(trace: Trace) -> dict[tuple[int, str], str]:
    """The texts that a model returned, by call and name."""
    parts = parts_of(trace)
    found = {}
    for one in (one for call in outermost_calls(trace.captures) for one in call):
        if one.call in parts and parts[one.call].kinds.get(one.output) == "text" and trace.holds(one):
            text = printable(trace.value(one).tobytes().decode("utf-8", "replace"))
            found[one.call, one.output] = f'"{text[:LONGEST]}{"..." if len(text) > LONGEST else ""}"'
    return found
