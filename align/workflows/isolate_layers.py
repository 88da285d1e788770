"""Each paired layer of a port alone, in one run of it, or two where the code between the layers may be at fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align.core.allowances import NOTHING
from align.core.findings import Finding
from align.errors import UserCodeError
from align.steps.isolate import Isolation
from align.steps.locate import find_faults, isolated_comparisons, to_force

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from align.core.allowances import Allowances
    from align.core.culprits import IsolatedComparison
    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.core.traces import Trace
    from align.steps.calls import CallPair
    from align.steps.isolate import IsolatedCall, IsolatedNoise
    from align.steps.locate import Fault
    from align.steps.pair_inputs import CallKey
    from align.workflows.sides import Side


MOST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class IsolatedLayers:
    """Faults in the order in which they show, outputs judged alone by the reference's keys, what was not done.

    `forced` are the calls that must be given the reference's inputs: the port's own would carry a fault on.
    """

    faults: tuple[Fault, ...] = ()
    outputs: dict[str, IsolatedComparison] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    forced: frozenset[CallKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Seen:
    """The calls of one run of the port, and what kept it from its end, "" if nothing did."""

    calls: dict[CallKey, IsolatedCall]
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Bench:
    """The port, to be run with what the reference had in the place of what it makes itself."""

    side: Side
    inputs: Mapping[str, Array]
    reference: Trace
    pairs: Sequence[CallPair]
    noise: IsolatedNoise | None
    allowances: Allowances = NOTHING

    def run(self, forced: Set[CallKey] = frozenset(), stand_ins: Mapping[str, Model] | None = None) -> Seen:
        """Run the port; if it fails on the reference's values, what was seen until then counts."""
        sink = Isolation(self.reference, self.pairs, self.noise, forced=forced, allowances=self.allowances)
        try:
            self.side.runner.run(self.side.model, self.inputs, sink, stand_ins)
        except UserCodeError as error:
            ended = {key: call for key, call in sink.calls.items() if call.ended}
            return Seen(ended, error.message)
        return Seen(sink.calls)


def isolate_layers(bench: Bench) -> IsolatedLayers:
    """Find every call of the port that is at fault by itself; what a run did not come to is a finding."""
    seen, forced = _run(bench)
    findings: tuple[Finding, ...] = ()
    if seen.failed:
        message = f"layers behind could not be compared alone: {seen.failed}"
        findings = (Finding("not-isolated", "warning", bench.side.label, message),)
    faults = find_faults(bench.pairs, seen.calls, forced)
    outputs = isolated_comparisons(bench.pairs, seen.calls, faults)
    return IsolatedLayers(tuple(faults), outputs, findings, frozenset(forced))


def _run(bench: Bench) -> tuple[Seen, set[CallKey]]:
    """Run until no call is off that the port gives something wrong.

    Such a call is given the reference's inputs in the next run. If that does not help it, the port hands it the same
    thing in another form, or it is at fault itself: it gets its own again.
    """
    forced: set[CallKey] = set()
    helpless: set[CallKey] = set()
    seen = bench.run()
    for _ in range(MOST_ROUNDS):
        helpless |= to_force(bench.pairs, seen.calls, helpless) & forced
        more = to_force(bench.pairs, seen.calls, helpless) - helpless
        if not more - forced and not forced & helpless:
            break
        forced = (forced | more) - helpless
        seen = bench.run(forced)
    return seen, forced
