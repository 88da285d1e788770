"""Each paired layer of a port alone, in one run of it, or two where the code between the layers may be at fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align.core.findings import Finding
from align.errors import UserCodeError
from align.steps.isolate import Isolation
from align.steps.locate import find_faults, isolated_comparisons, to_force
from align.steps.pair_inputs import call_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from align.core.comparisons import LayerComparison
    from align.core.culprits import IsolatedComparison
    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.core.traces import Trace
    from align.steps.calls import CallPair
    from align.steps.isolate import IsolatedCall, IsolatedNoise
    from align.steps.locate import Fault
    from align.steps.pair_inputs import CallKey
    from align.workflows.sides import Side


@dataclass(frozen=True, slots=True)
class IsolatedLayers:
    """Faults in the order in which they show, outputs judged alone by the reference's keys, what was not done."""

    faults: tuple[Fault, ...] = ()
    outputs: dict[str, IsolatedComparison] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


class Bench:
    """The port, to be run with what the reference had in the place of what it makes itself."""

    def __init__(
        self,
        side: Side,
        inputs: Mapping[str, Array],
        reference: Trace,
        pairs: Sequence[CallPair],
        noise: IsolatedNoise | None,
        layers: Sequence[LayerComparison],
    ) -> None:
        self.side, self.pairs, self.reference = side, pairs, reference
        self._inputs, self._noise = inputs, noise
        unlike = {(one.candidate, one.call) for one in layers if one.outcome != "aligned"}
        self._trusted = {call_key(pair) for pair in pairs if pair.certain or call_key(pair) not in unlike}

    def run(
        self, forced: Set[CallKey] = frozenset(), stand_ins: Mapping[str, Model] | None = None
    ) -> dict[CallKey, IsolatedCall]:
        """Run the port; raises UserCodeError if it fails on the reference's values."""
        sink = Isolation(self.reference, self.pairs, self._noise, trusted=self._trusted, forced=forced)
        self.side.runner.run(self.side.model, self._inputs, sink, stand_ins)
        return sink.calls


def isolate_layers(bench: Bench) -> IsolatedLayers:
    """Find every call of the port that is at fault by itself; a run that fails is a finding."""
    try:
        calls = bench.run()
        doubted = to_force(bench.pairs, calls)
        forced = {key: call for key, call in bench.run(doubted).items() if key in doubted} if doubted else {}
    except UserCodeError as error:
        message = f"layers could not be compared alone: {error.message}"
        return IsolatedLayers(findings=(Finding("not-isolated", "warning", bench.side.label, message),))
    faults = find_faults(bench.pairs, calls, forced)
    return IsolatedLayers(tuple(faults), isolated_comparisons(bench.pairs, calls, faults))
