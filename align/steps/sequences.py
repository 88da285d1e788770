"""The best order-preserving pairing of two sequences, by dynamic programming without gap cost.

S. Needleman and C. Wunsch, A general method applicable to the search for similarities, J. Mol. Biol. 48 (1970).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

_TIE = 1e-9


def align_sequences(scores: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pairs (i, j), increasing in both, that maximize the sum of `scores[i, j]`; scores <= 0 never pair.

    `scores` has shape (n, m); time and memory are O(n m). Among equal sums the pairing that stays earliest wins.
    """
    best = _best_sums(scores)
    pairs = []
    i, j = scores.shape
    while i and j:
        if best[i - 1, j] >= best[i, j] - _TIE:
            i -= 1
        elif best[i, j - 1] >= best[i, j] - _TIE:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
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
