"""The same dataset and metric through both models, side by side; where they differ, parts exchanged one at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from align.core.progress import silent
from align.core.verdicts import Outcome
from align.errors import UsageError
from align.evaluation.validation.dataset_batches import Dataset
from align.evaluation.validation.exchange_parts import find_causes, judge_validation
from align.evaluation.validation.metrics import NamedMetric
from align.evaluation.validation.score_models import ScoredModels
from align.evaluation.validation_result import Validation
from align.models.describe_sides import copied_sides
from align.models.open_side import Side, open_sides
from align.traces.transferred_weights import TransferredWeights
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from align.core.name_map import NameMap, SideOf
    from align.core.progress import Progress
    from align.core.protocols import Model
    from align.evaluation.validation.metrics import Metric

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
        raise UsageError(f"{limit_samples} samples are none", "give a positive number")
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
