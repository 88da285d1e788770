"""Code outside of all layers, as a loss, taken apart: which functional call makes another result of the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.forward.forward_result import FunctionFault
from align.forward.functions.calls_followed import FollowedCalls, same_function
from align.forward.functions.compare_functions import (
    by_line,
    function_fault,
    mending_calls,
    mending_calls_from_end,
    relation_of_results,
    results_instead,
)
from align.forward.functions.recorded_calls import CallRecord, LikeValues
from align.forward.thresholds import LEAST_LOOK_TOLERANCE, LOOK_SHARE_OF_FAULT, MOST_CODE_LEVELS, MOST_LOOK_TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from align.core.parameters import Array
    from align.core.traces import CaptureSink
    from align.forward.functions.calls_followed import Counterpart
    from align.forward.functions.compare_functions import Replaced
    from align.forward.functions.recorded_calls import RecordedCall, TensorKey
    from align.forward.relations.relation import Relation
    from align.traces.module_calls import CallKey

    Number = Callable[[CaptureSink], float | None]


@dataclass(frozen=True, slots=True)
class UnlikeCall:
    """A functional call at fault, and what relates its result to the right one; None where that is not known."""

    fault: FunctionFault
    relation: Relation | None


def find_unlike_call(
    reference: Number, candidate: Number, far: float, may_run: Callable[[], bool]
) -> UnlikeCall | None:
    """Find the call of the candidate that makes its number another one than the reference's.

    Each of the two runs its side, given right values, with a sink that sees functional calls, and returns the number
    that its code makes of them, None for none. `far` is how far the two are apart, as a share. A call is named only if
    the number is right once it returns what a call of the reference does. `may_run` is asked before each trial.
    """
    tolerance = min(MOST_LOOK_TOLERANCE, far * LOOK_SHARE_OF_FAULT)
    if tolerance < LEAST_LOOK_TOLERANCE:
        return None
    reference_record, candidate_record = (CallRecord(lambda _: True) for _ in range(2))
    right, wrong = reference(reference_record), candidate(candidate_record)
    end = None if wrong is None else _end(candidate_record, wrong)
    if right is None or end is None or not (reference_record.is_whole and candidate_record.is_whole):
        return None
    inside = FollowedCalls(
        reference_record, candidate_record, LikeValues(reference_record, (), tolerance, numbers=True), (end,)
    )
    way = _way_to(reference_record, right)
    if (lacking := _left_out(inside, end, way)) is not None:
        return UnlikeCall(lacking, None)
    trials = _Trials(inside, candidate, right, tolerance, way, may_run)
    replaced = trials.of_same_functions()
    if not any(inside.is_first(call) for call, _ in replaced.values()):
        if (extra := _one_too_many(inside, trials)) is not None:
            return UnlikeCall(extra, None)
        replaced = trials.of_any_functions(replaced)
    if not replaced:
        return None
    call, other = next(iter(replaced.values()))
    relation = relation_of_results(inside, call, other) if inside.is_first(call) else None
    return UnlikeCall(function_fault(inside, replaced), relation)


def _left_out(inside: FollowedCalls, end: TensorKey, way: Collection[TensorKey]) -> FunctionFault | None:
    """The call of the reference that goes on with what the port ends with: there a part of the code lacks."""
    known, maker = inside.likeness(end), inside.made.makers.get(end)
    if known is None or known.factor != 1.0 or maker is None:
        return None
    functions = [one for one in inside.made.calls.values() if one.is_function]
    given = [(one, [own for key in one.given if (own := inside.likeness(key))]) for one in functions]
    going_on = [one.name for one, tensors in given if any(own.keys & known.keys for own in tensors)]
    for call in inside.meant.calls.values():
        if any(same_function(name, call.name) for name in going_on):
            continue  # the port has that step, and gives it something else beside
        if call.is_function and known.keys.intersection(call.given) and call.returned[0] in way:
            lines = tuple(dict.fromkeys((*maker.callers[:1], maker.place)))  # a function of the user's may be right
            return FunctionFault(maker.name, lines, call.name, call.place, "missing behind", sureness="confirmed")
    return None


def _one_too_many(inside: FollowedCalls, trials: _Trials) -> FunctionFault | None:
    """The call without which the number is right: of known tensors, of which it returns another one."""
    for group in by_line(inside.firsts):
        line = group[0].name, group[0].place
        calls = [one for one in inside.made.calls.values() if one.is_function and (one.name, one.place) == line]
        for place in range(min(len(call.given) for call in calls)):
            results = {(call.path, call.call): (inside.made.values[call.given[place]],) for call in calls}
            own = [inside.result(call) for call in calls]
            same_kind = all(
                (value.shape, value.dtype) == (made.shape, made.dtype)
                for (value,), made in zip(results.values(), own, strict=True)
            )
            if same_kind and trials.is_right_with(results, (*results, place)):
                lines = tuple(inside.places(calls))
                return FunctionFault(calls[0].name, lines, "", "", "extra step", sureness="confirmed")
    return None


def results_of_calls(run: Callable[[CaptureSink], object], names: Collection[str]) -> list[tuple[str, Array]]:
    """The lines of functional calls of these names, in a run with the sink that it is given, each with what it made."""
    record = CallRecord(lambda _: True)
    run(record)
    named = [call for call in record.calls.values() if call.is_function and call.name in names]
    return [(call.place, record.values[key]) for call in named for key in call.returned if key in record.values]


class _Trials:
    """Runs of the candidate with other results of single calls, each tried once: those on the reference's `way`."""

    def __init__(
        self,
        inside: FollowedCalls,
        candidate: Number,
        right: float,
        tolerance: float,
        way: Collection[TensorKey],
        may_run: Callable[[], bool],
    ) -> None:
        self._inside, self._candidate, self._right, self._tolerance = inside, candidate, right, tolerance
        self._way, self._may_run = way, may_run
        self._tried: set[object] = set()

    def of_same_functions(self) -> Replaced:
        """Calls that mend all with results of the same functions of the reference."""
        return mending_calls(self._inside, self._mends, levels=MOST_CODE_LEVELS, choose=self._of_same_name)

    def of_any_functions(self, known: Replaced) -> Replaced:
        """The first calls that do so, of those that are known and of what results of any functions find."""
        ways = mending_calls_from_end, mending_calls
        found = [way(self._inside, self._mends, levels=MOST_CODE_LEVELS, choose=self._by_name) for way in ways]
        place = {id(call): number for number, call in enumerate(self._inside.made.calls.values())}
        each = [one for one in (known, *found) if one]
        return min(each, key=lambda one: place[id(next(iter(one.values()))[0])], default={})

    def _mends(self, replaced: Replaced) -> bool:
        own = frozenset((id(call), id(other.call), other.factor) for call, other in replaced.values())
        if self._ends_so(replaced):
            return False
        return self.is_right_with(results_instead(self._inside, replaced), own)

    def is_right_with(self, results: Mapping[CallKey, tuple[Array, ...]], key: object) -> bool:
        """Tell whether the number is right where calls return these results; `key` tells one trial from another."""
        if key in self._tried or not self._may_run():
            return False
        self._tried.add(key)
        number = self._candidate(CallRecord(lambda _: True, None, results))
        return number is not None and abs(number - self._right) <= self._tolerance * abs(self._right)

    def _ends_so(self, replaced: Replaced) -> bool:
        """Tell whether the right number itself is put in, which shows nothing, but of code of one line."""
        ends = [self._inside.meant_result(other, ()) for _, other in replaced.values() if self._inside.is_number(other)]
        several = len({one.place for one in self._inside.followed}) > 1
        return several and any(np.float32(one) == np.float32(self._right) for one in ends)

    def _of_same_name(self, call: RecordedCall, others: Sequence[Counterpart]) -> list[Counterpart]:
        return [one for one in self._by_name(call, others) if same_function(call.name, one.call.name)]

    def _by_name(self, call: RecordedCall, others: Sequence[Counterpart]) -> list[Counterpart]:
        """Put those of the same function first; for whole numbers, as labels are, take these alone.

        A table of one number throughout, as of targets, is no counterpart of a result that varies.
        """
        result = self._inside.result(call)
        others = [
            counterpart
            for counterpart in others
            if not self._way or any(key in self._way for key in counterpart.call.returned)
        ]
        same_kind = [
            counterpart
            for counterpart in others
            if _has_fractions(result) == _has_fractions(self._meant(call, counterpart))
        ]
        named = [counterpart for counterpart in same_kind if same_function(call.name, counterpart.call.name)]
        if not _has_fractions(result):
            return named
        varies = _varies(result)
        return [
            *named,
            *(
                counterpart
                for counterpart in same_kind
                if counterpart not in named and _varies(self._meant(call, counterpart)) == varies
            ),
        ]

    def _meant(self, call: RecordedCall, other: Counterpart) -> Array:
        return self._inside.meant_result(other, self._inside.result(call).shape)


def _has_fractions(value: Array) -> bool:
    return value.dtype.kind in "fV"


def _varies(value: Array) -> bool:
    return bool((value != value.reshape(-1)[:1]).any())


def _end(record: CallRecord, number: float) -> TensorKey | None:
    """The last result that is this number."""
    for call in reversed([*record.calls.values()]):
        for key in call.returned:
            value = record.values.get(key)
            if call.is_function and value is not None and value.size == 1 and np.float32(value) == np.float32(number):
                return key
    return None


def _way_to(meant: CallRecord, number: float) -> set[TensorKey]:
    """All that the reference makes its number of; nothing where no call returned that number."""
    end = _end(meant, number)
    keys, left = set[bytes](), [] if end is None else [end]
    while left:
        key = left.pop()
        if key not in keys:
            keys.add(key)
            maker = meant.makers.get(key)
            left += maker.given if maker else ()
    return keys
