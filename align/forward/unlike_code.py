"""Code outside of all layers, as a loss, taken apart: which functional call makes another result of the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.forward.functions.calls_followed import FollowedCalls, same_function
from align.forward.functions.mending_calls import (
    function_fault,
    mending_calls,
    relation_of_results,
    results_instead,
)
from align.forward.functions.recorded_calls import CallRecord, LikeValues
from align.forward.thresholds import (
    LEAST_LOOK_TOLERANCE,
    LOOK_SHARE_OF_FAULT,
    MOST_CODE_LEVELS,
    MOST_CODE_RUNS,
    MOST_LOOK_TOLERANCE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from align.core.dtypes import Array
    from align.core.traces import CaptureSink
    from align.forward.forward_result import FunctionFault
    from align.forward.functions.calls_followed import Counterpart
    from align.forward.functions.mending_calls import Replaced
    from align.forward.functions.recorded_calls import RecordedCall, TensorKey
    from align.forward.relations.relation import Relation

    Number = Callable[[CaptureSink], float | None]


@dataclass(frozen=True, slots=True)
class UnlikeCall:
    """A functional call at fault, and what relates its result to the right one; None where that is not known."""

    fault: FunctionFault
    relation: Relation | None


def find_unlike_call(reference: Number, candidate: Number, far: float) -> UnlikeCall | None:
    """Find the call of the candidate that makes its number another one than the reference's.

    Each of the two runs its side, given right values, with a sink that sees functional calls, and returns the number
    that its code makes of them, None for none. `far` is how far the two are apart, as a share. A call is named only if
    the number is right once it returns what a call of the reference does.
    """
    tolerance = min(MOST_LOOK_TOLERANCE, far * LOOK_SHARE_OF_FAULT)
    if tolerance < LEAST_LOOK_TOLERANCE:
        return None
    meant, made = (CallRecord(lambda _: True) for _ in range(2))
    right, wrong = reference(meant), candidate(made)
    end = None if wrong is None else _end(made, wrong)
    if right is None or end is None or not (meant.is_whole and made.is_whole):
        return None
    inside = FollowedCalls(meant, made, LikeValues(meant, (), tolerance, numbers=True), (end,))
    found = _Trials(inside, candidate, right, tolerance, _way_to(meant, right)).found()
    if not found:
        return None
    call, other = next(iter(found.values()))
    relation = relation_of_results(inside, call, other) if inside.is_first(call) else None
    return UnlikeCall(function_fault(inside, found), relation)


def results_of_calls(run: Callable[[CaptureSink], object], names: Collection[str]) -> list[tuple[str, Array]]:
    """The lines of functional calls of these names, in a run with the sink that it is given, each with what it made."""
    record = CallRecord(lambda _: True)
    run(record)
    named = [call for call in record.calls.values() if call.is_function and call.name in names]
    return [(call.place, record.values[key]) for call in named for key in call.returned if key in record.values]


class _Trials:
    """Runs of the candidate with other results of single calls, each tried once: those on the reference's `way`."""

    def __init__(
        self, inside: FollowedCalls, candidate: Number, right: float, tolerance: float, way: Collection[TensorKey]
    ) -> None:
        self._inside, self._candidate, self._right, self._tolerance = inside, candidate, right, tolerance
        self._way = way
        self._tried: set[frozenset[tuple[int, int, float]]] = set()

    def found(self) -> Replaced:
        """Calls that mend all with results of the reference, those of the same functions before others."""
        return mending_calls(self._inside, self._mends, levels=MOST_CODE_LEVELS, choose=self._by_name)

    def _mends(self, replaced: Replaced) -> bool:
        own = frozenset((id(call), id(other.call), other.factor) for call, other in replaced.values())
        if own in self._tried or len(self._tried) >= MOST_CODE_RUNS or self._ends_so(replaced):
            return False
        self._tried.add(own)
        number = self._candidate(CallRecord(lambda _: True, None, results_instead(self._inside, replaced)))
        return number is not None and abs(number - self._right) <= self._tolerance * abs(self._right)

    def _ends_so(self, replaced: Replaced) -> bool:
        """Tell whether the right number itself is put in, which shows nothing, but of code of one line."""
        ends = [self._inside.meant_result(other, ()) for _, other in replaced.values() if self._inside.is_number(other)]
        several = len({one.place for one in self._inside.followed}) > 1
        return several and any(np.float32(one) == np.float32(self._right) for one in ends)

    def _by_name(self, call: RecordedCall, others: Sequence[Counterpart]) -> list[Counterpart]:
        """Those of the same function first; of whole numbers, as of labels, these alone.

        A table of one number throughout, as of targets, is no counterpart of a result that varies.
        """
        own = self._inside.result(call)
        others = [one for one in others if not self._way or any(key in self._way for key in one.call.returned)]
        alike = [one for one in others if _has_fractions(own) == _has_fractions(self._meant(call, one))]
        named = [one for one in alike if same_function(call.name, one.call.name)]
        if not _has_fractions(own):
            return named
        varies = _varies(own)
        return [*named, *(one for one in alike if one not in named and _varies(self._meant(call, one)) == varies)]

    def _meant(self, call: RecordedCall, other: Counterpart) -> Array:
        return self._inside.meant_result(other, self._inside.result(call).shape)


def _has_fractions(value: Array) -> bool:
    return value.dtype.kind in "fV"


def _varies(value: Array) -> bool:
    return bool((value != value.reshape(-1)[:1]).any())


def _end(made: CallRecord, number: float) -> TensorKey | None:
    """The last result that is this number."""
    for call in reversed([*made.calls.values()]):
        for key in call.returned:
            value = made.values.get(key)
            if call.is_function and value is not None and value.size == 1 and np.float32(value) == np.float32(number):
                return key
    return None


def _way_to(meant: CallRecord, number: float) -> set[TensorKey]:
    """All that the reference makes its number of; nothing where no call returned that number."""
    end = _end(meant, number)
    found, left = set[bytes](), [] if end is None else [end]
    while left:
        key = left.pop()
        if key not in found:
            found.add(key)
            maker = meant.makers.get(key)
            left += maker.given if maker else ()
    return found
