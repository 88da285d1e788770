"""What a loss scale did in a training, and whether what overflowed is its fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.verdicts import Finding

ScaleTrouble = Literal["none", "settling", "occasional", "persistent", "applied", "diverged"]


@dataclass(frozen=True, slots=True)
class ScaleStep:
    """One iteration: the scale that it had, its loss (None if not told), whether it overflowed and was an update."""

    iteration: int
    scale: float
    loss: float | None
    overflow: bool
    updated: bool


@dataclass(frozen=True, slots=True)
class OverflowPlace:
    """Where an iteration overflowed first: what `layer` returned, or the gradient that came back to it.

    `before` is the layer whose gradient came last and was finite, "" forward. `layer` is None where only gradients of
    parameters overflowed: `parameters` are those that are known.
    """

    iteration: int
    layer: str | None
    class_name: str
    direction: Literal["forward", "backward"]
    before: str = ""
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LossScaleResult(ShownResult):
    """What was seen of a loss scale; it decides nothing, so there is no verdict.

    `flow` is what scales the loss, `faked` what stood in for kernels that the device lacks. `trouble` is:
    `none` overflowed; `settling`, while a scale came down to what gradients bear; `occasional`, as a growing scale
    does; `persistent`, updates dropped to the end; `applied`, no number went into the weights; `diverged`, the loss
    itself is no number, which no scale helps. `says` tells it in words, with what to do. `place` is None where no
    iteration that overflowed was looked into.
    """

    result_kind = "scale"
    model: str
    framework: str
    flow: str
    dynamic: bool
    drops: bool
    faked: str
    steps: tuple[ScaleStep, ...]
    overflows: int
    skipped: int
    trouble: ScaleTrouble
    says: str
    place: OverflowPlace | None
    findings: tuple[Finding, ...]
