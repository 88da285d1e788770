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
from align.forward.forward_result import FunctionComparison
from align.forward.functions.calls_followed import FollowedCalls, same_function
from align.forward.functions.recorded_calls import CallRecord, Likeness, LikeValues, owner, varies
from align.forward.isolation.isolated_calls import Isolation
from align.forward.thresholds import MOST_LOOK_TOLERANCE, MOST_RECORDED_BYTES
from align.measure.tensor_layouts import find_permuted_layout
from align.measure.tensor_statistics import relative_rms_distance
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array
    from align.core.protocols import Inputs
    from align.forward.forward_result import FunctionOutcome
    from align.forward.functions.calls_followed import Counterpart
    from align.forward.functions.recorded_calls import RecordedCall, TensorKey
    from align.forward.isolation.bench import Bench
    from align.forward.isolation.isolate_layers import IsolatedLayers
    from align.models.open_side import Side


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
    found = BothRecords(CallRecord(lambda _: True), CallRecord(lambda _: True, Isolation(bench.expected, alone.way)))
    try:
        side.runner.run(side.model, inputs, found.meant)
        bench.side.runner.run(bench.side.model, bench.inputs, found.made)
    except (
        UserCodeError,
        CannotRunError,
    ) as error:  # a port may not stand right values, a framework not show functions
        return replace(found, failure=str(error))
    return found


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
        found = self._inside.likeness(call.returned[0])
        if found == Likeness():
            return _compared(call, None, "constant")
        if found is not None:
            return self._same(call, found)
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

    def _same(self, call: RecordedCall, found: Likeness) -> FunctionComparison:
        outcome: FunctionOutcome = "same" if found.factor == 1.0 else "scaled"
        made = [(key, one) for key in sorted(found.keys) for one in self._makers.get(key, ())]
        free = [pair for pair in made if id(pair[1]) not in self._taken] or made
        free.sort(key=lambda pair: not same_function(call.name, pair[1].name))
        if free and outcome == "same":
            self._taken.add(id(free[0][1]))
        key = free[0][0] if free else min(found.keys)  # a layer of the reference returns it, or it is given
        other = free[0][1] if free else self._meant.makers.get(key)
        return _compared(call, other, outcome, found.factor, self._distance(key, call, found.factor))

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
