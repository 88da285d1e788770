"""Two runs of one step, tensor by tensor and bit for bit, in the order in which the tensors arise."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from align.core.measurements import smallest_factor
from align.measure.limits import rounding_limit
from align.measure.measure_arrays import measure
from align.training.determinism_result import PartCount, UnrepeatedTensor

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.training import StepPart
    from align.training.determinism_result import TensorPart


class StepRecord:
    """A StepSink that keeps all tensors of a step."""

    def __init__(self) -> None:
        self.tensors: dict[tuple[StepPart, str], Array] = {}

    def add(self, part: StepPart, name: str, value: Array) -> None:
        """Keep a copy."""
        self.tensors[part, name] = value.copy()


class StepRepeat:
    """A StepSink that holds each tensor against that of an earlier run; only the first that differs is measured."""

    def __init__(self, earlier: StepRecord) -> None:
        self._earlier = earlier.tensors
        self._seen: set[tuple[StepPart, str]] = set()
        self._tensors: Counter[str] = Counter()
        self._differing: Counter[str] = Counter()
        self._first: UnrepeatedTensor | None = None

    def add(self, part: StepPart, name: str, value: Array) -> None:
        """Compare with the tensor of that name."""
        self._seen.add((part, name))
        self._tensors[part] += 1
        before = self._earlier.get((part, name))
        if before is None or not same_bits(before, value):
            self._differing[part] += 1
            if self._first is None:
                self._first = unrepeated(part, name, before, value)

    @property
    def first(self) -> UnrepeatedTensor | None:
        """The first tensor that differs, or that the second run did not have at all."""
        lost = next((key for key in self._earlier if key not in self._seen), None)
        return self._first or (unrepeated(*lost, self._earlier[lost], None) if lost else None)

    @property
    def parts(self) -> tuple[PartCount, ...]:
        """Counts by what the tensors are, in the order of a step."""
        counts = self._tensors.copy()
        lost: Counter[str] = Counter(part for part, name in self._earlier if (part, name) not in self._seen)
        counts.update(lost)
        return tuple(PartCount(part, count, self._differing[part] + lost[part]) for part, count in counts.items())


def same_bits(one: Array, other: Array) -> bool:
    """Tell whether shape, dtype and all bits are equal; NaN is equal to itself."""
    same = (one.shape, one.dtype) == (other.shape, other.dtype)
    return same and (one.size == 0 or np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes())


def unrepeated(part: TensorPart, name: str, one: Array | None, other: Array | None) -> UnrepeatedTensor:
    """Measure two tensors that differ; one that is there in one run only has no figures."""
    if one is None or other is None or one.shape != other.shape:
        there = one if one is not None else np.empty(0) if other is None else other
        return UnrepeatedTensor(part, name, there.shape, there.size, there.size, None, None, rounding=False)
    figures = measure(one, other)
    largest = figures.reference_max
    return UnrepeatedTensor(
        part,
        name,
        one.shape,
        one.size,
        figures.mismatched,
        figures.max_abs,
        figures.max_abs / largest if largest else None,
        rounding=smallest_factor(figures, rounding_limit(figures, one.dtype.name)) <= 1.0,
    )
