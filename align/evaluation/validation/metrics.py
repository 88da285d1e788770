"""The metrics that can be asked for by name: each gives one score a sample, whose mean is the metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.dtypes import Array
from align.errors import InputsError, UserCodeError
from align.models.inputs import as_array
from align.models.user_code import find_function, run_user_code
from align.words.catalogue import say

if TYPE_CHECKING:
    from align.evaluation.validation.dataset_batches import Batch

Outputs = Array | Mapping[str, Array]
Metric = Callable[[Outputs, Any], Any]


def accuracy(outputs: Outputs, labels: Any) -> Array:
    """Share of the classes (or tokens) of each sample that are predicted: logits (n, ..., classes), labels (n, ...)."""
    logits, classes = _classified(outputs, labels)
    return _per_sample(logits.argmax(-1) == classes)


def top5(outputs: Outputs, labels: Any) -> Array:
    """As accuracy, for labels among the five largest logits; equal logits count as larger."""
    logits, classes = _classified(outputs, labels)
    own = np.take_along_axis(logits, classes[..., None], -1)
    return _per_sample((logits >= own).sum(-1) <= 5)


def mean_squared_error(outputs: Outputs, labels: Any) -> Array:
    """Mean of the squared differences of each sample; axes of length 1 do not count."""
    values, wanted = main_output(outputs), np.asarray(labels)
    if [n for n in values.shape[1:] if n != 1] != [n for n in wanted.shape[1:] if n != 1]:
        raise _unlike(values, wanted, "evaluation_error.metric_of_equal_shapes")
    return _per_sample(np.square(np.subtract(values, wanted.reshape(values.shape), dtype=np.float64)))


def main_output(outputs: Outputs) -> Array:
    """The tensor that predictions are in: the lone output, the one called `logits`, else the first one."""
    if not isinstance(outputs, Mapping):
        return outputs
    return outputs["logits"] if "logits" in outputs else next(iter(outputs.values()))


METRICS: dict[str, Metric] = {"accuracy": accuracy, "top5": top5, "mean-squared-error": mean_squared_error}


def _classified(outputs: Outputs, labels: Any) -> tuple[Array, Array]:
    logits, classes = main_output(outputs), np.asarray(labels)
    if logits.ndim < 2 or classes.dtype.kind not in "iu" or classes.shape != logits.shape[:-1]:
        raise _unlike(logits, classes, "evaluation_error.metric_of_classes")
    if classes.size and not 0 <= int(classes.min()) <= int(classes.max()) < logits.shape[-1]:
        span = {"least": classes.min(), "largest": classes.max()}
        raise InputsError.of("evaluation_error.labels_beyond", **span, classes=logits.shape[-1])
    return logits, classes.astype(np.int64)


def _per_sample(values: Array) -> Array:
    scores: Array = values.reshape(len(values), -1).mean(1, dtype=np.float64)
    return scores


def _unlike(outputs: Array, labels: Array, key: str) -> InputsError:
    values, classes = (f"{one.dtype.name}{list(one.shape)}" for one in (outputs, labels))
    return InputsError.of(key, outputs=values, labels=classes)


class NamedMetric:
    """One of METRICS, `module:function`, or a function; raises what finding it raises."""

    def __init__(self, metric: str | Metric) -> None:
        if isinstance(metric, str):
            self.label = metric
            self._function = METRICS[metric] if metric in METRICS else _found(metric)
        else:
            self.label = getattr(metric, "__name__", type(metric).__name__)
            self._function = metric

    def scores(self, outputs: Mapping[str, Array], batch: Batch) -> Array:
        """One score a sample, (size,), or one number of the whole batch, (); the function may change what it gets."""
        copies = {name: value.copy() for name, value in outputs.items()}
        given = copies[""] if set(copies) == {""} else copies
        labels = batch.labels.copy() if isinstance(batch.labels, np.ndarray) else batch.labels

        def failed(error: BaseException) -> UserCodeError:
            return UserCodeError(say("evaluation_stage.metric", metric=self.label), error)

        found = as_array(run_user_code(lambda: self._function(given, labels), failed))
        if found.dtype.kind not in "fiub" or found.shape not in ((), (batch.size,)):
            got = f"{found.dtype.name}{list(found.shape)}"
            raise InputsError.of("evaluation_error.no_scores", metric=self.label, scores=got, count=batch.size)
        return found.astype(np.float64)


def _found(metric: str) -> Metric:
    if ":" not in metric:
        raise InputsError.of("evaluation_error.no_such_metric", metric=metric, known=[*METRICS])
    return find_function(metric, "metric file")
