"""Do two layers stand in one place of both models? What is paired around them must be paired to each other."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.steps.evidence import Pair
    from align.steps.layers import Layer


class Places:
    """The modules of both sides with the paired layers below each."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._left: dict[str, set[int]] = defaultdict(set)
        self._right: dict[str, set[int]] = defaultdict(set)
        for number, (a, b) in enumerate(pairs):
            for side, layer in ((self._left, a), (self._right, b)):
                for module in modules_above(layer.path):
                    side[module].add(number)

    def together(self, a: Layer, b: Layer) -> bool:
        """Tell whether the nearest modules around both that hold paired layers hold the same, one maybe more."""
        mine, theirs = _nearest(self._left, a.path), _nearest(self._right, b.path)
        return bool(mine) and bool(theirs) and (mine <= theirs or theirs <= mine)


def modules_above(path: str) -> list[str]:
    """Paths of the modules above, the nearest first, the root ("") last."""
    parts = path.split(".")
    return [".".join(parts[:length]) for length in range(len(parts) - 1, -1, -1)]


def _nearest(side: dict[str, set[int]], path: str) -> set[int]:
    return next((side[module] for module in modules_above(path) if module in side), set())
