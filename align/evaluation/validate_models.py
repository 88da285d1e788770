"""The same dataset and metric through both models, side by side; where they differ, parts exchanged one at a time.

One pass over the data runs both models on each batch, and the reference in float64 for its noise, so that nothing is
kept but figures. The data, the metric and the weights may be those of either side.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from align.core.name_map import SIDES
from align.core.protocols import silent
from align.core.traces import smallest_factor
from align.core.verdicts import Coverage, Finding, Outcome, ShownResult, Verdict
from align.errors import CannotRunError, InputsError, UsageError
from align.evaluation.dataset_batches import (
    METRIC_LIMIT_WITHOUT_NOISE,
    METRIC_ROUNDING,
    MOST_FLIPPED_INDEXES,
    MOST_WORST_SAMPLES,
    Dataset,
    NamedMetric,
    count_differing_samples,
    main_output,
)
from align.measure.limits import OutputNoise
from align.measure.thresholds import NOISE_FACTOR
from align.models.call_model import call_model, model_caller, noise_unmeasured, widened_side
from align.models.open_side import Side, copied_sides, open_sides
from align.traces.open_trace import TransferredWeights
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
    from pathlib import Path

    from numpy.typing import NDArray

    from align.core.name_map import NameMap, SideOf
    from align.core.parameters import Array
    from align.core.protocols import Model, Progress
    from align.core.traces import Limit, Measurement
    from align.evaluation.dataset_batches import Batch, Metric
    from align.words.catalogue import Sentence


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
        """Add how far rounding, and the candidate's metric, move the scores of the reference."""
        reference = scores["reference"]
        if wide is not None and self._moved is not None:
            self._moved.add(_distances(self._metrics["reference"].scores(wide, batch), reference), batch.size)
        if "candidate" in scores:
            candidate = scores["candidate"]
            pair = (
                (reference, candidate) if reference.shape == candidate.shape else (reference.mean(), candidate.mean())
            )
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


# The metric over all exchanges of data, metric and weights, and the fewest that make the candidate agree.


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
    reference_value = values[_setup("reference", parts, set())]
    rows = []
    for model, exchanged in _exchanges(parts):
        setup = _setup(model, parts, exchanged)
        difference = values[setup] - reference_value
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
        choices = joined(" or ", [sentence("validate_verdict.parts", parts=parts) for parts in (causes, *others)])
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


# What one dataset and one metric say of two models: sample by sample, and with their parts exchanged one at a time.


Part = Literal["data", "metric", "weights"]
PARTS: tuple[Part, ...] = ("data", "metric", "weights")
Cause = Literal["data", "metric", "weights", "model"]


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
    causes: tuple[Cause, ...]
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
        noise = OutputNoise(reference, wide)
        measurement, limit = noise.limit(reference, candidate, ...)
        factor = smallest_factor(measurement, limit)
        if self._furthest is None or factor > self._furthest[0]:
            self._furthest = factor, measurement, limit
        self._batches += 1
        if factor > 1.0 and self._first is None:
            self._first = self._batches
        differences = _largest(reference, candidate)
        flips = {} if labels is None else dict(_flips(reference, candidate, noise, labels))
        if labels is not None:
            best = np.partition(reference.astype(np.float64), -2, -1)[:, -2:]
            self.near += int((best[:, 1] - best[:, 0] <= 2 * limit.max_abs).sum())
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


def _flips(
    reference: Array, candidate: Array, noise: OutputNoise, labels: Array
) -> Iterator[tuple[int, dict[str, float]]]:
    """Rows whose predicted class differs, with the fields of their SampleDifference."""
    mine, theirs = reference.argmax(-1), candidate.argmax(-1)
    for row in np.flatnonzero(mine != theirs).tolist():
        a, b = int(mine[row]), int(theirs[row])
        _, limit = noise.limit(reference, candidate, slice(row, row + 1))
        margin = float(reference[row, a]) - float(reference[row, b])
        tie = margin <= 2 * limit.max_abs
        facts = {"reference": a, "candidate": b, "margin": margin, "limit": limit.max_abs, "tie": tie}
        yield row, {"label": int(labels[row]), **facts}


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
