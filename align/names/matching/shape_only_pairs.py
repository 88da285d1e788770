"""Two layers that are the only free ones of a shape, and yet not one: what stands around them belongs to others.

Only words that tell a layer from others of its side are held against each other: not those of modules whose other
layers are paired, since every layer there has them, nor those that stand in several places (`dense`, `token`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from align.names.layers.path_words import likeness, numbered, word_likeness, words
from align.names.layers.same_place import modules_above
from align.names.matching.weigh_exchanges import crosses, may_pair

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.names.layers.exchange_evidence import Learnt
    from align.names.layers.path_words import Tokens
    from align.names.layers.read_layers import Layer, Pair

_DIGITS = re.compile(r"\d+")


class DistinctiveWords:
    """The words that tell a layer from the others of its side."""

    def __init__(self, left: Iterable[Layer], right: Iterable[Layer], settled: Sequence[Pair]) -> None:
        sides = [layer.path for layer in left], [layer.path for layer in right]
        settled_paths = [a.path for a, _ in settled], [b.path for _, b in settled]
        self._common = [_common_words(paths) for paths in sides]
        self._held = [Counter(module for path in paths for module in modules_above(path)) for paths in settled_paths]
        self._settled = {(a.path, b.path) for a, b in settled}
        self._ends: dict[Tokens, list[tuple[str, str]]] = defaultdict(list)
        for a, b in self._settled:
            for end in {words(a)[-1:], words(b)[-1:]}:
                self._ends[end].append((a, b))

    def alike(self, pair: Pair) -> float:
        """Likeness of the words that both have for themselves, in [0, 1]; of all words if one has none."""
        own, others = self.of(pair)
        return likeness(own, others) if own and others else likeness(words(pair[0].path), words(pair[1].path))

    def of(self, pair: Pair) -> tuple[Tokens, Tokens]:
        """The words that each of two layers has for itself."""
        counted = int((pair[0].path, pair[1].path) in self._settled)
        own, others = (self._of(layer.path, side, counted) for side, layer in enumerate(pair))
        return own, others

    def differ(self, pair: Pair) -> bool:
        """Tell whether both names end in a word that both sides use alike elsewhere: `mask_token` and `dist_token`."""
        mine, theirs = (words(layer.path) for layer in pair)
        ends = self._ends.get(mine[-1:], []) if mine and mine[-1:] == theirs[-1:] else []
        others = [both for both in ends if both != (pair[0].path, pair[1].path)]
        kept = bool(others) and all(words(a)[-2:] == words(b)[-2:] for a, b in others)
        return kept and not self.alike(pair)

    def _of(self, path: str, side: int, counted: int) -> Tokens:
        module = next((one for one in modules_above(path) if self._held[side][one] > counted), "")
        common = self._common[side]
        return tuple(
            word
            for word in words(path[len(module) :])
            if len(word) > 1 and not any(word_likeness(word, other) for other in common)
        )


def has_unrelated_names(pair: Pair, learnt: Learnt, own: DistinctiveWords) -> bool:
    """Tell whether no words of their own are alike, and the names or the layers around both are of others."""
    return own.differ(pair) or (learnt.around.context(pair, (pair,)) < 0 and not own.alike(pair))


def is_out_of_place(pair: Pair, placed: Sequence[Pair], learnt: Learnt, own: DistinctiveWords) -> bool:
    """Tell whether nothing but its shape speaks for a pair, and its place against it.

    Its place is judged among the pairs of its own shape, and among those of equal names: where a port keeps the
    names, another name at another place is another layer.
    """
    a, b = pair
    if own.alike(pair) or learnt.translation(a, b) or learnt.around.neighbours(pair, (pair,)):
        return False
    rivals = [other for other in placed if may_pair(a, other[1]) and len({a.axes, other[1].axes} - {""}) < 2]
    others = [*rivals, *(other for other in placed if other[0].path == other[1].path)]
    return any(crosses(pair, other) for other in others if other != pair)


def by_shape_alone(pair: Pair, learnt: Learnt, said: tuple[Tokens, Tokens]) -> bool:
    """Tell whether the words that are `said` of a pair are against it, and for it but a shape of one length.

    Anything of this width has that; but a layer of a numbered block is there as often as the block, which is no chance.
    """
    square = len({length for _, shape in pair[0].signature for length in shape} - {1}) == 1
    if not square or any(numbered(layer.path) for layer in pair):
        return False
    mine, theirs = (_beyond_kind(layer, told) for layer, told in zip(pair, said, strict=True))
    return bool(mine and theirs) and not likeness(mine, theirs) and not learnt.translation(*pair)


def _beyond_kind(layer: Layer, told: Tokens) -> Tokens:
    """The words that say more of a layer than its kind: all norms are called norms, and those of groups `gn`."""
    kind = layer.kind.split("_")
    initials = "".join(word[:1] for word in kind)
    return tuple(word for word in told if len(word) > 1 and word not in {*kind, initials})


def stands_elsewhere(pair: Pair, placed: Sequence[Pair], learnt: Learnt) -> bool:
    """Tell whether a pair by its shape alone, and unlike in all its words, has another place among those `placed`.

    It stands before another on one side and behind it on the other, and beside none on both.
    """
    if not by_shape_alone(pair, learnt, (words(pair[0].path), words(pair[1].path))):
        return False
    others = [other for other in placed if other != pair]
    return any(crosses(pair, other) for other in others) and not any(
        one == two for one, two in zip(_beside(pair, others, 0), _beside(pair, others, 1), strict=True) if one
    )


def _beside(pair: Pair, others: Sequence[Pair], side: int) -> tuple[Pair | None, Pair | None]:
    """The pairs next before and next behind on one side."""
    here = pair[side].position
    before = [other for other in others if other[side].position < here]
    behind = [other for other in others if other[side].position > here]

    def position(other: Pair) -> int:
        return other[side].position

    return max(before, key=position, default=None), min(behind, key=position, default=None)


def _common_words(paths: Iterable[str]) -> set[str]:
    """Words of several modules or layers; the numbers of lists make no difference."""
    places = set()
    for path in {_DIGITS.sub("#", path) for path in paths}:
        places.update({path, *modules_above(path)})
    count = Counter(word for place in places for word in set(words(place.rpartition(".")[2])))
    return {word for word, number in count.items() if number > 1}
