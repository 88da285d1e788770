"""The steps of both sides, and what the candidate does where it is given the reference's tensors throughout."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from align.training.steps.record_step import COMPUTED
from align.training.steps.replace_step import PairedLayers, ReplacedStep, unscaled
from align.training.updates.update_rules import read_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.core.dtypes import Array
    from align.core.layer_settings import ParameterGroup
    from align.core.name_map import NameMap
    from align.core.parameters import ParameterSet
    from align.core.verdicts import Finding
    from align.traces.module_calls import CallPairs
    from align.training.open_training import TrainingSide
    from align.training.steps.judge_step import StepJudge
    from align.training.steps.measure_step_noise import StepNoise
    from align.training.steps.record_step import StepTrace
    from align.training.steps.recorded_steps import RecordedSteps
    from align.training.steps.replace_step import ReplacedTensor
    from align.training.steps.step_precision import StepPrecision


class FirstStep(Protocol):
    """What came of the candidate's first step: its loss, gradients of parameters, and values after it."""

    @property
    def loss(self) -> float | None:
        """The loss, None if the step returns none."""
        ...

    @property
    def computed_gradients(self) -> Mapping[str, Array]:
        """The gradients that the way back gave."""
        ...

    @property
    def last_gradients(self) -> Mapping[str, Array]:
        """Those of the last part of a batch, where the step takes several parts."""
        ...

    @property
    def given_gradients(self) -> Mapping[str, Array]:
        """Those that the optimizers were called with."""
        ...

    @property
    def after(self) -> Mapping[str, Array]:
        """All parameters and buffers at its end."""
        ...


def runs_of(traces: tuple[StepTrace, StepTrace]) -> tuple[int, int]:
    """How often the first step of each side runs the model itself."""
    first, second = (len({one.call for one in trace.forward.captures if not one.module}) for trace in traces)
    return first, second


def optimizer_scale(mine: Mapping[str, ParameterGroup], theirs: Mapping[str, ParameterGroup]) -> float:
    """By what the candidate's optimizers multiply gradients, over the reference's; 1 where that is not one number."""
    rules = [[read_rule(group) for group in groups.values()] for groups in (mine, theirs)]
    scales = [{one.gradient_scale for one in own if one is not None} for own in rules]
    if any(len(own) != 1 for own in scales):
        return 1.0
    return scales[1].pop() / scales[0].pop()


@dataclass(frozen=True)
class SeenSteps:
    """What both sides did.

    With a `live` candidate, `first` is its first step with the reference's tensors throughout, which `judge` judged
    layer by layer; without one it is the ordinary first step, and `judge` keeps what is wrong by itself in that.
    `start` are the candidate's values before it. The reference may be live too. `scales` are those of both sides'
    losses that the steps take off again before optimizers get gradients: all that is computed is so much larger. The
    candidate's optimizers multiply gradients by `by_optimizers`, over the reference's; with a live candidate the
    gradients that are given are those after that. With several optimizers, `meant_after` are the candidate's parameters
    at the end of the reference's first step. `thorough` says that wrong code gets as many runs as it takes.
    """

    names: NameMap
    sides: tuple[RecordedSteps, RecordedSteps]
    noise: StepNoise
    calls: CallPairs
    judge: StepJudge
    first: FirstStep
    start: Mapping[str, Array]
    findings: tuple[Finding, ...]
    precision: StepPrecision
    live: TrainingSide | None = None
    live_reference: TrainingSide | None = None
    scales: tuple[float, float] = (1.0, 1.0)
    by_optimizers: float = 1.0
    meant_after: Mapping[str, Array] = field(default_factory=dict)
    thorough: bool = False

    def replaced_step(self, seen: Callable[[ReplacedTensor], float]) -> ReplacedStep:
        """A sink for the first step once more with the reference's tensors; see ReplacedStep."""
        trace = self.traces[0]
        sink = ReplacedStep(trace, PairedLayers(trace, self.calls.pairs), seen, self.start, scale=self.scale)
        sink.meant_after = self.meant_after
        return sink

    @property
    def scale(self) -> float:
        """By how much the candidate's loss is scaled more than the reference's."""
        return self.scales[1] / self.scales[0]

    def computed(self, side: int, step: int, *, scaled: bool = True) -> Mapping[str, Array]:
        """The gradients that a side's ways back gave, on the reference's scale; not `scaled`: without any."""
        found = self.traces[side].values(step, COMPUTED)
        scale = (1.0, self.scale)[side] if scaled else self.scales[side]
        return {name: unscaled(one, scale) for name, one in found.items()} if scale != 1.0 else found

    @property
    def sees_updates(self) -> bool:
        """Tell whether both sides' optimizers are their frameworks': what steps do without one is not seen."""
        return all(side.trace.held is None or side.trace.held or not side.own_step for side in self.sides)

    def precision_of(self, target: str) -> tuple[str, str]:
        """The coarsest dtypes in which a parameter or buffer of the candidate was used."""
        return self.precision.of_layer(self._owners.get(target, ""))

    @cached_property
    def _owners(self) -> dict[str, str]:
        return {one.name: one.module for one in self.sides[1].parameters.parameters}

    @property
    def runs_a_step(self) -> tuple[int, int]:
        """How often the first step runs the model itself: several times on parts of a batch."""
        return runs_of(self.traces)

    @property
    def runs_alike(self) -> bool:
        """Tell whether it does so as often on both sides, or calls parts of a model by themselves on one."""
        first, second = self.runs_a_step
        return first == second or not first or not second

    @property
    def traces(self) -> tuple[StepTrace, StepTrace]:
        """What was recorded of both."""
        return self.sides[0].trace, self.sides[1].trace

    @property
    def parameters(self) -> tuple[ParameterSet, ParameterSet]:
        """Parameters and buffers of both."""
        return self.sides[0].parameters, self.sides[1].parameters
