"""The layers of two traces paired: the name map that is given or made, the order of the runs where it is open.

A layer of the port may do at once what are two layers in the reference, as a dense layer with its activation. Such a
pair has the same parameters, but the port's layer ends where the reference's next one does. The port shows it, if
it returns what a cell inside did that is that next layer; else the values do.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import NameMap
from align.core.verdicts import Finding
from align.errors import NothingInCommonError
from align.measure.tensor_statistics import relative_rms_distance, sample_values
from align.names.map_file import read_map
from align.names.map_parameters import match_sides
from align.names.match_by_order import CallOrder, in_execution_order, match_by_order
from align.names.user_rules import NameRules, check_shapes
from align.traces.merged_layers import pair_merged_layers
from align.traces.module_calls import CalledModules, CallPairs
from align.traces.pair_calls import pair_calls
from align.traces.returned_parts import comparable_captures, left_out_parts, parts_of
from align.traces.thresholds import CLEARLY_NEARER, NEAR_DISTANCE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.parameters import ParameterSet
    from align.core.traces import Capture, Trace
    from align.traces.module_calls import Call, CallPair

Traces = tuple["Trace", "Trace"]
Parameters = tuple["ParameterSet", "ParameterSet"]


def choose_map(given: NameMap | Path | str | None, sides: Parameters) -> NameMap:
    """Return the map that is given, read from its file if need be, or match the names of the two sides."""
    if isinstance(given, NameMap):
        return given
    source, target = sides
    if given is None:
        return match_sides(source, target, NameRules())
    name_map = read_map(Path(given), source.names, target.names)
    check_shapes(name_map, source, target)
    return name_map


def map_in_order(traces: Traces, sides: Parameters, name_map: NameMap) -> NameMap:
    """Match what a map leaves open, with the order of the two runs as evidence."""
    orders = [CallOrder({one.module: one.order for one in reversed(trace.captures)}) for trace in traces]
    source, target = (in_execution_order(side, order) for side, order in zip(sides, orders, strict=True))
    return match_by_order(name_map, source, target, NameRules())


def pair_traces(traces: Traces, sides: Parameters, name_map: NameMap) -> CallPairs:
    """Pair the calls of two runs, by their values too if all were kept; raises NothingInCommonError if none pairs."""
    captures = traces[0].captures, traces[1].captures
    mine, theirs = comparable_captures(captures, [parts_of(trace) for trace in traces])
    left = CalledModules(mine, sides[0], name_map, "source")
    right = CalledModules(theirs, sides[1], name_map, "target")
    calls = pair_merged_layers(pair_calls(left, right), sides, (left, right))
    if not calls.pairs:
        raise NothingInCommonError(sides[0].label, sides[1].label, "called layer")
    whole = all(trace.holds(one) for trace in traces for one in trace.captures)
    return pair_fused_layers(calls, *traces) if whole else calls


def left_out(traces: Traces, labels: Sequence[str]) -> Iterator[Finding]:
    """Warn of what the models returned and was not compared."""
    captures = traces[0].captures, traces[1].captures
    yield from left_out_parts(captures, [parts_of(trace) for trace in traces], labels)


def open_names(name_map: NameMap) -> Iterator[Finding]:
    """Warn of parameters whose values were not compared, because nothing says which they are on the other side."""
    sides = {
        side: [one.name for one in name_map.unmatched if one.side == side]
        + [name for group in name_map.ambiguous for name in getattr(group, f"{side}s")]
        for side in ("source", "target")
    }
    for side, label in (("source", name_map.source), ("target", name_map.target)):
        if names := sides[side]:
            message = sentence("trace_finding.names_open", count=len(names), names=names)
            yield Finding("names-open", "warning", label, message)


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
        shown = within is not None and _returns(pair.candidate, within, candidate)
        known = within is not None or (end.module, end.call) in alone
        if shown or (known and _ends_there(pair, end, reference, candidate)):
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
    return there < NEAR_DISTANCE and there * CLEARLY_NEARER < relative_rms_distance(
        sample_values(reference.value(own)), given
    )
