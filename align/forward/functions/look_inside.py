"""Where inside of wrong code it goes wrong: the first functional call that makes something which the reference lacks.

The port runs with right values around, and what is wrong at the end is followed back through the calls that made it,
as long as they were given something wrong. A port may compute a right thing in another way, so what it makes on its
way may well be unknown to the reference. Therefore each such call is tried: it returns what the reference makes of the
same, and it is at fault if all is right then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from math import inf, prod
from typing import TYPE_CHECKING

from align.core.verdicts import Finding
from align.errors import CannotRunError, UserCodeError
from align.forward.forward_result import FunctionFault
from align.forward.functions.calls_followed import FollowedCalls, same_values
from align.forward.functions.compare_functions import (
    BothRecords,
    earliest,
    function_fault,
    last_mending_call,
    mending_calls,
    record_both,
    relation_of_results,
    results_instead,
)
from align.forward.functions.recorded_calls import (
    ATTENTION,
    CallRecord,
    LikeValues,
    RecordedCall,
    owner,
    with_steps_of_attention,
)
from align.forward.isolated_calls import Isolation
from align.forward.suspects import Budget, as_one, with_relation
from align.forward.thresholds import (
    LEAST_LOOK_TOLERANCE,
    LOOK_SHARE_OF_FAULT,
    MOST_LOOK_RUNS,
    MOST_LOOK_TOLERANCE,
    MOST_OTHER_TABLES,
    MOST_REPLACED_RESULTS,
)
from align.models.rebuild_from_settings import drops_results
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence, Set

    from align.core.parameters import Array
    from align.core.protocols import Inputs
    from align.forward.functions.calls_followed import Counterpart
    from align.forward.functions.compare_functions import Replaced
    from align.forward.functions.recorded_calls import TensorKey
    from align.forward.isolate_layers import Bench, IsolatedLayers
    from align.forward.locate_faults import Fault
    from align.forward.suspects import Suspect
    from align.models.open_side import Side
    from align.traces.module_calls import CallKey


_FACTS_OF_PLACE = ("calls", "shows_at")


@dataclass(frozen=True, slots=True)
class LookedInside:
    """The suspects with what was found inside of them, and what was not looked at."""

    suspects: tuple[Suspect, ...]
    findings: tuple[Finding, ...] = ()


def look_inside(
    reference: tuple[Side, Inputs],
    bench: Bench,
    alone: IsolatedLayers,
    suspects: Sequence[Suspect],
    budget: Budget,
    records: BothRecords | None = None,
) -> LookedInside:
    """Name the functional call that is at fault in each suspect without a cause, as far as runs are left.

    `reference` is that side with what it is given. Where functions cannot be seen, suspects stay as they are. What
    `records` have of both sides is not recorded again.
    """
    dropping = {suspect.key for suspect in suspects if _may_be_dropped(suspect, bench)}
    reference_modules = {
        suspect.key: suspect.fault.pair.reference.module for suspect in suspects if _is_asked(suspect, dropping)
    }
    if not reference_modules and len(list(filter(_is_open_code, suspects))) < 2:
        return LookedInside(tuple(suspects))
    modules = _Modules(tuple(reference_modules.values()), frozenset(dropping))
    look = _Look(reference, bench, alone, budget, modules, records if records and records.is_whole else None)
    looked, left = [], 0
    for suspect in look.merged(suspects):
        if suspect.key not in reference_modules or suspect.culprit.inside:
            looked.append(suspect)
        elif budget.is_spent:
            looked.append(suspect)
            left += 1
        else:
            looked.append(look.at(suspect))
    message = sentence("forward_finding.runs_spent", count=left, runs=MOST_LOOK_RUNS)
    left_out = Finding("not-looked-inside", "note", bench.side.label, message)
    return LookedInside(tuple(looked), (left_out,) if left else ())


@dataclass(frozen=True, slots=True)
class _Modules:
    """The modules of the reference that are looked at, and the suspects whose code drops results."""

    looked_at: tuple[str, ...]
    dropping: frozenset[object]


class _Look:
    """Runs of both sides with their functions recorded."""

    def __init__(
        self,
        reference: tuple[Side, Inputs],
        bench: Bench,
        alone: IsolatedLayers,
        budget: Budget,
        modules: _Modules,
        records: BothRecords | None,
    ) -> None:
        self._reference, self._bench, self._alone, self._budget = reference, bench, alone, budget
        self._modules, self._records = modules, records
        # Of what stands in another layout the values must show which, and wrong ones do not.
        pairs = [one for one in bench.expected.pairs if one.certain and one.reference.shapes == one.candidate.shapes]
        self._paired = {pair.reference.module for pair in pairs}, {pair.candidate.module for pair in pairs}

    def merged(self, suspects: Sequence[Suspect]) -> list[Suspect]:
        """Put suspects together that one call explains: with the right result of it all of them are right."""
        together: dict[CallKey, list[tuple[Suspect, FollowedCalls]]] = {}
        open_code = [one for one in suspects if _is_open_code(one)]
        if len(open_code) > 1 and self._records is None and not self._budget.is_spent:
            records = record_both(self._reference, self._bench, self._alone)
            self._records = records if records.is_whole else None
        for suspect in open_code if len(open_code) > 1 and self._records else ():
            inside = self._followed(suspect.fault)
            if inside is not None and len(inside.firsts) == 1:
                call = inside.firsts[0]
                together.setdefault((call.path, call.call), []).append((suspect, inside))
        for group in together.values():
            suspects = self._as_one(suspects, group) if len(group) > 1 else suspects
        return list(suspects)

    def _as_one(self, suspects: Sequence[Suspect], group: Sequence[tuple[Suspect, FollowedCalls]]) -> Sequence[Suspect]:
        """All suspects, with those of a group that the right result of their one call mends as one."""
        (first, inside), call = group[0], group[0][1].firsts[0]
        for other in inside.counterparts(call)[:MOST_REPLACED_RESULTS]:
            own = [suspect for suspect, _ in group]
            mended = self._mended(own, inside, {(call.path, call.call): (call, other)})
            if len(mended) > 1 and mended[0] is first:
                gone = {suspect.key for suspect in mended[1:]}
                meant = other.call
                fault = FunctionFault(call.name, (call.place,), meant.name, meant.place, "result", 1.0, "confirmed")
                modules = owner(meant.path), owner(call.path)
                bare = replace(first, culprit=replace(first.culprit, cause="", facts={}))
                told = _with_relation(bare, inside, call, other)  # what the call does says more than what comes of it
                mended[0] = told if told.is_explained else first
                whole = as_one(mended, fault, modules, self._bench.expected.pairs)
                return [whole if suspect is first else suspect for suspect in suspects if suspect.key not in gone]
        return suspects

    def at(self, suspect: Suspect) -> Suspect:
        """Look inside of one suspect; into the steps of a fused attention too, where the whole names no one line."""
        inside = self._followed(suspect.fault)
        if inside is None:
            return suspect
        looked = self._at(suspect, inside)
        fused = any(call.name == ATTENTION for call in inside.meant.calls.values())
        place = looked.culprit.inside
        if not fused or looked.is_explained or (place is not None and len(place.lines) == 1):
            return looked
        steps = self._followed(suspect.fault, steps=True)
        if steps is None:
            return looked
        closer = self._at(suspect, steps)
        return closer if closer.culprit.inside else looked

    def _at(self, suspect: Suspect, inside: FollowedCalls) -> Suspect:
        if suspect.key in self._modules.dropping and (dropped := inside.first_dropped()):
            return _with_dropped(suspect, dropped)
        if suspect.culprit.sureness == "confirmed":
            return suspect
        mends = partial(self._mends, suspect, inside)
        replaced = mending_calls(inside, mends)
        if not replaced or not inside.is_first(next(iter(replaced.values()))[0]):
            if table := self._other_table(suspect, inside):
                return _with_function(suspect, table)
            replaced = earliest(inside, replaced or last_mending_call(inside, mends), mends)
        return _explained(suspect, inside, replaced) if replaced else suspect

    def _other_table(self, suspect: Suspect, inside: FollowedCalls) -> FunctionFault | None:
        """The call that is given another table than the reference's, which makes all right in its place."""
        for call, key, other, right in islice(inside.other_tables(), MOST_OTHER_TABLES):
            if self._right_with([suspect], tables={key: inside.meant.values[right]}):
                return FunctionFault(
                    call.name, (call.place,), other.name, other.place, "other table", sureness="confirmed"
                )
        return None

    def _followed(self, fault: Fault, *, steps: bool = False) -> FollowedCalls | None:
        """What both sides do there; None where that cannot be seen, or is hardly more than rounding.

        With `steps` what the reference does in one call of fused attention stands as its steps.
        """
        tolerance = _tolerance(fault)
        if tolerance is None:
            return None
        try:
            meant = self._reference_in(fault.pair.reference.module)
            meant = with_steps_of_attention(meant) if steps else meant
            port_record = self._run_port(fault)
        except (UserCodeError, CannotRunError):  # a port may not stand right values, a framework not show functions
            return None
        call = port_record.calls.get(fault.key)
        if call is None or not (meant.is_whole and port_record.is_whole):
            return None
        like = LikeValues(meant, self._kept_values(port_record), tolerance)
        return FollowedCalls(meant, port_record, like, call.given if fault.part == "inputs" else call.returned)

    def _kept_values(self, made: CallRecord) -> Iterator[Array]:
        """What modules of the reference were given and returned, as far as the port has tensors of that size."""
        trace = self._bench.expected.trace
        counts = {value.size for value in made.values.values()}
        yield from (trace.value(one) for one in (*trace.inputs, *trace.captures) if prod(one.shape) in counts)

    def _mends(self, suspect: Suspect, inside: FollowedCalls, replaced: Replaced) -> bool:
        return bool(self._mended([suspect], inside, replaced))

    def _mended(self, suspects: Sequence[Suspect], inside: FollowedCalls, replaced: Replaced) -> list[Suspect]:
        """The suspects that are right where calls return what they should."""
        if not replaced:
            return []
        instead = results_instead(inside, replaced)
        turned = results_instead(inside, replaced, turned=True)
        mended = self._right_with(suspects, instead)
        both = [pair for key in instead for pair in zip(instead[key], turned[key], strict=True)]
        same = all(same_values(mine, theirs) for mine, theirs in both)
        return mended if mended or same else self._right_with(suspects, turned)

    def _right_with(
        self,
        suspects: Sequence[Suspect],
        instead: Mapping[CallKey, Sequence[Array]] | None = None,
        tables: Mapping[TensorKey, Array] | None = None,
    ) -> list[Suspect]:
        """The suspects that are right with other results, or tables."""
        try:
            record = None if self._budget.is_spent else self._run_port(suspects[0].fault, instead, tables)
        except UserCodeError:
            return []
        isolation = None if record is None else record.isolation
        return [one for one in suspects if isolation is not None and one.is_mended(isolation.calls)]

    def _reference_in(self, module: str) -> CallRecord:
        """What the reference does there; each module by itself where all of them are too much to keep."""
        wanted = _looked_at(module, self._paired[0])
        return self._in_all.part(wanted) if self._in_all.is_whole else self._run_reference(wanted)

    @cached_property
    def _in_all(self) -> CallRecord:
        """The one run of the reference for all suspects."""
        if self._records:
            return self._records.meant
        wanted = [_looked_at(module, self._paired[0]) for module in dict.fromkeys(self._modules.looked_at)]
        return self._run_reference(lambda path: any(one(path) for one in wanted))

    def _run_reference(self, wanted: Callable[[str], bool]) -> CallRecord:
        side, inputs = self._reference
        self._budget.spend()
        record = CallRecord(wanted)
        side.runner.run(side.model, inputs, record)
        return record

    def _run_port(
        self,
        fault: Fault,
        instead: Mapping[CallKey, Sequence[Array]] | None = None,
        tables: Mapping[TensorKey, Array] | None = None,
    ) -> CallRecord:
        bench = self._bench
        wanted = _looked_at(fault.pair.candidate.module, self._paired[1])
        if self._records and instead is None and tables is None:
            return self._records.made.part(wanted)
        self._budget.spend()
        record = CallRecord(wanted, Isolation(bench.expected, self._alone.way), instead, tables)
        bench.side.runner.run(bench.side.model, bench.inputs, record)
        return record


def _is_asked(suspect: Suspect, dropping: Set[object]) -> bool:
    """Tell whether a suspect is looked at: no trial has named a cause, but what the data suggest may be in its code."""
    return suspect.key in dropping or not suspect.is_explained or _is_open_code(suspect)


def _may_be_dropped(suspect: Suspect, bench: Bench) -> bool:
    """Tell whether wrong code calls methods for an effect that they may not have."""
    open_code = suspect.culprit.sureness != "confirmed" and suspect.culprit.part != "layer"
    return open_code and drops_results(bench.side.model, suspect.culprit.candidate)


def _is_open_code(suspect: Suspect) -> bool:
    """Tell whether code between layers is at fault, and no trial has named a cause."""
    return suspect.culprit.part != "layer" and suspect.culprit.sureness != "confirmed"


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


def _explained(suspect: Suspect, inside: FollowedCalls, found: Replaced) -> Suspect:
    """Name the first call that was replaced, what it does otherwise, and by which relation, if none is known yet."""
    call, other = next(iter(found.values()))
    named = _with_function(suspect, function_fault(inside, found))
    return named if suspect.is_explained else _with_relation(named, inside, call, other)


def _with_relation(suspect: Suspect, inside: FollowedCalls, call: RecordedCall, other: Counterpart) -> Suspect:
    """Name as the cause what relates the call's result to the right one, which was tried: all is right with that."""
    found = relation_of_results(inside, call, other)
    return suspect if found is None else replace(suspect, culprit=with_relation(suspect.culprit, found))


def _with_dropped(suspect: Suspect, call: RecordedCall) -> Suspect:
    """Name the call whose result is right and not used."""
    open_ = replace(suspect, culprit=replace(suspect.culprit, cause=""))
    named = _with_function(open_, FunctionFault(call.name, (call.place,), difference="dropped result"))
    return replace(named, culprit=replace(named.culprit, cause="result-dropped", sureness="suspected"))


def _with_function(suspect: Suspect, fault: FunctionFault) -> Suspect:
    """Name the call as where the suspect goes wrong; what was a hint only spoke of what comes of it."""
    facts = suspect.culprit.facts
    known = facts if suspect.is_explained else {name: one for name, one in facts.items() if name in _FACTS_OF_PLACE}
    return replace(suspect, culprit=replace(suspect.culprit, inside=fault, line=fault.lines[0], facts=known))
