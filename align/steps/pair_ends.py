"""A layer of the port may do at once what are two layers in the reference, as a dense layer with its activation.

Such a pair has the same parameters, but the port's layer ends where the reference's next one does. The port tells, if
it returns what a cell inside did that is that next layer; else the values do: the port's output is that of the next
layer, not of the layer itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.steps.pair_calls import CallPairs
from align.steps.samples import distance, sampled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.traces import Capture, Trace
    from align.steps.calls import Call, CallPair

_NEAR = 0.05  # relative root mean square; faults of earlier layers are in it
_CLEARLY = 10.0


def pair_true_ends(pairs: CallPairs, reference: Trace, candidate: Trace) -> CallPairs:
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
    return _with_ends(pairs, ends)


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
    same = inner.order + 1 == last.order and inner.shape == last.shape
    return same and np.array_equal(sampled(trace.value(inner)), sampled(trace.value(last)), equal_nan=True)


def _ends_there(pair: CallPair, end: Capture, reference: Trace, candidate: Trace) -> bool:
    own, theirs = pair.reference.outputs[0], pair.candidate.outputs[0]
    if end.shape != own.shape or own.shape[-1:] != theirs.shape[-1:]:
        return False
    given = sampled(candidate.value(theirs))
    if not given.size:
        return False
    there = distance(sampled(reference.value(end)), given)
    return there < _NEAR and there * _CLEARLY < distance(sampled(reference.value(own)), given)
