"""Two checkpoints compared tensor by tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from align.core.measurements import Measurement
    from align.core.parameters import Shape
    from align.core.verdicts import Verdict

TensorOutcome = Literal["equal", "values differ", "dtypes differ", "shapes differ"]


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
class CheckpointDiff:
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
