"""The functional calls of the port, each with right values around it, beside those of the reference that do the same.

A call is known by what it returns: whichever way its axes stand, the reference's call that made the same tensor is its
counterpart, of one function before another. So calls pair though both sides have other ones between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from align.core.verdicts import Finding
from align.errors import CannotRunError, UserCodeError
from align.forward.forward_result import FunctionComparison, FunctionFault
from align.forward.functions.calls_followed import FollowedCalls, same_function
from align.forward.functions.recorded_calls import CallRecord, Likeness, LikeValues, owner, varies
from align.forward.isolated_calls import Isolation
from align.forward.relations.layer_relations import explain_layer
from align.forward.thresholds import (
    MOST_LOOK_LEVELS,
    MOST_LOOK_TOLERANCE,
    MOST_MISSED_FROM_END,
    MOST_NARROWING_RUNS,
    MOST_RECORDED_BYTES,
    MOST_REPLACED_LINES,
    MOST_REPLACED_RESULTS,
    MOST_RESULTS_FROM_END,
)
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.measure.tensor_statistics import find_permuted_layout, relative_rms_distance
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.parameters import Array
    from align.core.protocols import Inputs
    from align.forward.forward_result import FunctionOutcome
    from align.forward.functions.calls_followed import Counterpart
    from align.forward.functions.recorded_calls import RecordedCall, TensorKey
    from align.forward.isolate_layers import Bench, IsolatedLayers
    from align.forward.relations.relation import Relation
    from align.models.open_side import Side
    from align.traces.module_calls import CallKey

    Choose = Callable[[RecordedCall, Sequence[Counterpart]], Sequence[Counterpart]]
    Replaced = dict[CallKey, tuple[RecordedCall, Counterpart]]


@dataclass(frozen=True, slots=True)
class BothRecords:
    """All calls of both sides, those of the port with right values around; `failure` says why there are none."""

    meant: CallRecord
    made: CallRecord
    failure: str = ""

    @property
    def is_whole(self) -> bool:
        """Tell whether all is there."""
        return not self.failure and self.meant.is_whole and self.made.is_whole


def record_both(reference: tuple[Side, Inputs], bench: Bench, alone: IsolatedLayers) -> BothRecords:
    """Run both sides once and record all their calls; `reference` is that side with what it is given.

    Around the calls of the port every layer returns what the reference's does.
    """
    side, inputs = reference
    records = BothRecords(CallRecord(lambda _: True), CallRecord(lambda _: True, Isolation(bench.expected, alone.way)))
    try:
        side.runner.run(side.model, inputs, records.meant)
        bench.side.runner.run(bench.side.model, bench.inputs, records.made)
    except (
        UserCodeError,
        CannotRunError,
    ) as error:  # a port may not stand right values, a framework not show functions
        return replace(records, failure=str(error))
    return records


def compare_functions(records: BothRecords, label: str) -> tuple[tuple[FunctionComparison, ...], tuple[Finding, ...]]:
    """Compare all functional calls of the port, in the order of its run; a finding says what could not be had.

    `label` names the port.
    """
    if records.failure:
        return (), (_not_compared(label, records.failure),)
    if not records.is_whole:
        left_out = sentence("forward_finding.functions_too_large", mebibytes=MOST_RECORDED_BYTES // 2**20)
        return (), (_not_compared(label, left_out),)
    if not all(any(call.is_function for call in one.calls.values()) for one in (records.meant, records.made)):
        return (), (_not_compared(label, sentence("forward_finding.no_functions_seen")),)
    return tuple(_Calls(records.meant, records.made).compared()), ()


def _not_compared(label: str, message: str) -> Finding:
    return Finding("functions-not-compared", "warning", label, message)


class _Calls:
    """The calls of both sides; each of the reference is one counterpart, as long as there are enough."""

    def __init__(self, meant: CallRecord, made: CallRecord) -> None:
        self._meant, self._made = meant, made
        self._inside = FollowedCalls(meant, made, LikeValues(meant, (), MOST_LOOK_TOLERANCE), ())
        self._makers: dict[TensorKey, list[RecordedCall]] = {}
        for call in meant.calls.values():
            for key in call.returned if call.is_function else ():
                self._makers.setdefault(key, []).append(call)
        self._taken: set[int] = set()

    def compared(self) -> Iterator[FunctionComparison]:
        """Yield a row for each functional call that returns one tensor."""
        for call in self._made.calls.values():
            if call.is_function and len(call.returned) == 1:
                yield self._row(call)

    def _row(self, call: RecordedCall) -> FunctionComparison:
        likeness = self._inside.likeness(call.returned[0])
        if likeness == Likeness():
            return _compared(call, None, "constant")
        if likeness is not None:
            return self._same(call, likeness)
        known = [self._inside.likeness(key) for key in call.given]
        if None in known:
            return _compared(call, None, "other input")
        other = next(filter(partial(self._does_the_same, call), self._inside.counterparts(call)), None)
        if other is None:
            return _compared(call, None, "no counterpart")
        return _compared(call, other.call, "other result", error=self._distance(other.call.returned[0], call))

    def _does_the_same(self, call: RecordedCall, other: Counterpart) -> bool:
        """Tell whether both are calls of one function that are given one tensor, or constants alone."""
        mine, theirs = ((self._made, call), (self._meant, other.call))
        constant = not any(varies(record.values[key]) for record, one in (mine, theirs) for key in one.given)
        return same_function(call.name, other.call.name) and (other.shares or constant)

    def _same(self, call: RecordedCall, likeness: Likeness) -> FunctionComparison:
        outcome: FunctionOutcome = "same" if likeness.factor == 1.0 else "scaled"
        made = [(key, one) for key in sorted(likeness.keys) for one in self._makers.get(key, ())]
        free = [pair for pair in made if id(pair[1]) not in self._taken] or made
        free.sort(key=lambda pair: not same_function(call.name, pair[1].name))
        if free and outcome == "same":
            self._taken.add(id(free[0][1]))
        key = free[0][0] if free else min(likeness.keys)  # a layer of the reference returns it, or it is given
        other = free[0][1] if free else self._meant.makers.get(key)
        return _compared(call, other, outcome, likeness.factor, self._distance(key, call, likeness.factor))

    def _distance(self, key: TensorKey, call: RecordedCall, factor: float = 1.0) -> float | None:
        """The norm of the differences by that of the reference; None where nothing shows how the axes stand."""
        meant, own = self._meant.values[key], self._inside.result(call)
        own = own if factor == 1.0 else own.astype(np.float64) / factor
        view = find_permuted_layout(meant, own)
        return None if view is None else _relative(meant, view.to_reference(own))


def _relative(meant: Array, own: Array) -> float:
    """Over what is finite on both sides: masks may hold infinities."""
    both = meant.astype(np.float64), own.astype(np.float64)
    finite = np.isfinite(both[0]) & np.isfinite(both[1])
    return relative_rms_distance(both[0][finite], both[1][finite])


def _compared(
    call: RecordedCall,
    other: RecordedCall | None,
    outcome: FunctionOutcome,
    factor: float = 1.0,
    error: float | None = None,
) -> FunctionComparison:
    return FunctionComparison(
        candidate=owner(call.path),
        function=call.name,
        line=call.place,
        call=call.call,
        outcome=outcome,
        factor=factor,
        reference="" if other is None else owner(other.path),
        reference_function="" if other is None else other.name,
        reference_line="" if other is None else other.place,
        relative_l2=error,
    )


# Which calls of wrong code, returning what the reference makes of the same, mend it, and what they do otherwise.

FEW_VALUES = 3  # no limit: as a table of zeros and ones has
HEADS_APART = 4  # no limit: axes of what attention works on, with heads apart: each of them is as a sample


def _all(_call: RecordedCall, others: Sequence[Counterpart]) -> Sequence[Counterpart]:
    return others


def mending_calls(
    inside: FollowedCalls, mends: Callable[[Replaced], bool], *, levels: int = MOST_LOOK_LEVELS, choose: Choose = _all
) -> Replaced:
    """Calls, with those whose results make all right in the place of theirs, as `mends` tries; none if none do.

    First those of one line that are given right values only, then all of these, then the calls behind them, so many
    levels far; `choose` puts the counterparts of a call in order.
    """
    calls = inside.firsts
    for _ in range(levels):
        lines = by_line(calls)
        choices = [(group, rank) for group in lines for rank in range(MOST_REPLACED_RESULTS)]
        whole = [inside.beside(group) for group in lines]  # a function of the user's may be called more than once
        choices[1:1] = [(all_, 0) for all_, group in zip(whole, lines, strict=True) if len(all_) > len(group)]
        for group, rank in choices[:MOST_REPLACED_LINES]:
            if (replaced := _replaced(inside, group, rank, choose)) and mends(replaced):
                return replaced
        sharing = [call for call in calls if any(one.shares for one in inside.counterparts(call))] or calls
        if len(lines) > 1 and (replaced := _replaced(inside, sharing, 0, choose)) and mends(replaced):
            return _fewest(replaced, mends)
        calls = inside.after(calls)
    return {}


def by_line(calls: Sequence[RecordedCall]) -> list[list[RecordedCall]]:
    """Calls of one function on one line together."""
    lines: dict[tuple[str, str], list[RecordedCall]] = {}
    for call in calls:
        lines.setdefault((call.place, call.name), []).append(call)
    return list(lines.values())


def _replaced(inside: FollowedCalls, calls: Sequence[RecordedCall], rank: int, choose: Choose) -> Replaced:
    """Each call with its counterpart: of the first the one of this rank, of the others the one made at the same place.

    None if one lacks it. Code that is called several times makes a call each time, and so does the reference's.
    """
    replaced: Replaced = {}
    taken: set[int] = set()
    lead: tuple[str, str] | None = None
    turn = rank
    for call in calls:
        others = [
            counterpart for counterpart in choose(call, inside.counterparts(call)) if id(counterpart.call) not in taken
        ]
        there = [counterpart for counterpart in others if (counterpart.call.place, counterpart.call.name) == lead]
        chosen = (there[min(turn, len(there) - 1)] if there else None) or (others[rank] if len(others) > rank else None)
        if chosen is None:
            return {}
        if lead is None:
            lead = chosen.call.place, chosen.call.name
            turn = [
                counterpart for counterpart in others if (counterpart.call.place, counterpart.call.name) == lead
            ].index(chosen)
        taken.add(id(chosen.call))
        replaced[call.path, call.call] = call, chosen
    return replaced


def last_mending_call(inside: FollowedCalls, mends: Callable[[Replaced], bool]) -> Replaced:
    """The first call on the way, from the end, whose right result makes all right that was made of it; none if none.

    One side may make in one call what the other makes in many: between them no result of the one is the other's. What
    is at fault is then that call or one that makes its inputs.
    """
    mending: Replaced = {}
    missed = 0
    for call in inside.passed_by_all():
        others = inside.counterparts(call)[:MOST_RESULTS_FROM_END]
        tried: Iterator[Replaced] = ({(call.path, call.call): (call, other)} for other in others)
        mended = next(filter(mends, tried), None)
        mending = mended or mending
        missed = 0 if mended else missed + bool(others)
        if missed >= MOST_MISSED_FROM_END:
            break
    return mending


def mending_calls_from_end(
    inside: FollowedCalls, mends: Callable[[Replaced], bool], *, levels: int, choose: Choose = _all
) -> Replaced:
    """The same from the end: what makes the inputs of the last call, then what makes the inputs of that."""
    calls = inside.followed[-1:]
    for _ in range(levels):
        given = {key for call in calls for key in call.given}
        calls = [call for call in inside.followed if given.intersection(call.returned)]
        for group in by_line(calls):
            for rank in range(MOST_REPLACED_RESULTS):
                if (found := _replaced(inside, group, rank, choose)) and mends(found):
                    return found
    return {}


def _fewest(replaced: Replaced, mends: Callable[[Replaced], bool]) -> Replaced:
    """Leave out the lines that need not be replaced."""
    for group in by_line([call for call, _ in replaced.values()]):
        gone = {(call.path, call.call) for call in group}
        rest = {key: one for key, one in replaced.items() if key not in gone}
        if rest and mends(rest):
            replaced = rest
    return replaced


def results_instead(
    inside: FollowedCalls, replaced: Replaced, *, turned: bool = False
) -> Mapping[CallKey, tuple[Array, ...]]:
    """What these calls are to return; `turned` in another order of axes, where their own has the right shape too."""
    return {key: inside.meant_results(call, other, turned=turned) for key, (call, other) in replaced.items()}


def function_fault(inside: FollowedCalls, replaced: Replaced) -> FunctionFault:
    """Name the first call that was replaced, and what it does otherwise; the first of all where that lies behind."""
    call, other = next(iter(replaced.values()))
    if not inside.is_first(call):
        return _result_or_before(inside, replaced)
    difference, meant = inside.difference(call, other), other.call
    if difference == "result" and inside.is_given_turned(call, meant):
        return _result_or_before(inside, replaced)
    if inside.goes_on_with(call, meant):
        difference = "missing step"
    elif difference == "missing step":
        lacking = inside.first_lacking(meant)
        difference, meant = ("other input", meant) if lacking is None else (difference, lacking)
    calls = [one for one, _ in replaced.values()]
    lines = tuple(inside.places([*calls, *(inside.passing_before(calls) if difference == "missing step" else ())]))
    factor = inside.factor(call, other) if difference == "scaled input" else 1.0
    return FunctionFault(call.name, lines, meant.name, meant.place, difference, factor, "confirmed")


def earliest(inside: FollowedCalls, replaced: Replaced, mends: Callable[[Replaced], bool]) -> Replaced:
    """Calls before those that mend all, which mend all too: of each line all calls, whose results are the reference's.

    Those are asked that are made of the same as the results in their place.
    """
    left = MOST_NARROWING_RUNS
    open_groups = by_line(inside.before([call for call, _ in replaced.values()]))
    while open_groups and left > 0:
        group = open_groups.pop()
        others = _replaced(inside, group, 0, _made_of_same(inside))
        left -= bool(others)
        if others and mends(others):
            replaced = others
            open_groups = by_line(inside.before([call for call, _ in replaced.values()]))
    return replaced


def _made_of_same(inside: FollowedCalls) -> Choose:
    def chosen(call: RecordedCall, _others: Sequence[Counterpart]) -> list[Counterpart]:
        last = inside.last_made_of_same(call)  # what comes before it is on its way there
        return [] if last is None else [last]

    return chosen


def _result_or_before(inside: FollowedCalls, found: Replaced) -> FunctionFault:
    """Name the call whose right result mends all, and the lines that make what it is given."""
    call, other = next(iter(found.values()))
    calls = [one for one, _ in found.values()]
    before = [*reversed(inside.before(calls))] if not inside.is_first(call) else []
    ways = inside.turned_before, inside.laid_out_before, inside.scaled_before
    beside = [one for way in ways for one in way([*calls, *before])]
    lines = tuple(inside.places([*calls, *before, *beside]))
    return FunctionFault(call.name, lines, other.call.name, other.call.place, "result or before", sureness="confirmed")


def relation_of_results(inside: FollowedCalls, call: RecordedCall, other: Counterpart) -> Relation | None:
    """What relates a call's result to the right one, or a table that it is given to the one that the other is given.

    What has been made before may be another thing on both sides, and right.
    """
    shape = inside.meant_shape(other)
    made = inside.result(call).reshape(shape)
    if np.unique(made).size <= FEW_VALUES:  # which become any others under many relations
        return None
    found = _relation(inside.made_of(call, shape), inside.meant_result(other, shape), made)
    if found is None and inside.is_first(call):
        found = next((one for pair in inside.unlike_given(call, other) if (one := _relation({}, *pair))), None)
    return found


def _relation(known: Mapping[str, Array], right: Array, wrong: Array) -> Relation | None:
    """What explains why a tensor is not the right one, by those that it is made of."""
    if right.dtype.kind != "f" or wrong.dtype.kind != "f":
        return None
    limit = limit_for(measure(right, right), (right.dtype.name, wrong.dtype.name), None)
    explanation = next(
        (relation for relation in explain_layer("", known, {}, right, wrong, limit) if relation.explains), None
    )
    if explanation is not None or right.ndim != HEADS_APART:
        return explanation
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in known.items() if value.ndim == HEADS_APART}
    return _relation(flat, *(value.reshape(-1, *value.shape[2:]) for value in (right, wrong)))
