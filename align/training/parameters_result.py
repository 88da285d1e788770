"""What one training step did to every parameter of a side, or of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.verdicts import Finding, Verdict

ParameterState = Literal[
    "trained",
    "frozen",
    "without influence",
    "no gradient",
    "zero gradient",
    "did not move",
    "moved without a gradient",
    "not finite",
]

FINE = frozenset({"trained", "frozen", "without influence"})


@dataclass(frozen=True, slots=True)
class CheckedParameter:
    """One parameter after one step.

    `reason` says why it is not trained, "" if it is. `gradient` is the largest absolute value, None where there was
    none; `moved` the largest change, `units` the same in units in the last place. `rate` is that of its group, None if
    it has none; `holders` counts its places in groups of optimizers. `ddp_index` is its number in the messages of
    torch's DistributedDataParallel, None for a frozen one.
    """

    name: str
    module: str
    shape: tuple[int, ...]
    state: ParameterState
    reason: str
    gradient: float | None
    moved: float
    units: float
    rate: float | None
    holders: int
    ddp_index: int | None


@dataclass(frozen=True, slots=True)
class CheckedBuffer:
    """A buffer after one pass in training mode: the largest change of its values."""

    name: str
    moved: float


@dataclass(frozen=True, slots=True)
class CheckedSide:
    """All parameters and buffers of a side; the `loss` is None if a step of the user's own returns none."""

    label: str
    framework: str
    loss: float | None
    updates: int
    parameters: tuple[CheckedParameter, ...]
    buffers: tuple[CheckedBuffer, ...]

    @property
    def at_fault(self) -> tuple[CheckedParameter, ...]:
        """Trainable parameters that one step does not train."""
        return tuple(one for one in self.parameters if one.state not in FINE)


@dataclass(frozen=True, slots=True)
class UnlikeParameter:
    """A pair of parameters of which one side trains one only, or for which the reasons differ."""

    reference: str
    candidate: str
    reference_state: ParameterState
    candidate_state: ParameterState
    reason: str


@dataclass(frozen=True, slots=True)
class ParametersResult(ShownResult):
    """One side or both; `unlike` are pairs in different states, `asked` the parameters of the numbers asked for."""

    result_kind = "params"
    sides: tuple[CheckedSide, ...]
    unlike: tuple[UnlikeParameter, ...]
    asked: tuple[CheckedParameter, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict
