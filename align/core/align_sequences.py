"""Sequences: put in groups; and the best order-preserving pairing of two, by dynamic programming without gap cost.

S. Needleman and C. Wunsch, A general method applicable to the search for similarities, J. Mol. Biol. 48 (1970).
Where items are alike or not, a row of the table is one long integer:
H. Hyyro, Bit-parallel LCS-length computation revisited, AWOCA (2004).
"""

from __future__ import annotations

from itertools import islice
from math import isqrt
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from align.core.thresholds import FLOAT64_ROUNDING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray


K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, keys and values in the order in which they come.

    >>> grouped([("even", 2), ("odd", 3), ("even", 4)])
    {'even': [2, 4], 'odd': [3]}
    """
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def align_sequences(scores: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pairs (i, j), increasing in both, that maximize the sum of `scores[i, j]`; scores <= 0 never pair.

    `scores` has shape (n, m); time and memory are O(n m). Among equal sums the pairing that stays earliest wins.
    """
    best = _best_sums(scores)
    pairs = []
    i, j = scores.shape
    while i and j:
        if best[i - 1, j] >= best[i, j] - FLOAT64_ROUNDING:
            i -= 1
        elif best[i, j - 1] >= best[i, j] - FLOAT64_ROUNDING:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


def align_alike(rows: int, columns: int, may_pair: Callable[[int], int]) -> list[tuple[int, int]]:
    """The pairs of `align_sequences` where all scores are 0 or 1: bit j of `alike(i)` says that i and j may pair.

    Time is O(rows columns / 64), memory O(sqrt(rows) columns) bits: of the table only some rows are kept, the others
    are computed again on the way back.
    """
    every = (1 << columns) - 1
    step = isqrt(rows) + 1
    kept = list(islice(_rows(every, may_pair, range(rows), every), 0, None, step))
    pairs = []
    end = columns
    for start in range((rows // step) * step, -1, -step):
        table = list(_rows(kept[start // step], may_pair, range(start, min(start + step, rows)), every))
        for row in range(len(table) - 1, 0, -1):
            below = (1 << end) - 1
            new, old = ~table[row] & below, ~table[row - 1] & below
            if new.bit_count() > old.bit_count():
                end = new.bit_length() - 1
                pairs.append((start + row - 1, end))
    return pairs[::-1]


def equality_scores(a: Sequence[Hashable], b: Sequence[Hashable]) -> NDArray[np.float64]:
    """Score 1 where items are equal, 0 elsewhere; shape (len(a), len(b))."""
    codes = {item: code for code, item in enumerate(dict.fromkeys([*a, *b]))}
    left = np.array([codes[item] for item in a], dtype=np.int64)
    right = np.array([codes[item] for item in b], dtype=np.int64)
    equal: NDArray[np.float64] = (left[:, None] == right[None, :]).astype(np.float64)
    return equal


def _best_sums(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    rows, columns = scores.shape
    best: NDArray[np.float64] = np.zeros((rows + 1, columns + 1))
    for i in range(rows):
        paired = np.where(scores[i] > 0, best[i, :-1] + scores[i], 0.0)
        best[i + 1, 1:] = np.maximum.accumulate(np.maximum(best[i, 1:], paired))
    return best


def _rows(first: int, may_pair: Callable[[int], int], rows: range, every: int) -> Iterator[int]:
    """Rows of the table from the first on; bit j is unset where the sum grows by one from column j to j + 1."""
    flat = first
    yield flat
    for row in rows:
        growing = flat & may_pair(row)
        flat = ((flat + growing) | (flat - growing)) & every
        yield flat
