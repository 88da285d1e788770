"""What a trial keeps of the tensors that it sees, and whether two are the same, also with axes in another order."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.measure.tensor_statistics import relative_rms_distance, sample_values
from align.names.thresholds import AGREEING_DISTANCE, LEAST_RANGE, MOST_SORTED_ELEMENTS, SEEN_ENDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from align.core.dtypes import Array


class SeenTensor(NamedTuple):
    """What is kept of a tensor: some values, its shape without axes of length 1, its least and largest elements."""

    values: NDArray[np.float64]
    shape: tuple[int, ...]
    ends: NDArray[np.float64]

    def distance(self, other: SeenTensor) -> float:
        """The relative RMS distance; of tensors whose axes stand in another order that of their ends."""
        distance = relative_rms_distance(self.values, other.values)
        if self.shape == other.shape or not self.ends.size or distance < AGREEING_DISTANCE:
            return distance
        return relative_rms_distance(self.ends, other.ends) if prod(self.shape) == prod(other.shape) else distance


def laid_as(tensor: Array, shape: tuple[int, ...]) -> Array | None:
    """Return the tensor in this shape, its axes in that order; None if it does not fit, or lengths do not tell how."""
    own, wanted = ([length for length in one if length != 1] for one in (tensor.shape, shape))
    if tensor.size != prod(shape) or own == wanted or sorted(own) != sorted(wanted):
        return tensor.reshape(shape) if tensor.size == prod(shape) else None
    if len(set(own)) < len(own):
        return None
    return tensor.reshape(own).transpose([own.index(length) for length in wanted]).reshape(shape)


def agree(one: Sequence[SeenTensor], two: Sequence[SeenTensor]) -> bool:
    """Tell whether the same tensors were seen, up to rounding; tensors that vary nowhere tell nothing, and agree not.

    Where one side is given more tensors than the other (a mask, a cache), the common beginning counts.
    """
    return any(varies(a) or varies(b) for a, b in zip(one, two, strict=False)) and alike(one, two)


def alike(one: Sequence[SeenTensor], two: Sequence[SeenTensor]) -> bool:
    """Tell whether all tensors of the common beginning that vary are equal up to rounding."""
    both = [(a, b) for a, b in zip(one, two, strict=False) if varies(a) or varies(b)]
    return all(a.distance(b) < AGREEING_DISTANCE for a, b in both)


def varies(seen: SeenTensor) -> bool:
    """Tell whether a tensor has unlike elements."""
    sample = seen.values
    return bool(sample.size) and float(np.ptp(sample)) > LEAST_RANGE * float(np.max(np.abs(sample)))


def see_tensor(value: Array) -> SeenTensor:
    """Return what is kept of a tensor; no ends of a vector, a very large one or one of no numbers."""
    values, shape = sample_values(value), tuple(length for length in value.shape if length != 1)
    if len(shape) < 2 or not values.size or value.size > MOST_SORTED_ELEMENTS:
        return SeenTensor(values, shape, values[:0])
    flat = np.asarray(value).reshape(-1)
    most = min(SEEN_ENDS, flat.size // 2)
    parted = np.partition(flat, (most, flat.size - most - 1))
    ends = np.sort(np.concatenate([parted[:most], parted[flat.size - most :]]).astype(np.float64))
    return SeenTensor(values, shape, ends)
