"""What one dataset and one metric say of two models: sample by sample, and with their parts exchanged one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.measurements import Limit, Measurement
    from align.core.name_map import SideOf
    from align.core.verdicts import Finding, Verdict

Part = Literal["data", "metric", "weights"]
PARTS: tuple[Part, ...] = ("data", "metric", "weights")


@dataclass(frozen=True, slots=True)
class SampleDifference:
    """One sample on which the two models differ; `index` counts from 0.

    `difference` is the largest |difference| of its outputs. `reference` and `candidate` are the predicted classes (None
    where the task is no classification), `label` the true one. `margin` is by how much the reference prefers its class
    to the candidate's; it is a `tie` if rounding, which may move an output by `limit`, can turn that round.
    """

    index: int
    difference: float
    label: int | None = None
    reference: int | None = None
    candidate: int | None = None
    margin: float | None = None
    limit: float | None = None
    tie: bool = False


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """The outputs of both models on the same samples.

    `measurement` and `limit` are those of the batch that is furthest outside, or nearest to its limit; `factor` is the
    multiple of the limit at which all would pass. `flipped` counts samples whose predicted class differs, `ties` those
    of them that rounding explains, `indexes` are the first of them. `worst` are the samples that differ most, those
    that rounding cannot have flipped first. `first_batch` is the number, from 1, of the first batch whose outputs are
    not within their limits, None if all are.
    """

    samples: int
    measurement: Measurement
    limit: Limit
    factor: float
    flipped: int
    ties: int
    indexes: tuple[int, ...]
    worst: tuple[SampleDifference, ...]
    first_batch: int | None = None


@dataclass(frozen=True, slots=True)
class Combination:
    """The metric of one model with some parts exchanged for those of the other side.

    `exchanged` is () for a side as it is. `difference` is that to the reference as it is; it `agrees` if that is within
    the limit of the metric and, on the reference's data, the outputs are within theirs.
    """

    model: SideOf
    exchanged: tuple[Part, ...]
    value: float
    difference: float
    agrees: bool


@dataclass(frozen=True, slots=True)
class Validation(ShownResult):
    """Both models on the same data with the same metric, or each with its own.

    `metrics` and `samples` are those of each side. `limit` is what rounding may move the metric by. `outputs` compares
    the models on the reference's data. `causes` are the parts whose exchange, all of them together, makes the candidate
    agree; ("model",) if no exchange does, () where nothing differs. `alternatives` are other such sets, as small.
    """

    result_kind = "validate"
    reference: str
    candidate: str
    metrics: tuple[str, str]
    samples: tuple[int, int]
    limit: float
    outputs: OutputDifference
    combinations: tuple[Combination, ...]
    causes: tuple[Part | Literal["model"], ...]
    alternatives: tuple[tuple[Part, ...], ...]
    findings: tuple[Finding, ...]
    environment: dict[str, dict[str, str]]
    verdict: Verdict
