"""What was found first in a training that was watched: NaN, Inf or an explosion, and the calls just before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.verdicts import Finding, Verdict

NonfiniteKind = Literal["NaN", "Inf", "explosion"]
Direction = Literal["forward", "backward", "step", "update"]
GuiltyPart = Literal["input", "parameter", "output", "gradient"]


@dataclass(frozen=True, slots=True)
class NonfiniteEvent:
    """Where it began; steps are counted from 0.

    `direction` is "step" for what the loop does with gradients between the way back and the optimizer. `layer` is the
    path of the innermost module, "" outside of the model. `operator` is a functional call or the class
    of the layer, and `line` the line of user code that called it, forward, "" where none did. `part` says which tensor
    is to blame, `tensor` its name if it has one. `cause` is an id, `reason` and `remedy` say it in words. `samples` are
    indices in the batch where few are to blame. `loss_scale` is what the loss was multiplied by; `better_scale` the
    largest power of two with which this would not have overflowed, None where no scale helps or none is known.
    `weights` says whether they were sound before the step. `factor` is how many times its median an explosion is.
    """

    kind: NonfiniteKind
    step: int
    direction: Direction
    layer: str
    call: int
    operator: str
    line: str
    part: GuiltyPart
    tensor: str
    cause: str
    reason: str
    remedy: str
    weights: str
    samples: tuple[int, ...] = ()
    dtype: str = ""
    loss_scale: float | None = None
    better_scale: float | None = None
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class CallFigures:
    """The root mean square of what one call returned, or of the gradient that came back, in the last steps.

    The last number is that of the step of the event; None for steps in which it was not seen.
    """

    layer: str
    call: int
    operator: str
    line: str
    direction: Direction
    rms: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class NearOverflow:
    """A float16 tensor whose largest value comes near 65504; `better_scale` keeps it away, None in the forward pass."""

    layer: str
    operator: str
    direction: Direction
    step: int
    largest: float
    loss_scale: float | None
    better_scale: float | None


@dataclass(frozen=True, slots=True)
class NonfiniteResult(ShownResult):
    """A training that was watched; `event` is None where nothing was found.

    `steps` were seen, of which `skipped` ended without an update because a loss scale was too large. `tensors` is how
    many were looked at in the last whole step. `shown_steps` are those of the figures `before`.
    """

    result_kind = "nonfinite"
    label: str
    framework: str
    steps: int
    skipped: int
    tensors: int
    event: NonfiniteEvent | None
    shown_steps: tuple[int, ...]
    before: tuple[CallFigures, ...]
    near: tuple[NearOverflow, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict
