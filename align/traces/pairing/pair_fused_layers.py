"""A layer of the port may do at once what are two layers in the reference, as a dense layer with its activation.

Such a pair has the same parameters, but the port's layer ends where the reference's next one does. The port tells, if
it returns what a cell inside did that is that next layer; else the values do: the port's output is that of the next
layer, not of the layer itself.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.measure.sampled_values import relative_rms_distance, sample_values
from align.traces.module_calls import CallPairs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.traces import Capture, Trace
    from align.traces.module_calls import Call, CallPair

_NEAR = 0.05  # relative root mean square; faults of earlier layers are in it
_CLEARLY = 10.0


def pair_fused_layers(pairs: CallPairs, reference: Trace, candidate: Trace) -> CallPairs:
    """Let a pair end with the reference's next call where the port's layer surely does.

    That call has no counterpart, or one inside the port's layer, which keeps it.
    """
    counterparts = {(pair.reference.module, pair.reference.call): pair.candidate for pair in pairs.pairs}
    alone = {(one.module, one.call) for one in pairs.unpaired if one.side == "reference"}
    after = {one.order: one for one in reference.captures if not one.output}
    ends: dict[tuple[str, int], Capture] = {}
    for pair in pairs.pairs:
        end = after.get(pair.reference.order + 1) if _has_one_output(pair) else None
        if end is None:
            continue
        within = counterparts.get((end.module, end.call))
        if within is not None and not within.module.startswith(f"{pair.candidate.module}."):
            continue
        told = within is not None and _returns(pair.candidate, within, candidate)
        known = within is not None or (end.module, end.call) in alone
        if told or (known and _ends_there(pair, end, reference, candidate)):
            ends[pair.reference.module, pair.reference.call] = end
    return _apart_from_activations(_with_ends(pairs, ends), reference, candidate)


def _apart_from_activations(pairs: CallPairs, reference: Trace, candidate: Trace) -> CallPairs:
    """Take a layer apart from the activation that it calls at its end, where its counterpart does not.

    The reference's layer then ends with what it gives its activation; where the port's layer does so, nothing of the
    reference is known to end there, and the pair is not certain.
    """
    free = {(one.module, one.call) for one in pairs.unpaired if one.side == "candidate"}
    by_order = [{one.order: one for one in trace.captures} for trace in (reference, candidate)]
    made = []
    for pair in pairs.pairs:
        sure = pair.certain and _has_one_output(pair)
        mine = _last_inside(pair.reference, reference, by_order[0]) if sure else None
        theirs = _last_inside(pair.candidate, candidate, by_order[1]) if sure else None
        if mine and not theirs:
            given = [one for one in reference.inputs if (one.module, one.call) == (mine.module, mine.call)]
            if len(given) == 1 and given[0].shape == mine.shape:
                pair = replace(pair, reference=replace(pair.reference, outputs=(given[0],)))  # noqa: PLW2901
        elif theirs and not mine and (theirs.module, theirs.call) in free:
            pair = replace(pair, certain=False)  # noqa: PLW2901
        made.append(pair)
    return CallPairs(tuple(made), pairs.unpaired)


def _last_inside(call: Call, trace: Trace, by_order: Mapping[int, Capture]) -> Capture | None:
    """The output of the last call inside, if the call returns just that."""
    last = call.outputs[0]
    inner = by_order.get(last.order - 1)
    inside = inner is not None and inner.module.startswith(f"{call.module}.")
    return inner if inner is not None and inside and _is_same(inner, last, trace) else None


def _is_same(inner: Capture, last: Capture, trace: Trace) -> bool:
    one, two = sample_values(trace.value(inner)), sample_values(trace.value(last))
    return prod(inner.shape) == prod(last.shape) and np.array_equal(one, two, equal_nan=True)


def _with_ends(pairs: CallPairs, ends: Mapping[tuple[str, int], Capture]) -> CallPairs:
    taken = {(end.module, end.call) for end in ends.values()}
    made = []
    for pair in pairs.pairs:
        end = ends.get((pair.reference.module, pair.reference.call))
        made.append(pair if end is None else replace(pair, reference=replace(pair.reference, outputs=(end,))))
    left = [one for one in pairs.unpaired if one.side == "candidate" or (one.module, one.call) not in taken]
    return CallPairs(tuple(made), tuple(left))


def _has_one_output(pair: CallPair) -> bool:
    return bool(pair.reference.module) and len(pair.reference.outputs) == len(pair.candidate.outputs) == 1


def _returns(call: Call, within: Call, trace: Trace) -> bool:
    """Tell whether a call returned what the last call inside of it did."""
    last, inner = call.outputs[0], within.outputs[0]
    return inner.order + 1 == last.order and _is_same(inner, last, trace)


def _ends_there(pair: CallPair, end: Capture, reference: Trace, candidate: Trace) -> bool:
    own, theirs = pair.reference.outputs[0], pair.candidate.outputs[0]
    if end.shape != own.shape or own.shape[-1:] != theirs.shape[-1:]:
        return False
    given = sample_values(candidate.value(theirs))
    if not given.size:
        return False
    there = relative_rms_distance(sample_values(reference.value(end)), given)
    return there < _NEAR and there * _CLEARLY < relative_rms_distance(sample_values(reference.value(own)), given)
