"""The smallest part of a set that still shows an effect, by halving.

A. Zeller and R. Hildebrandt, Simplifying and isolating failure-inducing input, IEEE Trans. Softw. Eng. 28 (2002).
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


def smallest_set(items: Sequence[T], shows: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Return a part of the items that shows the effect and of which none can be left out, in their order.

    All of them together must show it. For one item that is to blame it takes about 2 log2(n) calls.
    """
    kept, parts = tuple(items), 2
    while len(kept) > 1:
        size = ceil(len(kept) / parts)
        chunks = [kept[start : start + size] for start in range(0, len(kept), size)]
        rests = [tuple(item for item in kept if item not in chunk) for chunk in chunks] if parts > 2 else []
        smaller = next((part for part in (*chunks, *rests) if shows(part)), None)
        if smaller is not None:
            parts = 2 if smaller in chunks else max(parts - 1, 2)
            kept = smaller
        elif parts >= len(kept):
            break
        else:
            parts = min(2 * parts, len(kept))
    return kept
