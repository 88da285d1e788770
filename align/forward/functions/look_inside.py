"""Where inside of wrong code it goes wrong: the first functional call that makes something which the reference lacks.

The port runs with right values around, and what is wrong at the end is followed back through the calls that made it,
as long as they were given something wrong. A port may compute a right thing in another way, so what it makes on its
way may well be unknown to the reference. Therefore each such call is tried: it returns what the reference makes of the
same, and it is at fault if all is right then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from align.core.verdicts import Finding
from align.errors import CannotRunError, UserCodeError
from align.forward.causes.suspects import with_relation
from align.forward.culprit_result import FunctionFault
from align.forward.functions.like_values import LikeValues
from align.forward.functions.recorded_calls import CallRecord, RecordedCall
from align.forward.isolation.isolated_calls import Isolation
from align.forward.relations.layer_relations import explain_layer
from align.forward.thresholds import (
    LEAST_LOOK_TOLERANCE,
    LOOK_SECONDS,
    LOOK_SHARE_OF_FAULT,
    LOOK_SHARE_OF_TIME,
    MOST_FOLLOWED_CALLS,
    MOST_LOOK_TOLERANCE,
    MOST_REPLACED_RESULTS,
)
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Inputs
    from align.forward.causes.suspects import Suspect
    from align.forward.functions.recorded_calls import TensorKey
    from align.forward.isolation.isolate_layers import Bench, IsolatedLayers
    from align.forward.isolation.locate_faults import Fault
    from align.models.open_side import Side
    from align.traces.pair_inputs import CallKey

_FACTS_OF_PLACE = ("calls", "shows_at")


@dataclass(frozen=True, slots=True)
class LookedInside:
    """The suspects with what was found inside of them, and what was not looked at."""

    suspects: tuple[Suspect, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """How long may be looked: until `end` on the clock of `time.monotonic`; None: without end."""

    end: float | None = None

    @classmethod
    def after(cls, seconds: float) -> Budget:
        """A share of what was needed so far, and some seconds at least."""
        return cls(time.monotonic() + max(LOOK_SECONDS, LOOK_SHARE_OF_TIME * seconds))

    @property
    def is_spent(self) -> bool:
        """Tell whether the time is over."""
        return self.end is not None and time.monotonic() > self.end


def look_inside(
    reference: tuple[Side, Inputs], bench: Bench, alone: IsolatedLayers, suspects: Sequence[Suspect], budget: Budget
) -> LookedInside:
    """Name the functional call that is at fault in each suspect without a cause, as far as the time goes.

    `reference` is that side with what it is given. Where functions cannot be seen, suspects stay as they are.
    """
    asked = [one for one in suspects if not one.is_explained]
    if not asked:
        return LookedInside(tuple(suspects))
    look = _Look(reference, bench, alone, budget)
    found, left = [], 0
    for suspect in suspects:
        if suspect not in asked:
            found.append(suspect)
        elif budget.is_spent:
            found.append(suspect)
            left += 1
        else:
            found.append(look.at(suspect))
    return LookedInside(tuple(found), (_left_out(bench, left),) if left else ())


def _left_out(bench: Bench, count: int) -> Finding:
    return Finding("not-looked-inside", "note", bench.side.label, sentence("forward_finding.time_over", count=count))


class _Look:
    """Runs of both sides with their functions recorded."""

    def __init__(self, reference: tuple[Side, Inputs], bench: Bench, alone: IsolatedLayers, budget: Budget) -> None:
        self._reference, self._bench, self._alone, self._budget = reference, bench, alone, budget
        pairs = bench.expected.pairs
        self._paired = (
            {p.reference.module for p in pairs if p.certain},
            {p.candidate.module for p in pairs if p.certain},
        )

    def at(self, suspect: Suspect) -> Suspect:
        """Look inside of one suspect."""
        fault = suspect.fault
        tolerance = _tolerance(fault)
        if tolerance is None:
            return suspect
        try:
            meant = self._run_reference(suspect.fault.pair.reference.module)
            made = self._run_port(fault)
        except (UserCodeError, CannotRunError):  # a port may not stand right values, a framework not show functions
            return suspect
        if not (meant.is_whole and made.is_whole):
            return suspect
        trace = self._bench.expected.trace
        sizes = {value.size for value in made.values.values()}
        kept = [one for one in (*trace.inputs, *trace.captures) if _size(one.shape) in sizes]
        like = LikeValues(meant, (trace.value(one) for one in kept), tolerance)
        inside = _Inside(meant, made, like)
        firsts = inside.first_unlike(fault)
        for first in firsts:
            for other in inside.counterparts(first)[:MOST_REPLACED_RESULTS]:
                if self._budget.is_spent:
                    break
                if self._mends(suspect, first, meant.values[other.returned[0]].reshape(inside.shape(first))):
                    return _with_function(suspect, first, other, inside, sure=True)
        return _with_function(suspect, firsts[0], None, inside, sure=False) if len(firsts) == 1 else suspect

    def _run_reference(self, module: str) -> CallRecord:
        side, inputs = self._reference
        record = CallRecord(_looked_at(module, self._paired[0]))
        side.runner.run(side.model, inputs, record)
        return record

    def _run_port(self, fault: Fault, instead: dict[CallKey, Array] | None = None) -> CallRecord:
        bench = self._bench
        isolation = Isolation(bench.expected, self._alone.way)
        record = CallRecord(_looked_at(fault.pair.candidate.module, self._paired[1]), isolation, instead)
        bench.side.runner.run(bench.side.model, bench.inputs, record)
        return record

    def _mends(self, suspect: Suspect, first: RecordedCall, value: Array) -> bool:
        try:
            record = self._run_port(suspect.fault, {(first.path, first.call): value})
        except UserCodeError:
            return False
        return record.isolation is not None and suspect.is_mended(record.isolation.calls)


def _tolerance(fault: Fault) -> float | None:
    """How far apart like values may be: much less than what is wrong; None where that is hardly more than rounding."""
    wrong = fault.tensor.measurement
    far = 1.0 if wrong is None or fault.tensor.factor == inf else wrong.relative_l2 or 0.0
    tolerance = min(MOST_LOOK_TOLERANCE, far * LOOK_SHARE_OF_FAULT)
    return tolerance if tolerance >= LEAST_LOOK_TOLERANCE else None


def _looked_at(module: str, paired: set[str]) -> Callable[[str], bool]:
    """The module, all around it, and whatever has no sure counterpart: the others return what they should."""

    def wanted(path: str) -> bool:
        around = path == module or not path or module.startswith(f"{path}.")
        return around or path not in paired or path.rpartition(".")[0] == module.rpartition(".")[0]

    return wanted


def _size(shape: Sequence[int]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


class _Inside:
    """What both sides did, and which tensors of the port the reference has too."""

    def __init__(self, meant: CallRecord, made: CallRecord, like: LikeValues) -> None:
        self._meant, self._made, self._like = meant, made, like
        self._known: dict[TensorKey, bool] = {}

    def first_unlike(self, fault: Fault) -> list[RecordedCall]:
        """Calls that make something the reference lacks of what it has, and on which the fault rests, in their order.

        Those that make one of its tensors times a number come last: a port may scale earlier or later.
        """
        own = self._made.calls.get(fault.key)
        found: dict[CallKey, RecordedCall] = {}
        open_keys = [] if own is None else list(own.given if fault.part == "inputs" else own.returned)
        followed: set[TensorKey] = set()
        while open_keys and len(followed) < MOST_FOLLOWED_CALLS:
            key = open_keys.pop()
            maker = self._made.makers.get(key)
            if key in followed or maker is None or self._is_known(key):
                continue
            followed.add(key)
            unknown = [one for one in maker.given if not self._is_known(one)]
            if unknown:
                open_keys += unknown
            elif maker.is_function:
                found[maker.path, maker.call] = maker
        order = list(self._made.calls)
        return sorted(found.values(), key=lambda one: (self._is_scaled(one), order.index((one.path, one.call))))

    def counterparts(self, first: RecordedCall) -> list[RecordedCall]:
        """Calls of the reference whose result a call of the port may have to return, those of the same inputs first."""
        given = set().union(*(self._like.keys(self._made.values[key]) for key in first.given), set())
        own = self._made.values[first.returned[0]]
        found = []
        for call in self._meant.calls.values():
            result = self._meant.values[call.returned[0]] if len(call.returned) == 1 else None
            if result is None or not call.is_function or result.size != own.size or self._is_made(call.returned[0]):
                continue
            found.append((not given.intersection(call.given), result.shape != own.shape, call))
        return [call for _, _, call in sorted(found, key=lambda one: one[:2])]

    def shape(self, call: RecordedCall) -> tuple[int, ...]:
        """The shape of what a call of the port returned."""
        return self._made.values[call.returned[0]].shape

    def values(self, first: RecordedCall, other: RecordedCall) -> tuple[dict[str, Array], Array, Array]:
        """What a call of the port was given, what the reference makes of it, and what the port made."""
        given = {str(place): self._made.values[key] for place, key in enumerate(first.given)}
        own = self._made.values[first.returned[0]]
        return given, self._meant.values[other.returned[0]].reshape(own.shape), own

    def _is_known(self, key: TensorKey) -> bool:
        return self._known.setdefault(key, self._like.has(self._made.values[key]))

    def _is_made(self, key: TensorKey) -> bool:
        """Tell whether the port has a tensor of the reference too."""
        return key in self._of_both

    @property
    def _of_both(self) -> set[TensorKey]:
        if not hasattr(self, "_both"):
            found = (self._like.keys(value) for value in self._made.values.values())
            self._both = set().union(*found, set())
        return self._both

    def _is_scaled(self, call: RecordedCall) -> bool:
        return self._like.has_scaled(self._made.values[call.returned[0]])


def _with_function(
    suspect: Suspect, first: RecordedCall, other: RecordedCall | None, inside: _Inside, *, sure: bool
) -> Suspect:
    """Name the call as where the suspect goes wrong, and what the reference's result of it is to the port's."""
    fault = FunctionFault(
        first.name,
        first.place,
        other.name if other else "",
        other.place if other else "",
        "confirmed" if sure else "suspected",
    )
    known = {name: fact for name, fact in suspect.culprit.facts.items() if name in _FACTS_OF_PLACE}  # without hints
    culprit = replace(suspect.culprit, inside=fault, line=first.place or suspect.culprit.line, facts=known)
    if other is not None:
        given, meant, made = inside.values(first, other)
        limit = limit_for(measure(meant, meant), (meant.dtype.name, made.dtype.name), None)
        found = [one for one in explain_layer("", given, {}, meant, made, limit) if one.explains]
        culprit = with_relation(culprit, found[0]) if found else culprit
    return replace(suspect, culprit=culprit)
