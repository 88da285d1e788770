"""How a difference may set in: at once, along a power of time, or towards a level; and what each shape leaves of it.

A curve is looked at in cells of neighbouring points, small ones where it matters. Each shape is zero up to an onset, so
the least squares of a shape at every onset are one matrix product.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.criteria_thresholds import LEVEL_POINTS, ONSET_CELLS, SATURATING, SUM_ROUNDING

if TYPE_CHECKING:
    from align.curves.loss_log import Floats, Integers


class Cells(NamedTuple):
    """Means of `values`, and how many points each cell has, shape (cells,); `edges` are indices of points."""

    edges: Integers
    values: Floats
    sizes: Floats


class Fits(NamedTuple):
    """The weighted sums of squares that are left, shape (shapes, onsets); `free`: with a level before the change."""

    free: bool
    left: Floats


def even_edges(points: int) -> Integers:
    """Return the edges of at most `ONSET_CELLS` cells of about equal size."""
    cells = min(points, ONSET_CELLS)
    return np.arange(cells + 1) * points // cells


def take_cells(values: Floats, edges: Integers) -> Cells:
    """Average the points between each two edges."""
    sizes = np.diff(edges).astype(np.float64)
    return Cells(edges, np.add.reduceat(values, edges[:-1]) / sizes, sizes)


def shapes_of(edges: Integers) -> Floats:
    """Return each shape that sets in with each cell, shape (shapes, onsets, cells)."""
    return _even_shapes(int(edges[-1])) if np.array_equal(edges, even_edges(int(edges[-1]))) else _shapes(edges)


def fit_shapes(cells: Cells, shapes: Floats, zero: float = 0.0) -> tuple[Fits, Fits]:
    """Fit each shape at each onset: from zero, and from a level of its own.

    `zero` is the weight of one more value, 0, of the shapes with a level: how surely they are zero before the onset.
    """
    values, weights = cells.values, cells.sizes
    along, sums = shapes @ (weights * values), shapes @ weights
    squares, total, whole = (shapes * shapes) @ weights, float(weights @ values), float(weights.sum()) + zero
    of_values = float((weights * values) @ values)
    from_zero = Fits(False, np.maximum(of_values - _explained(along, squares, whole), 0.0))
    explained = _explained(along - sums * (total / whole), squares - sums**2 / whole, whole)
    explained[:, :LEVEL_POINTS] = 0.0
    return from_zero, Fits(True, np.maximum(of_values - total**2 / whole - explained, 0.0))


def _explained(along: Floats, squares: Floats, whole: float) -> Floats:
    explained: Floats = np.divide(along**2, squares, out=np.zeros_like(squares), where=squares > SUM_ROUNDING * whole)
    return explained


def what_is_left(cells: Cells, shapes: Floats, fits: Fits) -> Floats:
    """Return the values without the shape that fits best, shape (cells,)."""
    shape, onset = np.unravel_index(int(np.argmin(fits.left)), fits.left.shape)
    columns = [shapes[shape, onset], *([np.ones(len(cells.values))] if fits.free else [])]
    root = np.sqrt(cells.sizes)
    known = np.stack(columns, axis=1)
    fitted = known @ np.linalg.lstsq(known * root[:, None], cells.values * root, rcond=None)[0]
    left: Floats = cells.values - fitted
    left[np.abs(left) <= SUM_ROUNDING * np.abs(cells.values).max()] = 0.0
    return left


@lru_cache(maxsize=4)
def _even_shapes(points: int) -> Floats:
    return _shapes(even_edges(points))


def _shapes(edges: Integers) -> Floats:
    middles, starts = (edges[:-1] + edges[1:] - 1) / 2.0, edges[:-1, None]
    after = (middles[None, :] - starts + 0.5) / np.maximum(edges[-1] - starts, 1)
    begun = np.tri(len(middles), dtype=np.bool_).T
    after = np.where(begun, np.maximum(after, 1e-9), 0.0)
    saturating = (np.cbrt(np.minimum(after / soon, 1.0)) ** 2 for soon in SATURATING)
    return np.stack([begun, np.sqrt(after), after, after**2, after * after * after, *saturating])
