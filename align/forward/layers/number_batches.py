"""In which batch of a run a layer was called, where the models ran on several."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING

from align.traces.module_calls import outermost_calls
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.traces import Trace
    from align.forward.culprit_result import Culprit
    from align.forward.forward_result import LayerComparison


def in_batches(layers: Sequence[LayerComparison], reference: Trace) -> tuple[LayerComparison, ...]:
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
    told = []
    for one in culprits:
        order = orders.get((one.candidate, one.call))
        if order is None:
            told.append(one)
            continue
        batch = sentence("forward_place.batch", batch=batch_number(ends, order), batches=len(ends))
        told.append(replace(one, facts={**one.facts, "batch": batch}))
    return tuple(told)


def batch_ends(trace: Trace) -> list[int]:
    """The places in a run at which its batches end."""
    return [call[-1].order for call in outermost_calls(trace.captures)]


def batch_number(ends: Sequence[int], order: int) -> int:
    """The number, from 1 on, of the batch in which a capture of this order was made."""
    return min(bisect_left(ends, order), len(ends) - 1) + 1
