"""Whether two optimizers did the same under the same gradients, and what explains it where they did not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.dtypes import Array
    from align.core.layer_settings import ParameterGroup

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
