"""Modules with parameters of which no call was seen: run past their hooks, or never called.

Where they hold most of a model, agreeing outputs are all that was compared: that is no agreement layer by layer.
Whether they have an effect shows when their parameters are changed, and the model is run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.measurements import smallest_factor
from align.core.verdicts import Finding, Outcome
from align.errors import UserCodeError
from align.forward.forward_result import UnseenModule
from align.forward.parameter_power import perturb_elements
from align.forward.thresholds import MOST_LISTED_PLACES, MOST_PROBE_RUNS, MOST_UNSEEN_PARAMETERS
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.traces.uncalled_modules import own_elements, uncalled_modules
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import SideOf
    from align.core.parameters import ParameterSet
    from align.core.protocols import Inputs
    from align.core.traces import Capture, Trace
    from align.core.verdicts import Verdict
    from align.forward.forward_result import UnseenState
    from align.models.open_side import Side

_KEYS: dict[UnseenState, str] = {
    "bypassed": "forward_finding.modules_bypassed",
    "never called": "forward_finding.modules_never_called",
    "not seen": "forward_finding.modules_not_seen",
}


def unseen_modules(side: SideOf, parameters: ParameterSet, trace: Trace) -> tuple[UnseenModule, ...]:
    """The modules of a side that its run does not show, in their order."""
    return tuple(
        UnseenModule(side, module.path, module.class_name, own_elements(module, parameters))
        for module in uncalled_modules(parameters, trace)
    )


def unseen_findings(unseen: Iterable[UnseenModule], label: str) -> Iterator[Finding]:
    """One finding for each state, which names the first modules and counts all."""
    for state, key in _KEYS.items():
        own = [one for one in unseen if one.state == state]
        if own:
            listed = [f"{one.module} ({one.class_name})" for one in own[:MOST_LISTED_PLACES]]
            message = sentence(key, count=len(own), modules=listed, more=len(own) - len(listed))
            facts: dict[str, float | int | str] = {"elements": sum(one.elements for one in own)}
            yield Finding(f"modules-{state.replace(' ', '-')}", "warning", label, message, facts)


def with_unseen(verdict: Verdict, unseen: Sequence[UnseenModule], sides: Iterable[ParameterSet]) -> Verdict:
    """The verdict, with "aligned" taken back where most parameters of a side are in modules that were not seen."""
    for side, parameters in zip(("reference", "candidate"), sides, strict=True):
        own = [one for one in unseen if one.side == side]
        hidden = sum(one.elements for one in own)
        share = hidden / max(sum(own_elements(module, parameters) for module in parameters.modules), 1)
        if verdict.outcome is Outcome.ALIGNED and share > MOST_UNSEEN_PARAMETERS:
            names = [one.module for one in own]
            reason = sentence("forward_verdict.modules_unseen", share=share, side=side, modules=names)
            return replace(verdict, outcome=Outcome.NOT_COMPARED, reason=reason)
    return verdict


def probe_unseen(role: SideOf, side: Side, inputs: Inputs, trace: Trace) -> tuple[UnseenModule, ...]:
    """The modules that a run did not show, with what a change of their parameters shows; () for a compiled side."""
    if side.compiled:
        return ()
    parameters = side.reader.read_parameters(side.model, side.label)  # a run may rename them
    unseen = unseen_modules(role, parameters, trace)
    if not unseen:
        return ()
    probe = _Probe(side, inputs, trace, parameters)
    together = probe.state(unseen)
    if together != "bypassed" or len(unseen) == 1:
        return tuple(replace(one, state=together) for one in unseen)
    states: list[UnseenState] = [probe.state([one]) for one in unseen[: MOST_PROBE_RUNS - 1]]
    states += ["not seen"] * (len(unseen) - len(states))
    return tuple(replace(one, state=state) for one, state in zip(unseen, states, strict=True))


class _Probe:
    """Runs a side with parameters changed by their own size; it has its values back afterwards."""

    def __init__(self, side: Side, inputs: Inputs, trace: Trace, parameters: ParameterSet) -> None:
        self._side, self._inputs, self._trace, self._parameters = side, inputs, trace, parameters
        self._modules = {module.path: module for module in parameters.modules}
        self._values = side.reader.read_values(side.model)

    def state(self, modules: Sequence[UnseenModule]) -> UnseenState:
        """What a run says of these modules, all changed together."""
        reader, known = self._side.reader, self._parameters.by_name
        names = {name for one in modules for name in self._modules[one.module].parameters}
        masks = {name: self._values[name] == self._values[name] for name in names & self._values.keys()}
        new = perturb_elements(self._values, masks)
        first = {name: known[name].tied_to or name for name in self._values}
        sink = _ChangedOutputs(self._trace)
        reader.load_values(self._side.model, {name: new[first[name]] for name in self._values})
        try:
            self._side.runner.run(self._side.model, self._inputs, sink)
        except UserCodeError:
            return "not seen"
        finally:
            reader.load_values(self._side.model, self._values)
        return "bypassed" if sink.changed else "never called"


class _ChangedOutputs:
    """A CaptureSink that finds whether any tensor is not what it was, by more than rounding of its dtype."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._earlier = {capture.key: capture for capture in trace.captures}
        self.changed = False

    def add(self, capture: Capture, value: Array) -> None:
        """Compare one capture."""
        same = self._earlier.get(capture.key)
        if self.changed or same is None:
            return
        self.changed = same.shape != capture.shape or self._moved(same, value) > 1.0

    def _moved(self, same: Capture, value: Array) -> float:
        measurement = measure(self._trace.value(same), value)
        return smallest_factor(measurement, limit_for(measurement, (same.dtype, same.dtype), None))
