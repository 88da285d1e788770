"""What one dataset and one metric say of two models: sample by sample, and with their parts exchanged one at a time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.core.dtypes import rounded_as
from align.core.traces import smallest_factor
from align.core.verdicts import ShownResult
from align.evaluation.thresholds import MOST_FLIPPED_INDEXES, MOST_WORST_SAMPLES
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.name_map import SideOf
    from align.core.traces import Limit, Measurement
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


# The outputs of two models sample by sample, batch by batch: how far apart, and which predictions differ.
#
# Outputs are judged by the batch, as in a forward comparison. A prediction that differs is judged by itself: where
# the reference's lead of one class over the other is less than rounding may move both by, nobody is wrong.


class SampleTally:
    """Compares batches of outputs, (samples, ...) each, and keeps only figures and the worst samples.

    `near` counts samples of the reference whose two best classes are so close that rounding may exchange them, `finite`
    the numbers among its outputs that are neither NaN nor Inf, `alike` those that are so on both sides, of `elements`.
    """

    def __init__(self) -> None:
        self.samples = self.near = self.finite = self.alike = self.elements = 0
        self._flipped = self._ties = 0
        self._indexes: list[int] = []
        self._worst: list[tuple[tuple[bool, float, int], SampleDifference]] = []
        self._furthest: tuple[float, Measurement, Limit] | None = None
        self._batches = 0
        self._first: int | None = None

    def add(self, reference: Array, candidate: Array, wide: Array | None, labels: Array | None) -> None:
        """Compare one batch; `wide` is the reference's float64 output, labels (samples,) are given for classes."""
        measurement, limit = _judged(reference, candidate, wide)
        factor = smallest_factor(measurement, limit)
        if self._furthest is None or factor > self._furthest[0]:
            self._furthest = factor, measurement, limit
        self._batches += 1
        if factor > 1.0 and self._first is None:
            self._first = self._batches
        differences = _largest(reference, candidate)
        flips = dict(self._flips(reference, candidate, wide, labels))
        if labels is not None:
            self.near += int((_leads(reference) <= 2 * limit.max_abs).sum())
        for row in sorted({*flips, *np.argsort(-differences, kind="stable")[:MOST_WORST_SAMPLES].tolist()}):
            if differences[row] > 0:
                self._note(row, float(differences[row]), flips.get(row, {}))
        self.samples += len(reference)
        odd = measurement.nan_reference + measurement.inf_reference
        self.finite += measurement.count - odd
        self.alike += 0 if measurement.non_finite_mismatch else odd
        self.elements += measurement.count

    def result(self) -> OutputDifference:
        """All that was added; at least one batch must have been."""
        if self._furthest is None:
            msg = "no batch was compared"
            raise ValueError(msg)
        factor, measurement, limit = self._furthest
        worst = tuple(sample for _, sample in sorted(self._worst, key=lambda one: one[0], reverse=True))
        found = self._flipped, self._ties, tuple(self._indexes), worst, self._first
        return OutputDifference(self.samples, measurement, limit, factor, *found)

    def _flips(
        self, reference: Array, candidate: Array, wide: Array | None, labels: Array | None
    ) -> Iterator[tuple[int, dict[str, float]]]:
        """Rows whose predicted class differs, with the fields of their SampleDifference."""
        if labels is None:
            return
        mine, theirs = reference.argmax(-1), candidate.argmax(-1)
        for row in np.flatnonzero(mine != theirs).tolist():
            a, b = int(mine[row]), int(theirs[row])
            one = slice(row, row + 1)
            _, limit = _judged(reference[one], candidate[one], None if wide is None else wide[one])
            margin = float(reference[row, a]) - float(reference[row, b])
            tie = margin <= 2 * limit.max_abs
            facts = {"reference": a, "candidate": b, "margin": margin, "limit": limit.max_abs, "tie": tie}
            yield row, {"label": int(labels[row]), **facts}

    def _note(self, row: int, difference: float, flip: dict[str, float]) -> None:
        index = self.samples + row
        if flip:
            self._flipped += 1
            self._ties += bool(flip["tie"])
            if len(self._indexes) < MOST_FLIPPED_INDEXES:
                self._indexes.append(index)
        sample = SampleDifference(index, difference, **flip)  # type: ignore[arg-type]
        grave = bool(flip) and not sample.tie
        heapq.heappush(self._worst, ((grave, difference, -index), sample))
        if len(self._worst) > MOST_WORST_SAMPLES:
            heapq.heappop(self._worst)


def _judged(reference: Array, candidate: Array, wide: Array | None) -> tuple[Measurement, Limit]:
    measurement = measure(reference, candidate)
    known = wide is not None and rounded_as(wide.dtype.name) == "float64" and wide.shape == reference.shape
    noise = measure(wide, reference) if known and wide is not None else None
    return measurement, limit_for(measurement, (reference.dtype.name, candidate.dtype.name), noise)


def _largest(reference: Array, candidate: Array) -> NDArray[np.float64]:
    """The largest |difference| of each sample; NaN or Inf that is not alike on both sides counts as infinite."""
    x, y = (side.reshape(len(side), -1).astype(np.float64) for side in (reference, candidate))
    with np.errstate(invalid="ignore"):
        apart = np.abs(x - y)
    alike = (x == y) | (np.isnan(x) & np.isnan(y))
    apart[alike] = 0.0
    apart[np.isnan(apart)] = np.inf
    largest: NDArray[np.float64] = apart.max(1, initial=0.0)
    return largest


def _leads(logits: Array) -> NDArray[np.float64]:
    """By how much the best class of each sample leads."""
    best = np.partition(logits.astype(np.float64), -2, -1)[:, -2:]
    leads: NDArray[np.float64] = best[:, 1] - best[:, 0]
    return leads
