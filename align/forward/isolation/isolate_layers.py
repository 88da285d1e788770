"""Each paired layer of a port alone, in one run of it, or two where the code between the layers may be at fault."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import TYPE_CHECKING

from align.core.verdicts import Finding
from align.forward.isolation.doubtful_modules import settle_doubtful
from align.forward.isolation.isolated_calls import IsolatedCall, IsolationOptions
from align.forward.isolation.locate_faults import calls_to_force, has_wrong_inputs, isolated_comparisons
from align.forward.layers.compare_traces import paired_outputs
from align.forward.thresholds import HELPED_SHARE, MOST_ISOLATED_ROUNDS
from align.traces.module_calls import call_key
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.forward.forward_result import IsolatedComparison
    from align.forward.isolation.bench import Bench, IsolatedRun
    from align.forward.isolation.locate_faults import Fault
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
    found = set()
    for key in spoiled:
        before = [one for one in forced if one in calls and calls[one].begun < calls[key].begun]
        found |= {max(before, key=lambda one: calls[one].begun)} if before else set()
    return found


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
