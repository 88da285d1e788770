"""The metric over all exchanges of data, metric and weights, and the fewest that make the candidate agree."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import isfinite, isnan
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.core.verdicts import Coverage, Outcome, Verdict
from align.evaluation.thresholds import METRIC_LIMIT_WITHOUT_NOISE, METRIC_ROUNDING
from align.evaluation.validation_result import PARTS, Combination
from align.measure.thresholds import NOISE_FACTOR
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence, Set

    from align.core.dtypes import Array
    from align.core.name_map import SideOf
    from align.evaluation.validation_result import OutputDifference, Part
    from align.words.message_words import Sentence

    Cause = Part | Literal["model"]


@dataclass(frozen=True, slots=True)
class Setup:
    """Whose model, weights, data and metric."""

    model: SideOf
    weights: SideOf
    data: SideOf
    metric: SideOf


class Scores:
    """Scores of samples, or of whole batches that count by their size; their mean is the metric."""

    def __init__(self) -> None:
        self.samples = 0
        self.low, self.high = float("inf"), float("-inf")
        self._total = 0.0

    def add(self, scores: Array, size: int) -> None:
        """Add one score a sample, (size,), or one of the whole batch, ()."""
        with np.errstate(invalid="ignore"):  # Inf and -Inf together are NaN
            self._total += float(np.broadcast_to(scores, (size,)).sum(dtype=np.float64))
        self.samples += size
        self.low, self.high = min(self.low, float(scores.min())), max(self.high, float(scores.max()))

    @property
    def value(self) -> float:
        """The metric."""
        return self._total / self.samples


def metric_limit(scores: Scores, moved: Scores | None, near: int) -> float:
    """What rounding may move the metric by.

    `moved` holds by how much the reference's scores move when it runs in float64, None where it cannot; `near` samples
    may get another class by rounding, each of which can change the mean by the range of the scores.
    """
    known = moved is not None and isfinite(moved.value)  # in float64 the metric may be no number
    floor = abs(scores.value) * (METRIC_ROUNDING if known else METRIC_LIMIT_WITHOUT_NOISE)
    by_noise = NOISE_FACTOR * moved.value if moved is not None and known else 0.0
    return floor + by_noise + near / scores.samples * (scores.high - scores.low)


def list_combinations(
    values: Mapping[Setup, float],
    within: Mapping[tuple[SideOf, SideOf], bool],
    limit: float,
    unlike: Collection[Part] = (),
) -> tuple[Combination, ...]:
    """The reference, the candidate, and every exchange between them of which there is a value.

    `within` says by whose weights the candidate holds, and whose data it gets, if its outputs are within their limits.
    Nothing agrees with a part of the candidate that is known to be `unlike` the reference's, however near the metric.
    """
    parts = [
        part for part in PARTS if len({getattr(setup, part) for setup in values if setup.model == "candidate"}) > 1
    ]
    own = values[_setup("reference", parts, set())]
    rows = []
    for model, exchanged in _exchanges(parts):
        setup = _setup(model, parts, exchanged)
        difference = values[setup] - own
        agrees = _near(setup, difference, limit) and all(getattr(setup, part) == "reference" for part in unlike)
        agrees = agrees and (model == "reference" or within[setup.weights, setup.data])
        chosen = tuple(part for part in PARTS if part in exchanged)
        rows.append(Combination(model, chosen, values[setup], difference, agrees))
    return tuple(rows)


def _near(setup: Setup, difference: float, limit: float) -> bool:
    """On the same data and by the same metric, the outputs say more: within their limits they leave only rounding."""
    by_outputs = setup.model == "candidate" and setup.data == setup.metric == "reference"
    return isfinite(difference) if by_outputs else abs(difference) <= limit


def find_causes(rows: Sequence[Combination]) -> tuple[tuple[Cause, ...], tuple[tuple[Part, ...], ...]]:
    """The smallest set of parts with which the candidate agrees, and other sets that are as small."""
    agreeing = [row.exchanged for row in rows if row.model == "candidate" and row.agrees]
    if not agreeing:
        return ("model",), ()
    smallest = [parts for parts in agreeing if len(parts) == min(map(len, agreeing))]
    return smallest[0], tuple(smallest[1:])


def judge_validation(
    rows: Sequence[Combination], outputs: OutputDifference, metrics: tuple[str, str], counts: tuple[int, int, int]
) -> Verdict:
    """Aligned if the candidate as it is agrees with the reference; not compared where the reference has no metric.

    `metrics` are the names of both sides' metrics, `counts` the samples of both sides and the finite numbers among the
    reference's outputs.
    """
    reference, candidate = rows[0], next(row for row in rows if row.model == "candidate")
    coverage = Coverage("samples", min(counts[:2]), 0, *(max(0, a - b) for a, b in (counts[:2], counts[1::-1])))
    if not counts[2]:
        return Verdict(Outcome.NOT_COMPARED, sentence("validate_verdict.reference_not_finite"), coverage)
    values = reference.value, candidate.value
    if isfinite(values[0]) and isfinite(values[1]):
        figures = sentence("validate_verdict.figures", metric=metrics[0], reference=values[0], candidate=values[1])
    else:
        figures = _not_finite(metrics, values, outputs)
    if not isfinite(reference.value):
        return Verdict(Outcome.NOT_COMPARED, figures, coverage)
    if candidate.agrees:
        reason = sentence("validate_verdict.agrees", figures=figures, ties=outputs.ties)
        return Verdict(Outcome.ALIGNED, reason, coverage)
    causes, others = find_causes(rows)
    if causes == ("model",) and outputs.factor <= 1.0 and not isfinite(candidate.value):
        cause: str = sentence("validate_verdict.metric_of_rounding", metric=metrics[1], value=candidate.value)
    else:
        cause = _blame(causes, others, outputs)
    return Verdict(Outcome.NOT_ALIGNED, joined("; ", [figures, cause]), coverage)


def _not_finite(metrics: tuple[str, str], values: tuple[float, float], outputs: OutputDifference) -> Sentence:
    """Say which side's metric is no number, and whether the outputs are why."""
    mine, theirs = values
    shown = sentence("validate_verdict.values_of_each", reference=mine, candidate=theirs)
    if mine == theirs or (isnan(mine) and isnan(theirs)):
        shown = sentence("validate_verdict.value_of_both", value=mine)
    figures, agree = outputs.measurement, outputs.factor <= 1.0
    odd = {
        "reference": figures.nan_reference + figures.inf_reference,
        "candidate": figures.nan_candidate + figures.inf_candidate,
    }
    held = [side for side, count in odd.items() if count]
    key = "validate_verdict.not_finite_outputs_agree" if agree else "validate_verdict.not_finite_outputs_differ"
    return sentence(key, metrics=[*dict.fromkeys(metrics)], values=shown, sides=held)


def _blame(causes: Sequence[Cause], others: Sequence[Sequence[Part]], outputs: OutputDifference) -> str:
    if causes == ("model",):
        wrong = outputs.flipped - outputs.ties
        counts = {"wrong": wrong, "total": outputs.samples}
        return sentence("validate_verdict.models_differ", **counts, next_command=_next_run(outputs))
    if others:
        choices = joined(" or ", [joined(" and ", parts) for parts in (causes, *others)])
        return sentence("validate_verdict.several_causes", choices=choices)
    return sentence("validate_verdict.cause", parts=causes)


def _next_run(outputs: OutputDifference) -> str:
    """What finds the layer: one batch will do unless those before it agree, when the port may have kept of them."""
    first = outputs.first_batch or 1
    if first == 1:
        return sentence("validate_next.forward")
    return sentence("validate_next.forward_in_batches", batch=first)


def _exchanges(parts: Sequence[Part]) -> Iterator[tuple[SideOf, Set[Part]]]:
    """Each side as it is, the candidate with more and more parts of the reference, the reference with one other."""
    yield "reference", set()
    for count in range(len(parts) + 1):
        yield from (("candidate", set(chosen)) for chosen in combinations(parts, count))
    yield from (("reference", {part}) for part in parts if part != "weights")


def _setup(model: SideOf, parts: Sequence[Part], exchanged: Set[Part]) -> Setup:
    """Parts that are not the model's own are the other side's; those that the sides share are the reference's."""
    other: SideOf = "candidate" if model == "reference" else "reference"
    whose = {part: other if part in exchanged else model for part in parts}
    shared = dict.fromkeys(PARTS, "reference") | {"weights": model}
    return Setup(model, **{**shared, **whose})  # type: ignore[arg-type]
