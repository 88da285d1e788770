"""Which calls of wrong code, returning what the reference makes of the same, mend it, and what they do otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.forward.forward_result import FunctionFault
from align.forward.relations.layer_relations import explain_layer
from align.forward.thresholds import (
    MOST_LOOK_LEVELS,
    MOST_MISSED_FROM_END,
    MOST_NARROWING_RUNS,
    MOST_REPLACED_LINES,
    MOST_REPLACED_RESULTS,
    MOST_RESULTS_FROM_END,
)
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.forward.functions.calls_followed import Counterpart, FollowedCalls
    from align.forward.functions.recorded_calls import RecordedCall
    from align.forward.relations.relation import Relation
    from align.traces.module_calls import CallKey

    Choose = Callable[[RecordedCall, Sequence[Counterpart]], Sequence[Counterpart]]
    Replaced = dict[CallKey, tuple[RecordedCall, Counterpart]]


FEW_VALUES = 3  # no limit: as a table of zeros and ones has
HEADS_APART = 4  # no limit: axes of what attention works on, with heads apart: each of them is as a sample


def _all(_call: RecordedCall, others: Sequence[Counterpart]) -> Sequence[Counterpart]:
    return others


def mending_calls(
    inside: FollowedCalls,
    mends: Callable[[Replaced], bool],
    *,
    levels: int = MOST_LOOK_LEVELS,
    choose: Choose = _all,
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
            if (found := _replaced(inside, group, rank, choose)) and mends(found):
                return found
        sharing = [call for call in calls if any(one.shares for one in inside.counterparts(call))] or calls
        if len(lines) > 1 and (found := _replaced(inside, sharing, 0, choose)) and mends(found):
            return _fewest(found, mends)
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
        others = [one for one in choose(call, inside.counterparts(call)) if id(one.call) not in taken]
        there = [one for one in others if (one.call.place, one.call.name) == lead]
        chosen = (there[min(turn, len(there) - 1)] if there else None) or (others[rank] if len(others) > rank else None)
        if chosen is None:
            return {}
        if lead is None:
            lead = chosen.call.place, chosen.call.name
            turn = [one for one in others if (one.call.place, one.call.name) == lead].index(chosen)
        taken.add(id(chosen.call))
        replaced[call.path, call.call] = call, chosen
    return replaced


def last_mending_call(inside: FollowedCalls, mends: Callable[[Replaced], bool]) -> Replaced:
    """The first call on the way, from the end, whose right result makes all right that was made of it; none if none.

    One side may make in one call what the other makes in many: between them no result of the one is the other's. What
    is at fault is then that call or one that makes its inputs.
    """
    found: Replaced = {}
    missed = 0
    for call in inside.passed_by_all():
        others = inside.counterparts(call)[:MOST_RESULTS_FROM_END]
        tried: Iterator[Replaced] = ({(call.path, call.call): (call, other)} for other in others)
        mended = next(filter(mends, tried), None)
        found = mended or found
        missed = 0 if mended else missed + bool(others)
        if missed >= MOST_MISSED_FROM_END:
            break
    return found


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


def _fewest(found: Replaced, mends: Callable[[Replaced], bool]) -> Replaced:
    """Leave out the lines that need not be replaced."""
    for group in by_line([call for call, _ in found.values()]):
        gone = {(call.path, call.call) for call in group}
        rest = {key: one for key, one in found.items() if key not in gone}
        if rest and mends(rest):
            found = rest
    return found


def results_instead(
    inside: FollowedCalls, replaced: Replaced, *, turned: bool = False
) -> Mapping[CallKey, tuple[Array, ...]]:
    """What these calls are to return; `turned` in another order of axes, where their own has the right shape too."""
    return {key: inside.meant_results(call, other, turned=turned) for key, (call, other) in replaced.items()}


def function_fault(inside: FollowedCalls, found: Replaced) -> FunctionFault:
    """Name the first call that was replaced, and what it does otherwise; the first of all where that lies behind."""
    call, other = next(iter(found.values()))
    if not inside.is_first(call):
        return _result_or_before(inside, found)
    difference, meant = inside.difference(call, other), other.call
    if difference == "result" and inside.is_given_turned(call, meant):
        return _result_or_before(inside, found)
    if inside.goes_on_with(call, meant):
        difference = "missing step"
    elif difference == "missing step":
        lacking = inside.first_lacking(meant)
        difference, meant = ("other input", meant) if lacking is None else (difference, lacking)
    calls = [one for one, _ in found.values()]
    lines = tuple(inside.places([*calls, *(inside.passing_before(calls) if difference == "missing step" else ())]))
    factor = inside.factor(call, other) if difference == "scaled input" else 1.0
    return FunctionFault(call.name, lines, meant.name, meant.place, difference, factor, "confirmed")


def earliest(inside: FollowedCalls, found: Replaced, mends: Callable[[Replaced], bool]) -> Replaced:
    """Calls before those that mend all, which mend all too: of each line all calls, whose results are the reference's.

    Those are asked that are made of the same as the results in their place.
    """
    left = MOST_NARROWING_RUNS
    open_groups = by_line(inside.before([call for call, _ in found.values()]))
    while open_groups and left > 0:
        group = open_groups.pop()
        others = _replaced(inside, group, 0, _made_of_same(inside))
        left -= bool(others)
        if others and mends(others):
            found = others
            open_groups = by_line(inside.before([call for call, _ in found.values()]))
    return found


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


def _relation(known: Mapping[str, Array], right: Array, made: Array) -> Relation | None:
    """What explains why a tensor is not the right one, by those that it is made of."""
    if right.dtype.kind != "f" or made.dtype.kind != "f":
        return None
    limit = limit_for(measure(right, right), (right.dtype.name, made.dtype.name), None)
    found = next((one for one in explain_layer("", known, {}, right, made, limit) if one.explains), None)
    if found is not None or right.ndim != HEADS_APART:
        return found
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in known.items() if value.ndim == HEADS_APART}
    return _relation(flat, *(one.reshape(-1, *one.shape[2:]) for one in (right, made)))
