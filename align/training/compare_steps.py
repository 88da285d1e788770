"""Two runs of one step, tensor by tensor and bit for bit, in the order in which the tensors arise."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from align.core.measurements import smallest_factor
from align.measure.limits import rounding_limit
from align.measure.measure_arrays import measure
from align.training.determinism_result import PartCount, UnrepeatedTensor
from align.training.watch_step import StepUnseen

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from align.core.dtypes import Array
    from align.core.traces import Capture
    from align.training.determinism_result import StepPart, TensorPart


class _TensorsOfStep(StepUnseen):
    """A StepSink that takes all tensors of a step under one name each, and changes nothing.

    What modules are given and return comes under the keys of captures, the loss under "", then gradients as the
    optimizers are handed them, or as the way back gave them, and parameters and buffers after the step.
    """

    layers = True

    def __init__(self, buffers: Collection[str]) -> None:
        self._buffers = buffers
        self._gradients: dict[str, Array] = {}

    def take(self, part: StepPart, name: str, value: Array) -> None:
        """Take one tensor."""
        raise NotImplementedError

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Take what a call is given."""
        for name, value in inputs.items():
            self.take("input", f"{module}#{call}<{name}", value)

    def add(self, capture: Capture, value: Array) -> None:
        """Take what a call returned."""
        self.take("output", capture.key, value)

    def computed(self, name: str, gradient: Array) -> None:
        """Add up what the way back gives."""
        known = self._gradients.get(name)
        self._gradients[name] = np.array(gradient) if known is None else known + gradient

    def update(self, gradients: Mapping[str, Array | None]) -> Mapping[str, Array]:
        """Keep what an optimizer is handed."""
        self._gradients |= {name: np.array(value) for name, value in gradients.items() if value is not None}
        return {}

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:  # noqa: ARG002
        """Take the rest."""
        if loss is not None:
            self.take("loss", "", np.asarray(loss))
        for name, gradient in self._gradients.items():
            self.take("gradient", name, gradient)
        for name, value in sorted(values, key=lambda one: one[0] in self._buffers):
            self.take("buffer" if name in self._buffers else "parameter", name, value)


class StepRecord(_TensorsOfStep):
    """Keeps all tensors of a step."""

    def __init__(self, buffers: Collection[str]) -> None:
        super().__init__(buffers)
        self.tensors: dict[tuple[StepPart, str], Array] = {}

    def take(self, part: StepPart, name: str, value: Array) -> None:
        """Keep a copy."""
        self.tensors[part, name] = value.copy()


class StepRepeat(_TensorsOfStep):
    """Holds each tensor against that of an earlier run; only the first that differs is measured."""

    def __init__(self, earlier: StepRecord, buffers: Collection[str]) -> None:
        super().__init__(buffers)
        self._earlier = earlier.tensors
        self._seen: set[tuple[StepPart, str]] = set()
        self._tensors: Counter[str] = Counter()
        self._differing: Counter[str] = Counter()
        self._first: UnrepeatedTensor | None = None

    def take(self, part: StepPart, name: str, value: Array) -> None:
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
