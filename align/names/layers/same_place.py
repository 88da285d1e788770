"""Do two layers stand in one place of both models? What is paired around them must be paired to each other."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.names.layers.read_layers import Layer, Pair


class PairedModules:
    """The modules of both sides with the paired layers below each; `side` is 0 for the source's, 1 for the target's."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._paths = [pair[0].path for pair in pairs], [pair[1].path for pair in pairs]
        self._below: tuple[dict[str, set[int]], dict[str, set[int]]] = defaultdict(set), defaultdict(set)
        self._facing: tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]] = {}, {}
        for paths, below in zip(self._paths, self._below, strict=True):
            for number, path in enumerate(paths):
                for module in modules_above(path):
                    below[module].add(number)

    def module(self, layer: Layer, side: int) -> str | None:
        """The nearest module around a layer that holds paired layers."""
        return next((path for path in modules_above(layer.path) if path in self._below[side]), None)

    def facing(self, layer: Layer, side: int) -> frozenset[str]:
        """Modules of the other side that hold the same pairs as the layer's, or some of them, or all and more."""
        module = self.module(layer, side)
        if module is None:
            return frozenset()
        known = self._facing[side]
        if module not in known:
            own, other = self._below[side][module], self._below[1 - side]
            touched = {path for number in own for path in modules_above(self._paths[1 - side][number])}
            known[module] = frozenset(path for path in touched if other[path] <= own or own <= other[path])
        return known[module]

    def together(self, a: Layer, b: Layer) -> bool:
        """Tell whether a source's layer and a target's stand in one place."""
        return self.module(b, 1) in self.facing(a, 0)


def modules_above(path: str) -> list[str]:
    """Paths of the modules above, the nearest first, the root ("") last."""
    parts = path.split(".")
    return [".".join(parts[:length]) for length in range(len(parts) - 1, -1, -1)]
