"""The metrics that can be asked for by name: each gives one score a sample, whose mean is the metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from align.core.dtypes import Array
from align.errors import InputsError

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
        raise _unlike(values, wanted, "equal shapes")
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
        raise _unlike(logits, classes, "logits (n, classes) and integers (n,)")
    if classes.size and not 0 <= int(classes.min()) <= int(classes.max()) < logits.shape[-1]:
        span = f"{classes.min()} to {classes.max()}"
        raise InputsError(
            f"labels go from {span}, the outputs have {logits.shape[-1]} classes", "labels are counted from 0"
        )
    return logits, classes.astype(np.int64)


def _per_sample(values: Array) -> Array:
    scores: Array = values.reshape(len(values), -1).mean(1, dtype=np.float64)
    return scores


def _unlike(outputs: Array, labels: Array, wanted: str) -> InputsError:
    values, classes = (f"{one.dtype.name}{list(one.shape)}" for one in (outputs, labels))
    error = f"the metric needs {wanted}, and gets outputs {values} and labels {classes}"
    return InputsError(error, "give a metric of your own: --metric file.py:name")
