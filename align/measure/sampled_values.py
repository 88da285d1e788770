"""A few values of a tensor, the same places for every tensor of one size, and how far two such samples are apart."""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from align.measure.thresholds import MOST_PERMUTED_AXES, SAMPLED_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from align.core.dtypes import Array


def sample_values(value: Array) -> NDArray[np.float64]:
    """Return up to 4096 values in float64; none of what is no number."""
    flat = np.asarray(value).reshape(-1)
    chosen = flat if flat.size <= SAMPLED_ELEMENTS else flat[_places(flat.size)]
    return chosen.astype(np.float64) if chosen.dtype.kind in "fiubV" else np.zeros(0)


@lru_cache(maxsize=1024)
def _places(size: int) -> NDArray[np.int64]:
    return np.random.default_rng(size).integers(0, size, SAMPLED_ELEMENTS)


def axis_orders(value: Array, places: NDArray[np.int64]) -> Iterator[tuple[tuple[int, ...], NDArray[np.float64]]]:
    """Yield each order of the axes with what stands at these flat places then; of too many axes to try, their own."""
    orders = permutations(range(value.ndim)) if value.ndim <= MOST_PERMUTED_AXES else [tuple(range(value.ndim))]
    for order in orders:
        turned = value.transpose(order)
        yield order, turned[np.unravel_index(places, turned.shape)].astype(np.float64)


def relative_rms_distance(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Root mean square of the difference as a share of that of the first; infinite for unlike sizes and NaN."""
    if one.shape != two.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        share = float(np.sqrt(np.mean((one - two) ** 2) / np.mean(one**2)))
    return share if share == share else float("inf")
