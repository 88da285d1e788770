"""Layers of two sides paired: by equal paths, then by class, shape and order, each such pair held against its rivals.

What the evidence does not settle is open, and so is a pair whose surroundings belong to other layers: two layers with
nothing else in common may be the only ones of their shape, and yet not be one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from align.core.align_sequences import align_alike
from align.names.layers.exchange_evidence import SETTLED, learn_from_pairs
from align.names.layers.repeated_blocks import find_repeated_blocks
from align.names.matching.equal_paths import find_equal_paths
from align.names.matching.open_groups import OpenGroup, as_ambiguities, group_links
from align.names.matching.shape_only_pairs import (
    DistinctiveWords,
    by_shape_alone,
    has_unrelated_names,
    is_out_of_place,
    stands_elsewhere,
)
from align.names.matching.unfold_repeated_blocks import unfold_groups, unfold_pairs, unlike_lists
from align.names.matching.weigh_exchanges import confidence, may_pair, settle_exchanges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from align.core.name_map import Ambiguity
    from align.names.layers.read_layers import Layer, Pair

# A pair that stands in one place of both models, and is told by nothing but that and its shape: never sure.
_BY_SHAPE = 0.75
_UNRELATED = "the only free ones of this class and shape, but what stands around them is paired otherwise"


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
        folded = find_repeated_blocks((left, right), known, whole)
        taught = [(a, b) for a, b in known if folded[0].positions[a.path].kept and folded[1].positions[b.path].kept]
        pairs, groups = _match(folded[0].kept, folded[1].kept, taught, ordered)
        if not any(unlike := unlike_lists(folded, [pair for pair, _ in pairs], groups)):
            break
        for lists, more in zip(whole, unlike, strict=True):
            lists.update(more)
    groups = unfold_groups(folded, groups)
    return LayerMatch(unfold_pairs(folded, pairs), [one for group in groups for one in as_ambiguities(group)])


def _match(
    left: list[Layer], right: list[Layer], known: Sequence[Pair], ordered: bool
) -> tuple[list[tuple[Pair, float]], list[OpenGroup]]:
    equal_paths = find_equal_paths(left, right)
    same = equal_paths.pairs
    told = {a.signature for a, _ in known}
    known = [*known, *same]
    left, right = _without(left, {a.path for a, _ in same}), _without(right, {b.path for _, b in same})
    settlement = settle_exchanges(place_layers(left, right), (left, right), known, ordered, equal_paths.unlike)
    groups = group_links(settlement.links)
    sure = [entry for entry in zip(settlement.pairs, settlement.weakest, strict=True) if entry[1] >= SETTLED]
    settled = [*known, *(pair for pair, _ in sure)]
    learnt = learn_from_pairs(settled, ordered)
    placed = [*same, *(pair for pair, _ in sure)]
    own = DistinctiveWords([*left, *(a for a, _ in known)], [*right, *(b for _, b in known)], settled)
    number = Counter(layer.signature for layer in (*left, *right))
    lone = [pair for pair, _ in sure if number[pair[0].signature] == 2 and pair[0].signature not in told]
    chance = {pair[0].path for pair in lone if by_shape_alone(pair, learnt, own.of(pair))}
    strange = {
        pair[0].path
        for pair, _ in sure
        if has_unrelated_names(pair, learnt, own) or is_out_of_place(pair, placed, learnt, own)
    }
    strange |= {pair[0].path for pair in lone if stands_elsewhere(pair, settled, learnt)}
    open_pairs = [pair for pair, _ in sure if pair[0].path in strange]
    groups += [OpenGroup((("source", a), ("target", b)), _UNRELATED) for a, b in open_pairs]
    pairs = [
        (pair, _BY_SHAPE if pair[0].path in chance else confidence(weak))
        for pair, weak in sure
        if pair[0].path not in strange
    ]
    return [*((pair, 1.0) for pair in same), *pairs], groups


def place_layers(left: list[Layer], right: list[Layer]) -> list[Pair]:
    """Pair layers of equal class and shape: first keeping the order of both sides, then whatever is left over."""
    shared = {a.signature for a in left} & {b.signature for b in right}
    left, right = ([layer for layer in side if layer.signature in shared] for side in (left, right))
    placed = align_alike(len(left), len(right), _compatible(left, right))
    pairs = [(left[i], right[j]) for i, j in placed]
    rest: dict[object, list[Layer]] = defaultdict(list)
    for layer in _without(right, {b.path for _, b in pairs}):
        rest[layer.signature].append(layer)
    for layer in _without(left, {a.path for a, _ in pairs}):
        own = rest[layer.signature]
        place = next((place for place, candidate in enumerate(own) if may_pair(layer, candidate)), None)
        if place is not None:
            pairs.append((layer, own.pop(place)))
    return pairs


def _compatible(left: Sequence[Layer], right: Sequence[Layer]) -> Callable[[int], int]:
    """Return what gives, for the index of a left layer, a bit for each right layer that `may_pair` it."""
    shapes, kinds = _places((b.signature, b.aside) for b in right), _places(b.kind for b in right)
    of_kind = {kind: _bits(places) for kind, places in kinds.items()}

    @lru_cache(maxsize=256)
    def bits(shape: object, kind: str) -> int:
        return _bits(shapes[shape]) & (of_kind.get(kind, 0) | of_kind.get("", 0) if kind else -1)

    return lambda index: bits((left[index].signature, left[index].aside), left[index].kind)


def _places(items: Iterable[object]) -> dict[object, list[int]]:
    """The places at which each item stands."""
    places: dict[object, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        places[item].append(place)
    return places


def _bits(places: Sequence[int]) -> int:
    """One integer with a bit set for each place, which ascend."""
    held = bytearray(places[-1] // 8 + 1 if places else 0)
    for place in places:
        held[place // 8] |= 1 << place % 8
    return int.from_bytes(held, "little")


def _without(layers: list[Layer], paths: set[str]) -> list[Layer]:
    return [layer for layer in layers if layer.path not in paths]
