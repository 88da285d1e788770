"""What is kept of a tensor that an operator is given: one number a row, whatever the order of rows and features.

Two implementations lay tokens, pixels and heads out in other orders; a routed expert sees some rows of those that one
which computes all sees. So rows are compared as a set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from align.measure.tensor_statistics import relative_rms_distance
from align.names.thresholds import AGREEING_DISTANCE, LEAST_RANGE, LEAST_SHARED_ROWS, MOST_SEEN_ROWS, SEEN_PEAKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from align.core.dtypes import Array


@dataclass(frozen=True, slots=True)
class SeenRows:
    """Sorted marks of the rows, evenly chosen ones where there are too many; `count` rows and their `width`.

    `ends` are the first and the last row, `peaks` those of the smallest and of the largest marks.
    """

    marks: NDArray[np.float64]
    count: int
    width: int
    ends: NDArray[np.float64]
    peaks: NDArray[np.float64]

    def same(self, other: SeenRows) -> bool:
        """Tell whether two tensors have the same rows, or all of one's are among the other's."""
        if self.width != other.width or not (self.varies and other.varies):
            return False
        if self.count == other.count:
            return distance(self.marks, other.marks) < AGREEING_DISTANCE
        few, many = sorted((self, other), key=lambda one: one.count)
        if len(few.marks) < LEAST_SHARED_ROWS or many.count > len(many.marks):
            return False
        right = np.searchsorted(many.marks, few.marks).clip(1, len(many.marks) - 1)
        near = np.minimum(abs(many.marks[right] - few.marks), abs(many.marks[right - 1] - few.marks))
        return bool(np.sqrt(np.mean(near**2)) < AGREEING_DISTANCE * np.sqrt(np.mean(few.marks**2)))

    def moved(self, other: SeenRows) -> bool:
        """Tell whether the rows are others than in another run."""
        return self.count != other.count or distance(self.marks, other.marks) > AGREEING_DISTANCE

    def columns(self, other: SeenRows) -> NDArray[np.int64] | None:
        """Which feature of this one each feature of the other is; None where they stand alike, or nothing tells."""
        if self.count != other.count or self.peaks.shape != other.peaks.shape or self.width < 2:
            return None
        if self.alike(other):
            return None
        for order in _usual_orders(self.width):
            if distance(self.peaks[:, order], other.peaks) < AGREEING_DISTANCE:
                return order
        weights = np.random.default_rng(0).uniform(0.5, 1.5, len(self.peaks))
        mine, theirs = np.argsort(weights @ self.peaks, kind="stable"), np.argsort(weights @ other.peaks, kind="stable")
        found = np.empty(self.width, np.int64)
        found[theirs] = mine
        return found if distance(self.peaks[:, found], other.peaks) < AGREEING_DISTANCE else None

    @property
    def negated(self) -> SeenRows:
        """The rows of the negative tensor, as far as their features tell."""
        return replace(self, peaks=-self.peaks)

    def alike(self, other: SeenRows) -> bool:
        """Tell whether the features stand alike."""
        return self.peaks.shape == other.peaks.shape and distance(self.peaks, other.peaks) < AGREEING_DISTANCE

    def begins(self, other: SeenRows) -> int | None:
        """The feature of this one at which the features of the other, which are fewer, begin in every row."""
        if self.count != other.count or other.width >= self.width or not other.varies:
            return None
        margin = AGREEING_DISTANCE * max(float(abs(other.ends).max()), 1e-30)
        for at in np.flatnonzero(abs(self.ends[0] - other.ends[0, 0]) < margin):
            own = self.ends[:, at : at + other.width]
            if own.shape == other.ends.shape and distance(other.ends, own) < AGREEING_DISTANCE:
                return int(at)
        return None

    @property
    def size(self) -> float:
        """How large the marks are: the same rows have the same size."""
        with np.errstate(all="ignore"):
            return float(np.sqrt(np.mean(self.marks**2))) if self.marks.size else 0.0

    @property
    def varies(self) -> bool:
        """Tell whether the rows are unlike."""
        return bool(self.marks.size) and float(np.ptp(self.marks)) > LEAST_RANGE * float(abs(self.marks).max())


def _usual_orders(width: int) -> Iterator[NDArray[np.int64]]:
    """Orders of features that two frameworks flatten two or three axes to: dead features tell none apart."""
    sizes = [size for size in range(2, width) if width % size == 0]
    for size in sizes:
        yield np.arange(width).reshape(size, -1).T.reshape(-1)
    for size in sizes:
        for other in (one for one in sizes if (width // size) % one == 0 and size * one < width):
            for turn in ((0, 2, 1), (1, 0, 2), (2, 1, 0)):
                yield np.arange(width).reshape(size, other, -1).transpose(turn).reshape(-1)


def distance(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """The relative RMS distance; infinite where nothing was kept."""
    return relative_rms_distance(one, two) if one.size else float("inf")


def see_rows(value: Array, axes: Sequence[int] = (-1,), *, signed: bool = True) -> SeenRows:
    """Keep what is known of a tensor whose features lie along these axes; of none, each element is a row.

    Unless `signed`, a tensor and its negative have the same marks: what scales may have the sign.
    """
    axes = sorted(axis % value.ndim for axis in axes) if value.ndim else []
    width = int(np.prod([value.shape[axis] for axis in axes], dtype=int))
    rest = [axis for axis in range(value.ndim) if axis not in axes]
    with np.errstate(all="ignore"):
        rows = value.transpose([*rest, *axes]).reshape(-1, width).astype(np.float64)
        marks = (rows * abs(rows) + 0.37 * rows**2).sum(1) if width > 1 else rows[:, 0]
        marks = marks if signed else abs(rows).sum(1)  # not of squares: a norm makes their sum one
    count = len(marks)
    order = np.argsort(marks, kind="stable")
    peaks = rows[[*order[:SEEN_PEAKS], *order[-SEEN_PEAKS:]]]
    marks = marks[order]
    if count > MOST_SEEN_ROWS:
        marks = marks[np.linspace(0, count - 1, MOST_SEEN_ROWS).astype(int)]
    return SeenRows(marks, count, width, rows[[0, -1]] if count else rows, peaks)


def joined_rows(parts: Sequence[SeenRows]) -> SeenRows:
    """Join what several calls were given."""
    if len(parts) == 1:
        return parts[0]
    marks, count = np.sort(np.concatenate([one.marks for one in parts])), sum(one.count for one in parts)
    peaks = parts[0].peaks if count == parts[0].count else parts[0].peaks[:0]
    return SeenRows(marks, count, parts[0].width, parts[0].ends, peaks)
