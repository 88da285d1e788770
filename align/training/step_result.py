"""Training steps of both sides compared, as a value; `align.core.verdicts` gives its JSON form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.parameters import Array
    from align.core.protocols import ParameterGroup
    from align.core.traces import Limit, Measurement
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


# Whether two optimizers did the same under the same gradients, and what explains it where they did not.

UpdateState = Literal["same", "explained", "unexplained", "rule unknown"]
FieldValue: TypeAlias = "bool | int | float | str | tuple[int | float, ...] | None"


@dataclass(frozen=True, slots=True)
class SteppedParameter:
    """A paired parameter through some steps that both sides took under the same gradients, from the same values.

    All arrays have one shape, the candidate's in the reference's layout; there is a gradient and a value after it for
    each step, the gradient as the optimizer is handed it. Both optimizers begin without any state. The groups say by
    which settings each side stepped, None where they are not known; their rates begin with the first of these steps.
    With `candidate_gradients`, the candidate stepped under its own, and is held against the reference's rule.
    """

    reference: str
    candidate: str
    before: Array
    gradients: Sequence[Array]
    reference_after: Sequence[Array]
    candidate_after: Sequence[Array]
    reference_group: ParameterGroup | None = None
    candidate_group: ParameterGroup | None = None
    candidate_reset: bool = False
    candidate_gradients: Sequence[Array] | None = None


@dataclass(frozen=True, slots=True)
class UpdateChange:
    """One thing that the candidate's update does otherwise: a stable code, and the setting of both sides.

    A setting is a field of the rule of updates (`weight_decay`, `rates`, ...); numbers that no settings give are
    solved from the data and as round as the data allow.
    """

    code: str
    setting: str
    reference: FieldValue
    candidate: FieldValue


@dataclass(frozen=True, slots=True)
class UpdateCause:
    """Changes of the reference's rule that reproduce all steps of the candidate.

    `before` is by how many limits of rounding the candidate is off the reference's rule, `after` the same with the
    changes, at most about 1. `confirmed`: the settings of the two sides differ in just this.
    """

    changes: tuple[UpdateChange, ...]
    before: float
    after: float
    confirmed: bool

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of all changes."""
        return tuple(one.code for one in self.changes)

    @property
    def factor(self) -> float:
        """How many times nearer the changed rule is; differences below a hundredth of the limit are rounding."""
        return self.before / max(self.after, 0.01)


@dataclass(frozen=True, slots=True)
class ParameterUpdates:
    """What became of one parameter.

    `difference` is by how many limits of rounding the movements of both sides differ at the worst element and step,
    the same up to 1; `places` is the largest difference of a movement in units in the last place of the value;
    `share` the largest difference of a step over the largest movement of the reference in it, None if it did not move.
    `first_step` counts from 0, None if all are the same. `causes` explain equally well, what settings confirm first:
    with more than one, `steps_to_tell` is how many steps would tell the first from the others, None if not few.
    `reference_known` and `candidate_known` tell whether the rule of a side's settings reproduces that side, None where
    the settings give none. `judged` is the share of elements that rounding leaves to be judged, `by_epsilon` the number
    of those that differ only by the place of a tiny epsilon, which is no fault.
    """

    reference: str
    candidate: str
    state: UpdateState
    difference: float
    places: float
    share: float | None
    first_step: int | None
    causes: tuple[UpdateCause, ...] = ()
    steps_to_tell: int | None = None
    reference_known: bool | None = None
    candidate_known: bool | None = None
    judged: float = 1.0
    by_epsilon: int = 0


@dataclass(frozen=True, slots=True)
class UpdateFinding:
    """Parameters whose updates differ in one way, by the names of both sides; causes as in ParameterUpdates."""

    state: UpdateState
    alternatives: tuple[tuple[UpdateChange, ...], ...]
    confirmed: bool
    references: tuple[str, ...]
    candidates: tuple[str, ...]
    difference: float
    steps_to_tell: int | None


@dataclass(frozen=True, slots=True)
class UpdatesResult:
    """All parameters, and those that differ, gathered by cause: the most parameters first."""

    steps: int
    parameters: tuple[ParameterUpdates, ...]
    findings: tuple[UpdateFinding, ...]

    @property
    def same(self) -> bool:
        """True if no parameter is updated otherwise."""
        return not self.findings
