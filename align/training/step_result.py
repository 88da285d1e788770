"""Training steps of both sides compared, as a value; `align.core.json_data` gives its JSON form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.measurements import Limit, Measurement
    from align.core.verdicts import Finding, Verdict
    from align.forward.forward_result import FunctionFault

StepOutcome = Literal["aligned", "not aligned", "could not tell"]
FaultKind = Literal["loss", "forward", "backward", "gradients", "update", "buffer", "trained"]
Sureness = Literal["confirmed", "suspected", "unknown"]
FaultyPart = Literal["layer", "code", "loss", "step", "optimizer", "parameters"]


@dataclass(frozen=True, slots=True)
class StepCulprit:
    """Something in the port's training step that is wrong by itself, though all that it was given was right.

    `kind` says what of it: the value of the `loss` or its gradient, a layer's output (`forward`), the gradients that a
    layer sends back (`backward`), what the step makes of the `gradients` before the optimizer gets them, the
    optimizer's `update`, a `buffer` after the step, or that parameters are not `trained`. `part` is a layer, the code
    of a module between its layers, the loss, the step, the optimizer, or the parameters. Paths are those of modules, ""
    for the model itself; `parameters` are those of the candidate that show it, `near` is the layer beside which code is
    wrong. `factor` is the multiple of the limit, infinite where a gradient is missing, and 0 where a layer drops
    otherwise. `cause` is an id, "" where none is known, and `facts` its figures. `line` is the file and number of the
    line that makes the layer, or calls the one near by, "" where it is not known. `step` counts from 1. A cause is
    `confirmed` if what it says gives the same figures, and `change` is what to write. `also` are the paths of
    other modules that show the same, made or written by the same line. `inside` is the functional call of the code
    that is at fault, where one was found.
    """

    kind: FaultKind
    part: FaultyPart
    reference: str
    candidate: str
    reference_class: str
    candidate_class: str
    factor: float
    cause: str = ""
    facts: dict[str, float | int | str] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    near: str = ""
    line: str = ""
    step: int = 1
    change: str = ""
    sureness: Sureness = "unknown"
    also: tuple[str, ...] = ()
    inside: FunctionFault | None = None


@dataclass(frozen=True, slots=True)
class ComparedLoss:
    """The loss of one step, counted from 1, taken from the reference's state; None where a step returns none.

    `alone` is the candidate's of the reference's outputs, of the first step only. `limit` is what it may differ by.
    """

    step: int
    reference: float | None
    candidate: float | None
    alone: float | None
    limit: float | None


@dataclass(frozen=True, slots=True)
class ComparedGradient:
    """The gradient of a paired parameter in the first step, in the candidate's layout.

    `measurement`, `limit` and `factor` are of the gradient as the whole step gives it, with all that gathers in it;
    `alone` is the factor where each layer was given the reference's tensors and gradients, which decides. "could not
    tell": it is rounding on the reference's side already, or was not compared. `reference_norm` and `candidate_norm`
    are the L2 norms of the whole step's gradients, None on a side that has none.
    """

    reference: str
    candidate: str
    module: str
    outcome: StepOutcome
    measurement: Measurement | None
    limit: Limit | None
    factor: float | None
    alone: float | None
    reference_norm: float | None = None
    candidate_norm: float | None = None


@dataclass(frozen=True, slots=True)
class ComparedUpdate:
    """What both optimizers made of a paired parameter, each from the reference's values and given its gradients.

    All sizes are L2 norms: `norm` of the parameter before the first step, `reference_update` and `candidate_update` of
    what each step changed. `factor` is the largest multiple of what rounding allows between the two.
    """

    reference: str
    candidate: str
    norm: float
    reference_update: tuple[float, ...]
    candidate_update: tuple[float, ...]
    factor: float


@dataclass(frozen=True, slots=True)
class StepApart:
    """Why a paired parameter ends the first step elsewhere, one thing at a time; of a faulty step only.

    All are L2 norms: `update` of what the reference's step changed; `whole` of the gap to the candidate under its own
    gradients; `by_gradients` of what the reference's optimizer makes otherwise of the candidate's gradients;
    `by_optimizer` of what the candidate's makes otherwise of the reference's. `at_rate_zero` is how far the reference's
    and the candidate's step move it with all learning rates 0. None for a step that could not be taken.
    """

    reference: str
    candidate: str
    update: float
    whole: float | None
    by_gradients: float | None
    by_optimizer: float | None
    at_rate_zero: tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class ComparedLayer:
    """A paired call by itself: the worst factors of what it returns, of the gradients that it sends back."""

    reference: str
    candidate: str
    reference_class: str
    candidate_class: str
    call: int
    depth: int
    forward: float | None
    backward: float | None


@dataclass(frozen=True, slots=True)
class ComparedMoment:
    """What the optimizers keep of a paired parameter after a step, counted from 1, under the reference's gradients.

    `reference_moment` and `candidate_moment` are what they call it. `factor` is the multiple of the limit. `scale` is
    the one factor that makes the reference's moments of this kind the candidate's, None if they are equal, or if it is
    none: another unit, which is no fault. "could not tell": such a factor after a single step, where another beta gives
    one too, gradients that are rounding, or that the optimizers scale unalike.
    """

    reference: str
    candidate: str
    reference_moment: str
    candidate_moment: str
    step: int
    outcome: StepOutcome
    measurement: Measurement
    factor: float
    scale: float | None = None


@dataclass(frozen=True, slots=True)
class FreeStep:
    """A step, counted from 1, of both sides left to themselves since the reference's start; the losses of these runs.

    `apart` is the distance of the paired parameters of both sides over the way that the reference's have gone since its
    start, all taken as one vector; `noise` is the same of the reference and itself with all values rounded at random
    before each step. `single_steps` is what the candidate's steps differ by, each from the reference's state and under
    its gradients, added up: that is no chaos, but another form of a rule, as another place of epsilon. None where a
    side could not take the step, or the reference did not move.
    """

    step: int
    reference: float | None
    candidate: float | None
    apart: float | None
    noise: float | None
    single_steps: float | None = None


@dataclass(frozen=True, slots=True)
class StepComparison(ShownResult):
    """What was compared, what is wrong by itself, and the verdict."""

    result_kind = "step"
    reference: str
    candidate: str
    steps: int
    losses: tuple[ComparedLoss, ...]
    layers: tuple[ComparedLayer, ...]
    gradients: tuple[ComparedGradient, ...]
    culprits: tuple[StepCulprit, ...]
    findings: tuple[Finding, ...]
    environment: dict[str, dict[str, str]]
    verdict: Verdict
    updates: tuple[ComparedUpdate, ...] = ()
    free: tuple[FreeStep, ...] = ()
    moments: tuple[ComparedMoment, ...] = ()
    apart: tuple[StepApart, ...] = ()


@dataclass(frozen=True, slots=True)
class CapturedSteps(ShownResult):
    """Training steps of one side in a folder; it decides nothing, so there is no verdict.

    `calls` counts the calls of layers in the first step, `gradients` the parameters that have one, `values` parameters
    and buffers.
    """

    result_kind = "steps"
    folder: str
    side: str
    framework: str
    losses: tuple[float | None, ...]
    calls: int
    gradients: int
    values: int
    nbytes: int
    environment: dict[str, str]
    findings: tuple[Finding, ...]
