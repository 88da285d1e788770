"""The same dataset and metric through both models, side by side; where they differ, parts exchanged one at a time.

One pass over the data runs both models on each batch, and the reference in float64 for its noise, so that nothing is
kept but figures. The data, the metric and the weights may be those of either side.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from align.core.name_map import SIDES
from align.core.progress import silent
from align.core.verdicts import Finding, Outcome
from align.errors import CannotRunError, InputsError, UsageError
from align.evaluation.validation.dataset_batches import Dataset, count_differing_samples
from align.evaluation.validation.exchange_parts import (
    Scores,
    Setup,
    find_causes,
    judge_validation,
    list_combinations,
    metric_limit,
)
from align.evaluation.validation.metrics import NamedMetric, main_output
from align.evaluation.validation.sample_differences import SampleTally
from align.evaluation.validation_result import Validation
from align.models.call_model import call_model, model_caller, noise_unmeasured, widened_side
from align.models.describe_sides import copied_sides
from align.models.open_side import Side, open_sides
from align.traces.compare_weights import TransferredWeights
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.name_map import NameMap, SideOf
    from align.core.progress import Progress
    from align.core.protocols import Model
    from align.evaluation.validation.dataset_batches import Batch
    from align.evaluation.validation.metrics import Metric
    from align.evaluation.validation_result import Combination, Part
    from align.models.open_side import Side

T = TypeVar("T")
U = TypeVar("U")


def validate_models(  # noqa: PLR0913 - one parameter an option
    reference: str | Model | Side,
    candidate: str | Model | Side,
    *,
    data: str | Iterable[Any],
    metric: str | Metric = "accuracy",
    candidate_data: str | Iterable[Any] | None = None,
    candidate_metric: str | Metric | None = None,
    name_map: NameMap | Path | str | None = None,
    limit_samples: int | None = None,
    progress: Progress = silent,
) -> Validation:
    """Run a dataset through both models in evaluation mode, compare their outputs sample by sample, and the metric.

    `data` are batches (inputs, labels), or the name of a function that returns them. `metric(outputs, labels)` gives
    one score a sample, or one number a batch; `accuracy`, `top5` and `mean-squared-error` are known by name. A
    candidate with data or a metric of its own is run with them, and with the reference's; its weights are exchanged
    too if they differ. Raises InputsError or UserCodeError for data and metrics that cannot be used.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def model(path, layer):
    ...     weights = {"weight": np.eye(3, 4, dtype=np.float32)}
    ...     return ArrayModel((ArrayLayer(path, layer, lambda x, weight: x @ weight.T, weights),))
    >>> batches = [(np.eye(4, dtype=np.float32), np.array([0, 1, 2, 2]))]
    >>> result = validate_models(model("fc", "torch.nn.Linear"), model("head", "mindspore.nn.Dense"), data=batches)
    >>> result.verdict.outcome.value, result.combinations[0].value
    ('aligned', 0.75)
    """
    if limit_samples is not None and limit_samples < 1:
        raise UsageError.of("evaluation_error.no_samples_asked", count=limit_samples)
    sides = open_sides(reference, candidate)
    datasets = _by_side(data, candidate_data, lambda source: Dataset(source, limit_samples))
    metrics = _by_side(metric, candidate_metric, NamedMetric)
    weights = TransferredWeights(sides, name_map, next(datasets["reference"].batches()).inputs)
    scored = ScoredModels(sides, datasets, metrics, progress)
    rows, limit = scored.compare(weights)
    first = scored.tallies["candidate", "reference"]
    samples = len(datasets["reference"].facts), len(datasets.get("candidate", datasets["reference"]).facts)
    names = metrics["reference"].label, metrics.get("candidate", metrics["reference"]).label
    verdict = judge_validation(rows, first.result(), names, (*samples, first.finite))
    if first.alike:
        caveat = sentence("forward_caveat.non_finite_on_both_sides", count=first.alike, total=first.elements)
        verdict = replace(verdict, caveats=(caveat,))
    causes, alternatives = find_causes(rows) if verdict.outcome is Outcome.NOT_ALIGNED else ((), ())
    return Validation(
        reference=sides[0].label,
        candidate=sides[1].label,
        metrics=names,
        samples=samples,
        limit=limit,
        outputs=first.result(),
        combinations=rows,
        causes=causes,
        alternatives=alternatives,
        findings=(*copied_sides(*sides), *scored.findings, *weights.report(sides[1].label)),
        environment={side.reader.name: side.reader.environment() for side in sides},
        verdict=verdict,
    )


def _by_side(own: T, other: T | None, make: Callable[[T], U]) -> dict[SideOf, U]:
    """What each side has; only the reference's where the candidate has none of its own."""
    made: dict[SideOf, U] = {"reference": make(own)}
    return made if other is None else made | {"candidate": make(other)}


Outputs = dict[str, "Array"]


class ScoredModels:
    """Both models run over the data of both sides.

    `tallies` compare their outputs, by whose weights the candidate holds and whose data it gets.
    """

    def __init__(
        self,
        sides: tuple[Side, Side],
        datasets: Mapping[SideOf, Dataset],
        metrics: Mapping[SideOf, NamedMetric],
        progress: Progress,
    ) -> None:
        self._sides: dict[SideOf, Side] = {"reference": sides[0], "candidate": sides[1]}
        self._datasets, self._metrics, self._progress = datasets, metrics, progress
        self._scores: dict[Setup, Scores] = {}
        self._moved: Scores | None = None
        self._wide: Side | None = None
        self._apart = Scores()
        self._unlike: list[Part] = []
        self.tallies: dict[tuple[SideOf, SideOf], SampleTally] = {}
        self.findings: tuple[Finding, ...] = ()

    def compare(self, weights: TransferredWeights) -> tuple[tuple[Combination, ...], float]:
        """Run all that is needed; return the combinations, and the limit of the metric."""
        self._widen()
        self._read_all("candidate")
        self._compare_data()
        scores = self._scores[Setup("reference", "reference", "reference", "reference")]
        limit = metric_limit(scores, self._moved, self.tallies["candidate", "reference"].near)
        self._compare_metrics(limit)
        rows = self._combine(limit)
        if not rows[1].agrees and weights.exchangeable:
            with weights.loaded():
                self._read_all("reference")
            rows = self._combine(limit)
        return rows, limit

    def _combine(self, limit: float) -> tuple[Combination, ...]:
        values = {setup: scores.value for setup, scores in self._scores.items()}
        within = {key: tally.result().factor <= 1.0 for key, tally in self.tallies.items()}
        return list_combinations(values, within, limit, self._unlike)

    def _compare_metrics(self, limit: float) -> None:
        """Tell whether both metrics score the reference's outputs alike: a mean may be the same by chance."""
        apart = self._apart.value if self._apart.samples else 0.0
        if apart != 0.0 and not apart <= limit:  # a limit of NaN allows nothing but 0
            self._unlike.append("metric")
            message = sentence("validate_finding.metrics_not_finite")
            if isfinite(apart):
                message = sentence("validate_finding.metrics_differ", difference=apart)
            self.findings += (Finding("metrics-differ", "error", self._metrics["candidate"].label, message),)

    def _compare_data(self) -> None:
        """Tell whether both sides have the same samples."""
        if "candidate" not in self._datasets:
            return
        mine, theirs = (self._datasets[side] for side in SIDES)
        inputs, labels = count_differing_samples(mine.facts, theirs.facts)
        counts = len(mine.facts), len(theirs.facts)
        if inputs or labels or counts[0] != counts[1]:
            self._unlike.append("data")
            parts = [sentence("validate_finding.data_differ", count=min(counts), inputs=inputs, labels=labels)]
            if counts[0] != counts[1]:
                parts.append(sentence("validate_finding.other_length", reference=counts[0], candidate=counts[1]))
            message = joined("; ", parts)
            self.findings += (Finding("data-differ", "error", theirs.label, message),)

    def _read_all(self, weights: SideOf) -> None:
        """Run both models over all data, the candidate with the weights that it holds now."""
        for whose, dataset in self._datasets.items():
            own = weights == "candidate"
            what = sentence("validate_stage.data" if own else "validate_stage.data_on_reference_weights", side=whose)
            tally = self.tallies[weights, whose] = SampleTally()
            scores: dict[Setup, Scores] = defaultdict(Scores)
            with self._state_restored():
                for batch in dataset.batches():
                    self._add(batch, (weights, whose), tally, scores)
                    self._progress(what, tally.samples, tally.samples + 1)
            self._progress(what, tally.samples, tally.samples)
            self._scores |= scores

    @contextmanager
    def _state_restored(self) -> Iterator[None]:
        """Let what the models keep of a batch be there in the next, until all batches are through."""
        with ExitStack() as stack:
            for side in (*self._sides.values(), *([self._wide] if self._wide else [])):
                stack.enter_context(model_caller(side).restoring(side.model))
            yield

    def _add(self, batch: Batch, whose: tuple[SideOf, SideOf], tally: SampleTally, scores: dict[Setup, Scores]) -> None:
        """Run one batch through all models and metrics."""
        outputs = {name: call_model(side, batch.inputs, restores=False) for name, side in self._sides.items()}
        wide = self._wide_outputs(batch)
        main = _main_outputs(outputs, self._sides, batch.size)
        tally.add(*main, None if wide is None else main_output(wide), _classes(main[0], batch.labels))
        of_reference: dict[SideOf, Array] = {}
        for owner, metric in self._metrics.items():
            for model in SIDES:
                setup = Setup(model, "reference" if model == "reference" else whose[0], whose[1], owner)
                found = metric.scores(outputs[model], batch)
                scores[setup].add(found, batch.size)
                of_reference.setdefault(owner, found)
        if whose == ("candidate", "reference"):
            self._add_doubts(batch, of_reference, wide)

    def _add_doubts(self, batch: Batch, scores: Mapping[SideOf, Array], wide: Outputs | None) -> None:
        """By how much rounding, and the candidate's metric, move the scores of the reference."""
        own = scores["reference"]
        if wide is not None and self._moved is not None:
            self._moved.add(_distances(self._metrics["reference"].scores(wide, batch), own), batch.size)
        if "candidate" in scores:
            other = scores["candidate"]
            pair = (own, other) if own.shape == other.shape else (own.mean(), other.mean())
            self._apart.add(_distances(*pair), batch.size)

    def _widen(self) -> None:
        try:
            self._wide, self._moved = widened_side(self._sides["reference"]), Scores()
        except CannotRunError as error:
            self._without_noise(error)

    def _wide_outputs(self, batch: Batch) -> Outputs | None:
        """What the reference returns in float64; None, from the first failure on, where it cannot run so."""
        try:
            return None if self._wide is None else call_model(self._wide, batch.inputs, restores=False)
        except CannotRunError as error:
            self._without_noise(error)
            return None

    def _without_noise(self, error: CannotRunError) -> None:
        self._wide = self._moved = None
        self.findings += (noise_unmeasured(self._sides["reference"], error),)


def _distances(scores: Array, others: Array) -> Array:
    """|differences| of scores; none between two NaN, and between infinities of one sign."""
    with np.errstate(invalid="ignore"):
        same = (scores == others) | (np.isnan(scores) & np.isnan(others))
        return np.asarray(np.where(same, 0.0, np.abs(np.subtract(scores, others))))


def _main_outputs(outputs: Mapping[SideOf, Outputs], sides: Mapping[SideOf, Side], size: int) -> tuple[Array, Array]:
    """The tensors that hold the predictions; raises InputsError if their shapes differ, or are not those of samples."""
    mine, theirs = (main_output(outputs[name]) for name in SIDES)
    labels = [sides[name].label for name in SIDES]
    if mine.shape != theirs.shape:
        shapes = {"own": str(list(mine.shape)), "other": str(list(theirs.shape))}
        raise InputsError.of("evaluation_error.other_shapes", reference=labels[0], candidate=labels[1], **shapes)
    if mine.shape[:1] != (size,):
        shape = str(list(mine.shape))
        raise InputsError.of("evaluation_error.no_row_a_sample", side=labels[0], shape=shape, count=size)
    return mine, theirs


def _classes(outputs: Array, labels: Any) -> Array | None:
    """The labels where outputs (samples, classes) are scores of classes, else None."""
    known = isinstance(labels, np.ndarray) and labels.dtype.kind in "iu"
    fitting = known and outputs.ndim == 2 and outputs.shape[1] > 1 and labels.shape == outputs.shape[:1]
    return labels if fitting else None
