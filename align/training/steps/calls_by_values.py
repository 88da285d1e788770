"""Like layers that a port calls in another order: which call is which shows in what they are given.

Calls of layers without parameters, and several calls of one layer, are paired by their order. A port may run two
branches the other way round, which is no fault.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from align.measure.sampled_values import relative_rms_distance, sample_values
from align.traces.pair_inputs import inputs_of_calls
from align.training.thresholds import SAME_INPUTS_DISTANCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.parameters import ParameterSet
    from align.traces.module_calls import Call, CallPair, CallPairs
    from align.traces.trace_folder import TraceFolder


def paired_by_values(
    calls: CallPairs, traces: tuple[TraceFolder, TraceFolder], parameters: tuple[ParameterSet, ParameterSet]
) -> CallPairs:
    """Exchange the partners of like calls in one module, where their inputs are each other's and not their own."""
    owners = [{one.module for one in side.parameters} for side in parameters]
    groups: dict[object, list[int]] = defaultdict(list)
    for number, pair in enumerate(calls.pairs):
        groups[_likeness(pair, owners)].append(number)
    inputs = _FirstInputs(traces)
    pairs = [*calls.pairs]
    for members in groups.values():
        if len(members) > 1:
            for number, partner in _partners([pairs[one] for one in members], inputs):
                pairs[members[number]] = replace(calls.pairs[members[number]], reference=partner)
    return replace(calls, pairs=tuple(pairs))


def _likeness(pair: CallPair, owners: Sequence[set[str]]) -> object:
    """What pairs have in common that may be exchanged: the layer if it has parameters, else its class and its place."""
    mine, theirs = pair.reference, pair.candidate
    if mine.module in owners[0] or theirs.module in owners[1]:
        return mine.module, theirs.module
    places = mine.module.rpartition(".")[0], theirs.module.rpartition(".")[0]
    return *places, mine.class_name, theirs.class_name, mine.shapes, theirs.shapes


def _partners(pairs: Sequence[CallPair], inputs: _FirstInputs) -> list[tuple[int, Call]]:
    """New partners by number, of pairs whose inputs are not the same; none unless the others' are."""
    apart = [number for number, one in enumerate(pairs) if not inputs.near(one.reference, one.candidate)]
    left = [pairs[number].reference for number in apart]
    found: dict[int, Call] = {}
    for number in apart:
        near = next((one for one in left if inputs.near(one, pairs[number].candidate)), None)
        if near is not None:
            found[number] = near
            left.remove(near)
    rest = [number for number in apart if number not in found]
    return [*found.items(), *zip(rest, left, strict=True)] if found else []


class _FirstInputs:
    """What calls of both sides are given first, a sample of it, read when it is asked for."""

    def __init__(self, traces: tuple[TraceFolder, TraceFolder]) -> None:
        self._traces = traces
        self._inputs = [inputs_of_calls(trace) for trace in traces]

    def near(self, mine: Call, theirs: Call) -> bool:
        """Tell whether both are given the same; so it is where one is given nothing."""
        known = [own.get((one.module, one.call)) for own, one in zip(self._inputs, (mine, theirs), strict=True)]
        if known[0] is None or known[1] is None:
            return True
        values = [sample_values(trace.value(one[0])) for trace, one in zip(self._traces, known, strict=True) if one]
        return relative_rms_distance(values[0], values[1]) <= SAME_INPUTS_DISTANCE
