"""Both sides of a comparison of training steps, and what was seen of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.name_map import NameMap
    from align.core.parameters import ParameterSet
    from align.core.protocols import Batch
    from align.core.verdicts import Finding
    from align.traces.module_calls import CallPairs
    from align.training.open_training import TrainingSide
    from align.training.steps.judge_step import StepJudge
    from align.training.steps.measure_step_noise import StepNoise
    from align.training.steps.record_step import StepTrace
    from align.training.steps.replace_step import ReplacedStep
    from align.training.steps.step_precision import StepPrecision


@dataclass(frozen=True)
class StepTask:
    """The sides, what they are given, and where their steps are kept."""

    sides: tuple[TrainingSide, TrainingSide]
    batches: Sequence[Batch]
    folder: Path
    begun: Callable[[], None]


@dataclass(frozen=True)
class SeenSteps:
    """What both sides did, and what the candidate did in its first step with the reference's tensors throughout."""

    names: NameMap
    parameters: tuple[ParameterSet, ParameterSet]
    traces: tuple[StepTrace, StepTrace]
    noise: StepNoise
    calls: CallPairs
    judge: StepJudge
    replaced: ReplacedStep
    start: Mapping[str, Array]
    findings: tuple[Finding, ...]
    precision: StepPrecision

    def precision_of(self, target: str) -> tuple[str, str]:
        """The coarsest dtypes in which a parameter or buffer of the candidate was used."""
        owner = next((one.module for one in self.parameters[1].parameters if one.name == target), "")
        return self.precision.of_layer(owner)
