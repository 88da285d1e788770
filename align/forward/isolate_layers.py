"""Each paired layer of a port alone, in one run of it, or two where the code between the layers may be at fault."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np

from align.core.parameters import rounded_as
from align.core.traces import smallest_factor
from align.core.verdicts import Finding
from align.errors import CannotRunError, UserCodeError
from align.forward.compare_traces import paired_outputs
from align.forward.isolated_calls import IsolatedCall, Isolation, IsolationOptions
from align.forward.locate_faults import (
    Fault,
    calls_to_force,
    fault_of_module,
    find_faults,
    has_wrong_inputs,
    is_off,
    isolated_comparisons,
)
from align.forward.thresholds import HELPED_SHARE, MOST_DOUBTFUL_TRIALS, MOST_ISOLATED_ROUNDS
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.traces.module_calls import call_key
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from align.core.parameters import Array
    from align.core.protocols import Inputs, Model
    from align.core.traces import CallStart, Capture
    from align.forward.forward_result import IsolatedComparison
    from align.forward.isolated_calls import ExpectedCalls, IsolatedTensor
    from align.models.open_side import Side
    from align.traces.module_calls import CallKey, CallPair


UNCHANGED = IsolationOptions()


@dataclass(frozen=True, slots=True)
class IsolatedLayers:
    """Faults in the order in which they show, outputs judged alone by the reference's keys, what was not done.

    `way` is how the port was run, so that no fault carries on to others; `calls` are those of that run.
    """

    faults: tuple[Fault, ...] = ()
    outputs: dict[str, IsolatedComparison] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    way: IsolationOptions = UNCHANGED
    calls: Mapping[CallKey, IsolatedCall] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Tell whether the port ran to its end, and nothing of it was beyond its limit on the way."""
        tensors = (one for call in self.calls.values() for one in (*call.inputs.values(), *call.outputs.values()))
        return not self.faults and not self.findings and all(one.factor <= 1.0 for one in tensors)


def isolate_layers(bench: Bench) -> IsolatedLayers:
    """Find every call of the port that is at fault by itself; what a run did not come to is a finding."""
    seen, way = _run(bench)
    findings: tuple[Finding, ...] = ()
    if seen.failed:
        message = sentence("forward_finding.not_isolated", error=seen.failed)
        findings = (Finding("not-isolated", "warning", bench.side.label, message),)
    settled = settle_doubtful(bench, seen.calls, way)
    outputs = isolated_comparisons(bench.expected.pairs, settled.calls, settled.faults)
    return IsolatedLayers(tuple(settled.faults), outputs, findings, settled.way, settled.calls)


def _run(bench: Bench) -> tuple[IsolatedRun, IsolationOptions]:
    """Run until no call is off that the port gives something wrong.

    Such a call is given the reference's inputs in the next run. If that does not help it much, the port hands it the
    same thing in another form, or it is at fault itself: it gets its own again. Where the port's code does not stand
    the reference's shapes, or makes another size of them, it keeps its own.
    """
    way = UNCHANGED
    seen = bench.run(way)
    if seen.failed or _is_resized(bench.expected.pairs, seen.calls):
        way = IsolationOptions(resizes=False)
        seen = bench.run(way)
    own, helpless = seen.calls, set[tuple[str, int]]()
    for _ in range(MOST_ISOLATED_ROUNDS):
        still_off = calls_to_force(bench.expected.pairs, seen.calls, way, helpless) & way.forced
        helpless |= {key for key in still_off if not _helped(own[key], seen.calls[key])}
        more = calls_to_force(bench.expected.pairs, seen.calls, way, helpless) - helpless
        if not more - way.forced and not way.forced & helpless:
            break
        before, way = seen, replace(way, forced=frozenset((way.forced | more) - helpless))
        seen = bench.run(way)
        if spoiled := _given_worse(before.calls, seen.calls):
            alone = replace(way, apart=way.apart | _nearest_before(spoiled, way.forced, seen.calls))
            other = bench.run(alone)
            if len(_given_worse(before.calls, other.calls)) < len(spoiled) and not other.failed:
                way, seen = alone, other
        if seen.failed and way.resizes:
            way = IsolationOptions(resizes=False)
            seen = bench.run(way)
    return seen, way


def _given_worse(before: Mapping[CallKey, IsolatedCall], after: Mapping[CallKey, IsolatedCall]) -> set[CallKey]:
    """Calls that the port gives something wrong only since others were given right inputs: they use the same tensor."""
    return {
        key
        for key, call in after.items()
        if has_wrong_inputs(call) and key in before and not has_wrong_inputs(before[key])
    }


def _nearest_before(
    spoiled: set[CallKey], forced: frozenset[CallKey], calls: Mapping[CallKey, IsolatedCall]
) -> set[CallKey]:
    """For each of these calls, the last one before it that is given other inputs than the port's."""
    nearest = set()
    for key in spoiled:
        before = [one for one in forced if one in calls and calls[one].begun < calls[key].begun]
        nearest |= {max(before, key=lambda one: calls[one].begun)} if before else set()
    return nearest


def _is_resized(pairs: Sequence[CallPair], calls: Mapping[CallKey, IsolatedCall]) -> bool:
    """Tell whether outputs have another size only because calls before them were given another size.

    Not so if a call that was given the right size returns another one in an ordinary run too: that explains the rest.
    """
    as_ever = []
    for pair in pairs:
        call = calls.get(call_key(pair), IsolatedCall())
        ends = {a.key: prod(a.shape) == prod(b.shape) for a, b, _ in paired_outputs(pair.reference, pair.candidate)}
        if call.inputs_factor != inf:
            as_ever += [ends[key] for key, one in call.outputs.items() if one.measurement is None and key in ends]
    return bool(as_ever) and all(as_ever)


def _helped(own: IsolatedCall, forced: IsolatedCall) -> bool:
    """Tell whether a call came much nearer to what it should return."""
    return (forced.factor or 0.0) < HELPED_SHARE * (own.factor or 0.0)


# Whether a module is at fault of which nobody knows if it ends where its counterpart does: tried in the port.
#
# Such a module is off where the port does the rest of its work behind it: then a function behind it makes what the
# reference's module returns, and it is right. And what is given wrong values may be given them by such a module: then
# all is right once it returns what the reference's does.


@dataclass(frozen=True, slots=True)
class Settled:
    """The faults as they are to be told, and the run of the port in which no other ones are left."""

    faults: list[Fault]
    calls: Mapping[CallKey, IsolatedCall]
    way: IsolationOptions


def settle_doubtful(bench: Bench, calls: Mapping[CallKey, IsolatedCall], way: IsolationOptions) -> Settled:
    """Find the faults, and settle which doubtful modules are at fault themselves."""
    pairs = bench.expected.pairs
    faults = find_faults(pairs, calls, way)
    doubted = [fault for fault in faults if _is_doubted(fault)]
    later = _ending_later(bench, calls) if doubted else {}
    doubted = [fault for fault in doubted if fault.key not in later]
    apart = _without_effect(bench, way, doubted, calls)
    excused = (
        _completed_behind(bench, way, [fault for fault in doubted if fault.key not in apart], calls) | later.keys()
    )
    if excused or apart:
        faults = find_faults(pairs, calls, way, apart, excused)
    settled = Settled(faults, calls, way)
    for pair in _to_try(pairs, calls, faults, excused)[:MOST_DOUBTFUL_TRIALS]:
        settled = _with_trusted(bench, settled, pair, excused)
    classes = {pair.reference.class_name for pair in pairs if call_key(pair) in later}
    ending = {call_key(fault.pair) for fault in settled.faults if fault.pair.reference.class_name in classes}
    return replace(settled, faults=[_where_it_ends(bench, fault, settled.calls, ending) for fault in settled.faults])


def _where_it_ends(bench: Bench, fault: Fault, calls: Mapping[CallKey, IsolatedCall], ending: Set[CallKey]) -> Fault:
    """A fault of a doubtful call as it is to be told: held against what comes next, if one side hands it on as it is.

    If the port does, or others of its kind do, the call does all of the work. If the reference alone does, the port
    goes on with it in code that may be at fault as well: then what this gives to the next call is.
    """
    shown = calls.get(call_key(fault.shown_by)) if fault.shown_by and fault.shown_in == "inputs" else None
    value = fault.tensor.value
    if fault.key in ending or shown is None or value is None or fault.shown_by is None:
        return _by_its_end(bench, fault) if fault.key in ending else fault
    wrong = [one for one in shown.inputs.values() if one.value is not None]
    if any(_is_same(one.value, value) for one in wrong):
        return _by_its_end(bench, fault)
    trace = bench.expected.trace
    meant = trace.value(fault.tensor.reference)
    if _is_doubted(fault) and len(wrong) == 1 and _is_same(trace.value(wrong[0].reference), meant):
        return Fault(fault.shown_by, "inputs", wrong[0])
    return fault


def _is_same(one: Array | None, other: Array) -> bool:
    return one is not None and one.size == other.size and np.array_equal(one.ravel(), other.ravel())


def _ending_later(bench: Bench, calls: Mapping[CallKey, IsolatedCall]) -> dict[CallKey, Capture]:
    """The doubtful calls that are off, but return what the reference gives to a later call: they do more work."""
    ending = {}
    for pair in bench.expected.pairs:
        call = calls.get(call_key(pair))
        off = [] if call is None or pair.certain else [one for one in call.outputs.values() if one.factor > 1.0]
        ends = [_given_later(bench, one) for one in off]
        if ends and (end := ends[0]) is not None and None not in ends:
            ending[call_key(pair)] = end
    return ending


def _given_later(bench: Bench, tensor: IsolatedTensor) -> Capture | None:
    """The reference's input of a later call that a tensor is, within its limit."""
    if tensor.value is None or tensor.limit is None or not rounded_as(tensor.reference.dtype):
        return None
    trace, limit = bench.expected.trace, tensor.limit
    later = (
        capture
        for capture in trace.inputs
        if capture.order > tensor.reference.order and prod(capture.shape) == tensor.value.size
    )
    for capture in later:
        off = np.abs(trace.value(capture).reshape(-1).astype(np.float64) - tensor.value.reshape(-1))
        if off.max() <= limit.max_abs and np.sqrt(np.mean(np.square(off))) <= limit.rmse:
            return capture
    return None


def _by_its_end(bench: Bench, fault: Fault) -> Fault:
    """A fault of a doubtful call, held against what the reference gives to the call that shows it.

    It ends there, or others of its kind do, so what the reference's counterpart returns is not what it should return.
    """
    shown, tensor = fault.shown_by, fault.tensor
    if not _is_doubted(fault) or shown is None or fault.shown_in != "inputs" or tensor.value is None:
        return fault
    given = [
        capture
        for capture in bench.expected.trace.inputs
        if (capture.module, capture.call) == (shown.reference.module, shown.reference.call)
        and capture.shape == tensor.value.shape
    ]
    if len(given) != 1:
        return fault
    meant = bench.expected.trace.value(given[0])
    measured = measure(meant, tensor.value)
    limit = limit_for(measured, (given[0].dtype, given[0].dtype), None)
    factor = smallest_factor(measured, limit)
    return replace(fault, tensor=replace(tensor, reference=given[0], measurement=measured, limit=limit, factor=factor))


def _is_doubted(fault: Fault) -> bool:
    return not fault.pair.certain and fault.part != "inputs" and fault.tensor.factor != inf


def _without_effect(
    bench: Bench, way: IsolationOptions, doubted: Sequence[Fault], calls: Mapping[CallKey, IsolatedCall]
) -> frozenset[CallKey]:
    """The doubtful calls of which what is wrong behind them does not depend: it stays whatever they return."""
    showing = [fault for fault in doubted if fault.shown_by is not None]
    if not showing:
        return frozenset()
    run = bench.run(replace(way, trusted=frozenset(fault.key for fault in showing)))
    if run.failed:
        return frozenset()
    return frozenset(fault.key for fault in showing if _shown(fault, calls) == _shown(fault, run.calls))


def _shown(fault: Fault, calls: Mapping[CallKey, IsolatedCall]) -> dict[str, float]:
    """How far all is off that shows a fault."""
    call = calls.get(call_key(fault.shown_by)) if fault.shown_by else None
    told = {} if call is None else call.inputs if fault.shown_in == "inputs" else call.outputs
    return {key: one.factor for key, one in told.items() if one.factor > 1.0}


def _to_try(
    pairs: Sequence[CallPair],
    calls: Mapping[CallKey, IsolatedCall],
    faults: Sequence[Fault],
    excused: frozenset[CallKey],
) -> list[CallPair]:
    """Doubtful calls that are off and end before some fault shows that may be theirs, the first to end first."""
    named = {fault.key for fault in faults}
    open_faults = [fault for fault in faults if fault.part != "layer" and fault.pair.certain and not fault.made_by]
    last = max((_shows(fault, calls) for fault in open_faults), default=-1)
    to_try = []
    for pair in pairs:
        key = call_key(pair)
        call = calls.get(key)
        if pair.certain or call is None or key in named or key in excused:
            continue
        if is_off(call) and call.ended <= last and all(one.view is not None for one in call.outputs.values()):
            to_try.append(pair)
    return sorted(to_try, key=lambda pair: calls[call_key(pair)].ended)


def _shows(fault: Fault, calls: Mapping[CallKey, IsolatedCall]) -> int:
    call = calls[fault.key]
    return call.begun if fault.part == "inputs" else call.ended - call.returned


def _with_trusted(bench: Bench, known: Settled, pair: CallPair, excused: frozenset[CallKey]) -> Settled:
    """Let one more module return what the reference's does, if that mends anything and spoils nothing."""
    key = call_key(pair)
    if not any(
        _shows(fault, known.calls) >= known.calls[key].ended for fault in known.faults if fault.key in known.calls
    ):
        return known
    way = replace(known.way, trusted=known.way.trusted | {key})
    run = bench.run(way)
    if run.failed or key not in run.calls:
        return known
    faults = find_faults(bench.expected.pairs, run.calls, way, way.trusted, excused)
    before, after = ({(fault.key, fault.part) for fault in found} for found in (known.faults, faults))
    if not after < before:
        return known
    kept = [fault for fault in known.faults if fault.key in way.trusted]
    faults = [*faults, *kept, fault_of_module(pair, run.calls[key])]
    faults.sort(key=lambda fault: run.calls[fault.key].ended if fault.key in run.calls else -1)
    return Settled(faults, run.calls, way)


def _completed_behind(
    bench: Bench, way: IsolationOptions, doubted: Sequence[Fault], calls: Mapping[CallKey, IsolatedCall]
) -> frozenset[CallKey]:
    """The doubtful calls of which all that is off is made right by functions behind them."""
    if not doubted:
        return frozenset()
    wanted = {fault.key: [one for one in calls[fault.key].outputs.values() if one.factor > 1.0] for fault in doubted}
    watch = _Completed(Isolation(bench.expected, way), wanted, bench)
    try:
        bench.side.runner.run(bench.side.model, bench.inputs, watch)
    except (UserCodeError, CannotRunError):  # a framework may not show functions
        return frozenset()
    return frozenset(key for key, left in watch.left.items() if not left)


class _Completed:
    """An Isolation that looks at what functions return once the doubtful calls have ended."""

    functions = True

    def __init__(self, isolation: Isolation, wanted: Mapping[CallKey, Iterable[IsolatedTensor]], bench: Bench) -> None:
        self._isolation, self._expected = isolation, bench.expected
        self.left = {key: [*tensors] for key, tensors in wanted.items()}
        self._ended: set[CallKey] = set()

    @property
    def overwrites(self) -> bool:
        return self._isolation.overwrites

    def begin(self, start: CallStart) -> None:
        """Nothing is to be done at the begin of a call."""

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array] | None:
        return None if "/" in module else self._isolation.enter(module, call, inputs)

    def add(self, capture: Capture, value: Array) -> None:
        if "/" not in capture.module:
            self._isolation.add(capture, value)
            self._ended.add((capture.module, capture.call))
            return
        owner = capture.module.rpartition("/")[0]
        for key in self._ended & self.left.keys():
            if not f"{owner}.".startswith(f"{key[0]}."):
                self.left[key] = [one for one in self.left[key] if not self._is_it(one, value)]

    def again(self, capture: Capture, value: Array, known: Capture) -> None:  # noqa: ARG002
        """Look at what was returned though another call had made it."""
        self.add(capture, value)

    def finish(self, module: str, call: int) -> None:
        """Nothing is to be done at the end of a call."""

    def instead(self, capture: Capture, value: Array) -> Array | None:
        return None if "/" in capture.module else self._isolation.instead(capture, value)

    def _is_it(self, tensor: IsolatedTensor, value: Array) -> bool:
        meant = self._expected.trace.value(tensor.reference)
        if meant.size != value.size or tensor.limit is None or tensor.view is None or value.dtype.kind != "f":
            return False
        turned = tensor.view.to_candidate(meant).reshape(-1)
        return bool(np.all(np.abs(turned - value.reshape(-1)) <= tensor.limit.max_abs))


# One run of a port with what the reference had in the place of what it makes itself.


@dataclass(frozen=True, slots=True)
class IsolatedRun:
    """The calls of one run of the port, and what kept it from its end, "" if nothing did."""

    calls: dict[CallKey, IsolatedCall]
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Bench:
    """The port, to be run with what the reference had in the place of what it makes itself."""

    side: Side
    inputs: Inputs
    expected: ExpectedCalls

    def run(self, way: IsolationOptions, stand_ins: Mapping[str, Model] | None = None) -> IsolatedRun:
        """Run the port; if it fails on the reference's values, what was seen until then counts."""
        sink = Isolation(self.expected, way)
        try:
            self.side.runner.run(self.side.model, self.inputs, sink, stand_ins)
        except UserCodeError as error:
            ended = {key: call for key, call in sink.calls.items() if call.ended}
            return IsolatedRun(ended, error.message)
        return IsolatedRun(sink.calls)
