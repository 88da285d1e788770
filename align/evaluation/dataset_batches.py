"""A user's dataset as batches of arrays, streamed; every pass over it must give the same samples.

A few numbers a sample are kept of each pass, which show whether it did, without holding the data. Two pipelines for one
dataset round differently, so floats are known by their norm, their sum and their product with a fixed wave, which no
exchange of pixels or channels leaves alone; integers and labels by a checksum.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from align.core.parameters import Array, is_float
from align.errors import InputsError, UsageError, UserCodeError
from align.models.inputs import as_array, unknown_dtypes
from align.models.user_code import find_function, load_function, run_user_code
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Facts = NDArray[np.float64]

# validation

METRIC_ROUNDING: Final = 1e-6
"""What a metric may move by, beside what is measured: its own sums, in whatever precision the user adds them up.
Choice: ten units of float32; a smaller number blames the metric for the order of a sum."""

METRIC_LIMIT_WITHOUT_NOISE: Final = 1e-4
"""The same where the reference's noise is not known.
Choice: the outputs are then judged by a limit of 1e-4 of their scale as well."""

MOST_WORST_SAMPLES: Final = 10
"""So many of the samples that differ most are kept.
Choice: what a reader looks at."""

MOST_FLIPPED_INDEXES: Final = 1000
"""So many indexes of samples that another class wins are kept.
Choice: it bounds the size of the result; all of them are counted."""

SAME_SAMPLE_TOLERANCE: Final = 1e-5
"""Two samples are one if their figures agree to this share of the sample's norm.
Choice: far above the rounding of float32 (1e-7), far below one grey value of 255 in each pixel (4e-3)."""


LABELS = ("labels", "label")


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs by name, each with `size` samples along its first axis; labels as an array where they make one."""

    inputs: dict[str, Array]
    labels: Any
    size: int


class Dataset:
    """An iterable of batches, or (by name) a function that returns one; `limit` is the most samples to take.

    `facts` are those of `sample_fingerprints` after the last whole pass.
    """

    def __init__(self, source: str | Iterable[Any], limit: int | None = None) -> None:
        self.label = source if isinstance(source, str) else type(source).__name__
        self._source, self._limit = source, limit
        self.facts = np.zeros((0, 5))
        if not isinstance(source, str) and iter(source) is source:
            raise UsageError.of("evaluation_error.read_once", data=self.label)

    def batches(self) -> Iterator[Batch]:
        """Yield every batch; raises InputsError or UserCodeError naming the first that is no batch.

        InputsError too where there is none, and where a second pass gives other samples than the first.
        """
        facts: list[Array] = []
        size = 0
        for number, raw in enumerate(self._raw()):
            batch = self._cut(_batch(raw, say("evaluation_stage.batch", number=number, data=self.label)), size)
            if not batch.size:
                continue
            facts.append(sample_fingerprints(batch.inputs.values(), batch.labels, batch.size))
            size += batch.size
            yield batch
            if size == self._limit:
                break
        if not size:
            raise InputsError.of("evaluation_error.no_samples", data=self.label)
        read = np.concatenate(facts)
        if len(self.facts) and not np.array_equal(self.facts, read, equal_nan=True):
            raise InputsError.of("evaluation_error.other_samples", data=self.label)
        self.facts = read

    def _raw(self) -> Iterator[Any]:
        def failed(error: BaseException) -> UserCodeError:
            return UserCodeError(say("evaluation_stage.reading", data=self.label), error)

        data = load_function(self._source, "data file")() if isinstance(self._source, str) else self._source
        if not hasattr(data, "__iter__"):
            raise InputsError.of("evaluation_error.no_batches", data=self.label, kind=type(data).__name__)
        end = object()
        batches = run_user_code(lambda: iter(data), failed)
        while (raw := run_user_code(lambda: next(batches, end), failed)) is not end:
            yield raw

    def _cut(self, batch: Batch, before: int) -> Batch:
        size = batch.size if self._limit is None else min(batch.size, self._limit - before)
        if size == batch.size:
            return batch
        inputs = {name: value[:size] for name, value in batch.inputs.items()}
        labels = batch.labels[:size] if isinstance(batch.labels, (np.ndarray, list, tuple)) else batch.labels
        return replace(batch, inputs=inputs, labels=labels, size=size)


def _batch(raw: Any, what: str) -> Batch:
    given, labels = _parts(raw, what)
    named = given if isinstance(given, Mapping) else dict(enumerate(_several(given)))
    inputs = {str(name): as_array(value) for name, value in named.items()}
    strange = unknown_dtypes(inputs) or [name for name, value in inputs.items() if not value.ndim]
    if strange or not inputs:
        raise InputsError.of("evaluation_error.no_numbers", batch=what, inputs=strange or ["none"])
    sizes = {name: len(value) for name, value in inputs.items()}
    labelled = as_array(labels)
    if labelled.dtype.kind != "O" and labelled.ndim:
        labels, sizes["labels"] = labelled, len(labelled)
    if len(set(sizes.values())) > 1:
        lengths = [f"{size} {name}" for name, size in sizes.items()]
        raise InputsError.of("evaluation_error.other_lengths", batch=what, lengths=lengths)
    return Batch(inputs, labels, next(iter(sizes.values())))


def _several(given: Any) -> list[Any]:
    """Several inputs, or a lone one; a list of numbers is one."""
    if isinstance(given, (tuple, list)) and any(hasattr(one, "shape") for one in given):
        return list(given)
    return [given]


def _parts(raw: Any, what: str) -> tuple[Any, Any]:
    """The inputs and the labels of a batch as the user gives it."""
    if isinstance(raw, Mapping):
        key = next((key for key in LABELS if key in raw), None)
        if key is not None:
            return {name: value for name, value in raw.items() if name != key}, raw[key]
    elif isinstance(raw, (tuple, list)) and len(raw) == 2:
        return raw[0], raw[1]
    sized = isinstance(raw, (tuple, list))
    found = say("evaluation_error.object", kind=type(raw).__name__, sized=sized, length=len(raw) if sized else 0)
    if isinstance(raw, Mapping):
        found = say("evaluation_error.mapping", names=[*map(str, raw)])
    raise InputsError.of("evaluation_error.no_labels", batch=what, found=found)


NORM, SUM, WAVE, EXACT, LABEL = range(5)


def sample_fingerprints(inputs: Iterable[Array], labels: Any, size: int) -> Facts:
    """The facts of each sample of a batch, (size, 5); labels are an array, or anything that has a repr."""
    facts = np.zeros((size, 5))
    for place, value in enumerate(inputs):
        rows = value.reshape(size, -1)
        if is_float(value.dtype.name) and rows.shape[1]:
            wide = rows.astype(np.float64)
            facts[:, NORM] = np.hypot(facts[:, NORM], np.sqrt(np.einsum("ij,ij->i", wide, wide)))
            facts[:, SUM] += wide.sum(1) / np.sqrt(rows.shape[1])
            facts[:, WAVE] += wide @ np.cos(np.arange(1.0, rows.shape[1] + 1) + place)
        else:
            facts[:, EXACT] = [_checksum(row, int(known)) for row, known in zip(rows, facts[:, EXACT], strict=True)]
    if isinstance(labels, np.ndarray) and labels.ndim and labels.dtype.kind != "O":
        facts[:, LABEL] = [_checksum(label) for label in labels]
    else:
        facts[:, LABEL] = zlib.crc32(repr(labels).encode())
    return facts


def count_differing_samples(reference: Facts, candidate: Facts) -> tuple[int, int]:
    """Count the common samples of two datasets whose inputs, and whose labels, differ."""
    common = min(len(reference), len(candidate))
    a, b = reference[:common], candidate[:common]
    room = SAME_SAMPLE_TOLERANCE * np.maximum(a[:, NORM], b[:, NORM])
    apart = [~(np.abs(a[:, column] - b[:, column]) <= room) for column in (NORM, SUM, WAVE)]
    inputs = apart[0] | apart[1] | apart[2] | (a[:, EXACT] != b[:, EXACT])
    return int(inputs.sum()), int((a[:, LABEL] != b[:, LABEL]).sum())


def _checksum(value: Array, start: int = 0) -> int:
    """Equal for equal numbers, whatever the width of their dtype."""
    wide = {**dict.fromkeys("iub", np.int64), **dict.fromkeys("fV", np.float32)}
    return zlib.crc32(np.ascontiguousarray(value, wide.get(value.dtype.kind)).tobytes(), start)


# The metrics that can be asked for by name: each gives one score a sample, whose mean is the metric.

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

        scores = as_array(run_user_code(lambda: self._function(given, labels), failed))
        if scores.dtype.kind not in "fiub" or scores.shape not in ((), (batch.size,)):
            got = f"{scores.dtype.name}{list(scores.shape)}"
            raise InputsError.of("evaluation_error.no_scores", metric=self.label, scores=got, count=batch.size)
        return scores.astype(np.float64)


def _found(metric: str) -> Metric:
    if ":" not in metric:
        raise InputsError.of("evaluation_error.no_such_metric", metric=metric, known=[*METRICS])
    return find_function(metric, "metric file")
