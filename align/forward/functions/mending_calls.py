"""Which calls of wrong code, returning what the reference makes of the same, mend it, and what they do otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.forward.forward_result import FunctionFault
from align.forward.relations.layer_relations import explain_layer
from align.forward.thresholds import MOST_LOOK_LEVELS, MOST_REPLACED_LINES, MOST_REPLACED_RESULTS
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.forward.forward_result import Sureness
    from align.forward.functions.calls_followed import Counterpart, FollowedCalls
    from align.forward.functions.recorded_calls import RecordedCall
    from align.forward.relations.relation import Relation
    from align.traces.module_calls import CallKey

    Choose = Callable[[RecordedCall, Sequence[Counterpart]], Sequence[Counterpart]]
    Replaced = dict[CallKey, tuple[RecordedCall, Counterpart]]


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
        lines = _by_line(calls)
        choices = [(group, rank) for group in lines for rank in range(MOST_REPLACED_RESULTS)]
        whole = [inside.beside(group) for group in lines]  # a function of the user's may be called more than once
        choices[1:1] = [(all_, 0) for all_, group in zip(whole, lines, strict=True) if len(all_) > len(group)]
        for group, rank in choices[:MOST_REPLACED_LINES]:
            if (found := _replaced(inside, group, rank, choose)) and mends(found):
                return found
        if len(lines) > 1 and (found := _replaced(inside, calls, 0, choose)) and mends(found):
            return _fewest(found, mends)
        calls = inside.after(calls)
    return {}


def _by_line(calls: Sequence[RecordedCall]) -> list[list[RecordedCall]]:
    """Calls of one function on one line together."""
    lines: dict[tuple[str, str], list[RecordedCall]] = {}
    for call in calls:
        lines.setdefault((call.place, call.name), []).append(call)
    return list(lines.values())


def _replaced(inside: FollowedCalls, calls: Sequence[RecordedCall], rank: int, choose: Choose) -> Replaced:
    """Each call with its counterpart of this rank; none if one lacks it."""
    replaced: Replaced = {}
    taken: set[int] = set()
    for call in calls:
        others = [one for one in choose(call, inside.counterparts(call)) if id(one.call) not in taken]
        if len(others) <= rank:
            return {}
        taken.add(id(others[rank].call))
        replaced[call.path, call.call] = call, others[rank]
    return replaced


def _fewest(found: Replaced, mends: Callable[[Replaced], bool]) -> Replaced:
    """Leave out the lines that need not be replaced."""
    for group in _by_line([call for call, _ in found.values()]):
        gone = {(call.path, call.call) for call in group}
        rest = {key: one for key, one in found.items() if key not in gone}
        if rest and mends(rest):
            found = rest
    return found


def results_instead(inside: FollowedCalls, replaced: Replaced) -> Mapping[CallKey, Array]:
    """What these calls are to return."""
    return {key: inside.meant_result(other, inside.result(call).shape) for key, (call, other) in replaced.items()}


def function_fault(inside: FollowedCalls, found: Replaced) -> FunctionFault:
    """Name the first call that was replaced, and what it does otherwise; the first of all where that lies behind."""
    call, other = next(iter(found.values()))
    if not inside.is_first(call):
        return first_unlike(inside.firsts, "confirmed")
    difference, meant = inside.difference(call, other), other.call
    if inside.goes_on_with(call, meant):
        difference = "missing step"
    elif difference == "missing step":
        lacking = inside.first_lacking(meant)
        difference, meant = ("other input", meant) if lacking is None else (difference, lacking)
    lines = tuple(dict.fromkeys(one.place for one, _ in found.values()))
    factor = inside.factor(call, other) if difference == "scaled input" else 1.0
    return FunctionFault(call.name, lines, meant.name, meant.place, difference, factor, "confirmed")


def first_unlike(calls: Sequence[RecordedCall], sureness: Sureness) -> FunctionFault:
    """Name the call that makes the first tensor which the reference lacks."""
    return FunctionFault(calls[0].name, tuple(dict.fromkeys(call.place for call in calls)), sureness=sureness)


def relation_of_results(inside: FollowedCalls, call: RecordedCall, other: Counterpart) -> Relation | None:
    """What relates a call's result to the right one, or what it is given to what the other is given."""
    shape = inside.meant_shape(other)
    made = inside.result(call).reshape(shape)
    found = _relation(inside.made_of(call, shape), inside.meant_result(other, shape), made)
    if found is None:
        found = next((one for pair in inside.unlike_given(call, other) if (one := _relation({}, *pair))), None)
    return found


def _relation(known: Mapping[str, Array], right: Array, made: Array) -> Relation | None:
    """What explains why a tensor is not the right one, by those that it is made of."""
    if right.dtype.kind != "f" or made.dtype.kind != "f":
        return None
    limit = limit_for(measure(right, right), (right.dtype.name, made.dtype.name), None)
    return next((one for one in explain_layer("", known, {}, right, made, limit) if one.explains), None)
