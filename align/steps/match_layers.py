"""Layers of two sides paired: by equal paths, then by class, shape and order, each such pair held against its rivals.

What the evidence does not settle is open, and so is a pair whose surroundings belong to other layers: of two strangers
that are the only ones of their shape nobody knows that they are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.steps.ambiguity import OpenGroup, as_ambiguities, group_links
from align.steps.evidence import SETTLED, learn
from align.steps.exchange import confidence, crosses, may_pair, settle
from align.steps.identity import same_paths
from align.steps.paths import likeness, words
from align.steps.repeats import find_repeats
from align.steps.sequences import align_sequences, equality_scores
from align.steps.unfold import unfold_groups, unfold_pairs, unlike_lists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from align.core.names import Ambiguity
    from align.steps.evidence import Learnt, Pair
    from align.steps.layers import Layer

_ESTRANGED = "the only free ones of this class and shape, but what stands around them is paired otherwise"


@dataclass(frozen=True, slots=True)
class LayerMatch:
    """Sure pairs with their confidence, and what stays open."""

    pairs: list[tuple[Pair, float]]
    ambiguous: list[Ambiguity]


def match_layers(left: list[Layer], right: list[Layer], known: Sequence[Pair], ordered: bool) -> LayerMatch:
    """Pair the layers of both sides; pairs that are `known` already only teach.

    `ordered` says that both sides stand in the order of execution, which then is evidence.
    """
    if not left or not right:
        return LayerMatch([], [])
    whole: tuple[set[str], set[str]] = (set(), set())
    while True:
        folded = find_repeats((left, right), known, whole)
        taught = [(a, b) for a, b in known if folded[0].spots[a.path].kept and folded[1].spots[b.path].kept]
        pairs, groups = _match(folded[0].kept, folded[1].kept, taught, ordered)
        if not any(unlike := unlike_lists(folded, [pair for pair, _ in pairs])):
            break
        for lists, more in zip(whole, unlike, strict=True):
            lists.update(more)
    groups = unfold_groups(folded, groups)
    return LayerMatch(unfold_pairs(folded, pairs), [one for group in groups for one in as_ambiguities(group)])


def _match(
    left: list[Layer], right: list[Layer], known: Sequence[Pair], ordered: bool
) -> tuple[list[tuple[Pair, float]], list[OpenGroup]]:
    same = same_paths(left, right)
    known = [*known, *same]
    left, right = _without(left, {a.path for a, _ in same}), _without(right, {b.path for _, b in same})
    settlement = settle(place_layers(left, right), (left, right), known, ordered)
    groups = group_links(settlement.links)
    sure = [entry for entry in zip(settlement.pairs, settlement.weakest, strict=True) if entry[1] >= SETTLED]
    learnt = learn([*known, *(pair for pair, _ in sure)], ordered)
    placed = [*same, *(pair for pair, _ in sure)]
    strange = {pair[0].path for pair, _ in sure if _estranged(pair, learnt) or _out_of_place(pair, placed, learnt)}
    open_pairs = [pair for pair, _ in sure if pair[0].path in strange]
    groups += [OpenGroup((("source", a), ("target", b)), _ESTRANGED) for a, b in open_pairs]
    pairs = [(pair, confidence(weak)) for pair, weak in sure if pair[0].path not in strange]
    return [*((pair, 1.0) for pair in same), *pairs], groups


def place_layers(left: list[Layer], right: list[Layer]) -> list[Pair]:
    """Pair layers of equal class and shape: first keeping the order of both sides, then whatever is left over."""
    shared = {a.signature for a in left} & {b.signature for b in right}
    left, right = ([layer for layer in side if layer.signature in shared] for side in (left, right))
    placed = align_sequences(_compatible(left, right))
    pairs = [(left[i], right[j]) for i, j in placed]
    rest = _without(right, {b.path for _, b in pairs})
    for layer in _without(left, {a.path for a, _ in pairs}):
        other = next((candidate for candidate in rest if may_pair(layer, candidate)), None)
        if other is not None:
            rest.remove(other)
            pairs.append((layer, other))
    return pairs


def _compatible(left: list[Layer], right: list[Layer]) -> NDArray[np.float64]:
    """1 where two layers may pair, as `may_pair` says of each two; shape (len(left), len(right))."""
    alike = equality_scores([(a.signature, a.aside) for a in left], [(b.signature, b.aside) for b in right])
    kinds = equality_scores([a.kind for a in left], [b.kind for b in right])
    unknown = np.array([not a.kind for a in left], bool)[:, None] | np.array([not b.kind for b in right], bool)[None, :]
    compatible: NDArray[np.float64] = alike * np.maximum(kinds, unknown)
    return compatible


def _estranged(pair: Pair, learnt: Learnt) -> bool:
    """Tell whether the layers around both are paired elsewhere, and no words of the paths are alike."""
    a, b = pair
    return learnt.around.context(pair, (pair,)) < 0 and not likeness(words(a.path), words(b.path))


def _out_of_place(pair: Pair, placed: Sequence[Pair], learnt: Learnt) -> bool:
    """Tell whether nothing but its shape speaks for a pair, and its place against it.

    Its place is judged among the pairs of its own shape, and among those of equal names: where a port keeps the
    names, another name at another place is another layer.
    """
    a, b = pair
    if likeness(words(a.path), words(b.path)) or learnt.translation(a, b) or learnt.around.neighbours(pair, (pair,)):
        return False
    others = [other for other in placed if may_pair(a, other[1]) or other[0].path == other[1].path]
    return any(crosses(pair, other) for other in others if other != pair)


def _without(layers: list[Layer], paths: set[str]) -> list[Layer]:
    return [layer for layer in layers if layer.path not in paths]
