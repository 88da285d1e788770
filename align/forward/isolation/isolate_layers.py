"""Each paired layer of a port alone, in one run of it, or two where the code between the layers may be at fault."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import TYPE_CHECKING

from align.core.verdicts import Finding
from align.errors import UserCodeError
from align.forward.isolation.isolated_calls import IsolatedCall, Isolation, IsolationOptions
from align.forward.isolation.locate_faults import calls_to_force, find_faults, isolated_comparisons
from align.forward.layers.compare_traces import paired_outputs
from align.forward.thresholds import HELPED_SHARE, MOST_ISOLATED_ROUNDS
from align.traces.module_calls import call_key
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.protocols import Inputs, Model
    from align.forward.forward_result import IsolatedComparison
    from align.forward.isolation.expected_calls import ExpectedCalls
    from align.forward.isolation.locate_faults import Fault
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


def isolate_layers(bench: Bench) -> IsolatedLayers:
    """Find every call of the port that is at fault by itself; what a run did not come to is a finding."""
    seen, way = _run(bench)
    findings: tuple[Finding, ...] = ()
    if seen.failed:
        message = sentence("forward_finding.not_isolated", error=seen.failed)
        findings = (Finding("not-isolated", "warning", bench.side.label, message),)
    faults = find_faults(bench.expected.pairs, seen.calls, way)
    outputs = isolated_comparisons(bench.expected.pairs, seen.calls, faults)
    return IsolatedLayers(tuple(faults), outputs, findings, way, seen.calls)


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
        way = replace(way, forced=frozenset((way.forced | more) - helpless))
        seen = bench.run(way)
        if seen.failed and way.resizes:
            way = IsolationOptions(resizes=False)
            seen = bench.run(way)
    return seen, way


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
