"""Pairs that every block confirms: what each block tells in part, and all tell alike, is told in full.

Whether the blocks agree is read from ends of paths. Each layer of either side whose path has such an end must be in
such a pair: where one side lacks a block, or a list is off by one, nothing agrees.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from align.names.layers.exchange_evidence import path_ends

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.names.layers.read_layers import Layer, Pair

_BLOCKS = 3  # the least number of them that agree


class BlockAgreement:
    """How many layers of both sides have each end of a path."""

    def __init__(self, left: Iterable[Layer], right: Iterable[Layer]) -> None:
        self._counts = tuple(Counter(end for layer in side for end in path_ends(layer.path)) for side in (left, right))

    def of_all_blocks(self, pairs: Sequence[Pair]) -> list[bool]:
        """Tell of each pair whether an end of its source went with one of its target in all layers that have either."""
        together = Counter((x, y) for a, b in pairs for x in path_ends(a.path) for y in path_ends(b.path))
        mine, theirs = self._counts
        whole = {(x, y) for (x, y), count in together.items() if count == mine[x] == theirs[y] and count >= _BLOCKS}
        return [any((x, y) in whole for x in path_ends(a.path) for y in path_ends(b.path)) for a, b in pairs]
