"""By how much each layer enlarges the error that reaches it, when both models run on their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.dtypes import rounded_as
from align.measure.measure_arrays import measure
from align.traces.pair_inputs import inputs_of_calls, pair_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.traces import Capture, Trace
    from align.forward.forward_result import LayerComparison

Place = tuple[int, int]  # where two arrays lie in memory


def with_amplification(
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
