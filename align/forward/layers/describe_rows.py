"""What is said of rows besides their figures: the batch, by how much a layer enlarges an error, and texts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.dtypes import rounded_as
from align.forward.layers.compare_traces import excuse_uncertain
from align.forward.thresholds import LONGEST_SHOWN_TEXT
from align.measure.measure_arrays import measure
from align.traces.module_calls import batch_ends, batch_number, inputs_of_calls, outermost_calls, pair_inputs
from align.traces.returned_parts import parts_of
from align.words.catalogue import sentence
from align.words.message_words import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.traces import Capture, Trace
    from align.forward.forward_result import Culprit, LayerComparison

Place = tuple[int, int]  # where two arrays lie in memory


def described_rows(layers: Sequence[LayerComparison], traces: tuple[Trace, Trace]) -> tuple[LayerComparison, ...]:
    """Rows in the order of the reference's run: doubtful ones excused, with amplification and number of the batch."""
    return _in_batches(_with_amplification(excuse_uncertain(layers), *traces), traces[0])


def _in_batches(layers: Sequence[LayerComparison], reference: Trace) -> tuple[LayerComparison, ...]:
    """Rows with the number of their batch, counted from 1, where the reference ran on several."""
    ends = batch_ends(reference)
    if len(ends) < 2:
        return tuple(layers)
    return tuple(replace(layer, batch=batch_number(ends, layer.order), batches=len(ends)) for layer in layers)


def culprits_in_batches(culprits: Sequence[Culprit], candidate: Trace) -> tuple[Culprit, ...]:
    """Culprits with the batch of the call that shows them among their facts, where the candidate ran on several."""
    ends = batch_ends(candidate)
    if len(ends) < 2:
        return tuple(culprits)
    orders = {(one.module, one.call): one.order for one in candidate.captures}
    numbered = []
    for one in culprits:
        order = orders.get((one.candidate, one.call))
        if order is None:
            numbered.append(one)
            continue
        batch = sentence("forward_place.batch", batch=batch_number(ends, order), batches=len(ends))
        numbered.append(replace(one, facts={**one.facts, "batch": batch}))
    return tuple(numbered)


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
            found[one.call, one.output] = (
                f'"{text[:LONGEST_SHOWN_TEXT]}{"..." if len(text) > LONGEST_SHOWN_TEXT else ""}"'
            )
    return found


def _with_amplification(
    layers: Sequence[LayerComparison], reference: Trace, candidate: Trace
) -> tuple[LayerComparison, ...]:
    """Relative error (L2) of each output over the largest of the inputs of its call, both accumulated.

    None where the inputs are equal, were not kept, or have another form.
    """
    known: dict[Place, float | None] = {}
    given = inputs_of_calls(reference), inputs_of_calls(candidate)
    made = []
    for layer in layers:
        mine, theirs = given[0].get((layer.reference, layer.call), []), given[1].get((layer.candidate, layer.call), [])
        error = layer.measurement.relative_l2 if layer.measurement else None
        before = max(_errors(mine, theirs, (reference, candidate), known), default=0.0) if error else 0.0
        made.append(replace(layer, amplification=error / before if error and before else None))
    return tuple(made)


def _errors(
    mine: Sequence[Capture], theirs: Sequence[Capture], traces: tuple[Trace, Trace], known: dict[Place, float | None]
) -> Iterator[float]:
    """Relative errors of the inputs; an array that is the input of several calls is measured once."""
    held = {one.output: traces[1].value(one) for one in theirs if rounded_as(one.dtype)}
    for name, capture in pair_inputs(mine, held).items():
        if capture.shape != held[name].shape:
            continue
        value = traces[0].value(capture)
        place = _address(value), _address(held[name])
        if place not in known:
            known[place] = measure(value, held[name]).relative_l2
        if (error := known[place]) is not None:
            yield error


def _address(value: Array) -> int:
    return int(value.__array_interface__["data"][0])
