"""What two runs of one training step gave, of one side or of two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.parameters import Shape
    from align.core.verdicts import Finding, Verdict

StepPart = Literal["input", "output", "loss", "gradient", "parameter", "buffer"]
TensorPart = StepPart | Literal["initial value"]

Builds = Literal["same", "differ", "one object", "not built twice"]
RepeatCause = Literal["own generator", "kept state", "unseeded", "order of sums", "initial values", ""]


@dataclass(frozen=True, slots=True)
class UnrepeatedTensor:
    """A tensor that is not the same twice: `part` says what it is, an `initial value` of a side built twice too.

    `differing` of its `count` elements differ, by up to `max_abs`, which is `relative` to its largest value; both None
    where the second run had another shape, or no such tensor. `rounding` says whether that is within some units in
    the last place.
    """

    part: TensorPart
    name: str
    shape: Shape
    count: int
    differing: int
    max_abs: float | None
    relative: float | None
    rounding: bool


@dataclass(frozen=True, slots=True)
class PartCount:
    """How many tensors of a kind there were, and how many of them differ."""

    part: str
    tensors: int
    differing: int


@dataclass(frozen=True, slots=True)
class RepeatedSide:
    """A side whose step was taken twice; `first` is the first tensor that differs, None if there is none.

    `builds` says what building it twice gave. `cause` is likely, "" where nothing differs, and `reason` says so in a
    short fact.
    """

    label: str
    framework: str
    builds: Builds
    parts: tuple[PartCount, ...]
    first: UnrepeatedTensor | None
    cause: RepeatCause
    reason: str

    @property
    def tensors(self) -> int:
        """How many tensors were held against each other."""
        return sum(one.tensors for one in self.parts)


@dataclass(frozen=True, slots=True)
class DeterminismResult(ShownResult):
    """One side or both; `settings` are what `make_deterministic` set."""

    result_kind = "determinism"
    seed: int
    threads: int | None
    settings: tuple[str, ...]
    sides: tuple[RepeatedSide, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict
