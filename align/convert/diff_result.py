"""Two checkpoints compared tensor by tensor, and what training did to the tensors of two sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.measurements import Measurement
    from align.core.parameters import Shape
    from align.core.verdicts import Verdict

TensorOutcome = Literal["equal", "values differ", "dtypes differ", "shapes differ"]
UpdateOutcome = Literal[
    "same",
    "one factor apart",
    "decay differs",
    "updates differ",
    "reference only",
    "candidate only",
    "neither moved",
    "without influence",
    "not finite",
    "shapes differ",
]
ALIKE = frozenset({"same", "neither moved", "without influence"})


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """One tensor of two checkpoints: what it differs by. Shape and dtype of the reference are those after the map.

    `outcome` names the gravest difference; `identical` says whether all bits are equal, which -0.0 against 0.0 are not,
    though equal. `measurement` is None where the shapes differ; `note` says why no shape could be had.
    """

    reference: str
    candidate: str
    reference_shape: Shape
    candidate_shape: Shape
    reference_dtype: str
    candidate_dtype: str
    outcome: TensorOutcome
    identical: bool
    measurement: Measurement | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointDiff(ShownResult):
    """Two checkpoints compared tensor by tensor, in the reference's order.

    `missing` and `extra` map names without a counterpart in the candidate and in the reference to dtype and shape.
    `dropped` were left out by the map, with its reasons. `unchanged` lists what is equal bit for bit, None where that
    was not asked for. `strip` are prefixes that were taken off the names.
    """

    result_kind = "diff"
    reference: str
    candidate: str
    reference_format: str
    candidate_format: str
    tensors: tuple[TensorDifference, ...]
    missing: dict[str, str]
    extra: dict[str, str]
    dropped: dict[str, str]
    warnings: tuple[str, ...]
    verdict: Verdict
    unchanged: tuple[str, ...] | None = None
    strip: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateDifference:
    """The update of one pair: what each side's values moved by, the reference's after the map.

    `reference_moved` and `candidate_moved` are root mean squares of the updates. `relative` is the norm of the
    difference of the updates by the norm of the reference's, `limit` what it may be; None where there is no such norm.
    `rounding` is the part of the limit that the units of the stored values make. `factor` is the candidate's update by
    the reference's in the least squares sense, `beside_factor` what that leaves, relative to the candidate's update.
    `decay` is the share of its values that the candidate takes off beyond the reference: the difference of the updates
    is proportional to the values; None if it is not. `start` is the relative difference of the values before the step.
    """

    reference: str
    candidate: str
    shape: Shape
    outcome: UpdateOutcome
    reference_moved: float
    candidate_moved: float
    relative: float | None
    limit: float | None
    rounding: float | None
    factor: float | None
    beside_factor: float | None
    decay: float | None
    start: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class UpdatesDiff(ShownResult):
    """The updates of two sides, those that are furthest off first.

    `reference` and `candidate` are the files before and after. `factor` is the one by which all updates that differ
    are apart, None if there is none. `missing` and `extra` are names without a counterpart in the candidate and in the
    reference, `dropped` what the map leaves out, with its reasons.
    """

    result_kind = "updates"
    reference: tuple[str, str]
    candidate: tuple[str, str]
    tensors: tuple[UpdateDifference, ...]
    factor: float | None
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    dropped: dict[str, str]
    warnings: tuple[str, ...]
    verdict: Verdict
