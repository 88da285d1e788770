"""Layers of two sides paired: by equal paths, then by class, shape and order, each such pair held against its rivals.

An index in a list means the same only if both lists are numbered alike: a Sequential that counts its activations says 3
where another says 1. So a numbered list is believed if one side's indices are all found on the other side, no index
holds layers of different kinds, no layer that is left over stands on the other side of it, and no index holds other
shapes where a child is missing or stands elsewhere in the list. What the evidence does not settle is open, and so is a
pair whose surroundings belong to other layers: two may be the only ones of their shape, and yet not be one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from align.core.align_sequences import align_alike
from align.names.matching.repeated_blocks import (
    KnownPairs,
    OpenGroup,
    as_ambiguities,
    find_repeated_blocks,
    group_links,
    unfold_groups,
    unfold_pairs,
    unlike_lists,
)
from align.names.matching.weigh_exchanges import PairEvidence, confidence, settle_exchanges, settle_norms_beside
from align.names.read_layers import (
    DistinctiveWords,
    crosses,
    likeness,
    may_pair,
    modules_above,
    numbered,
    of_one_kind,
    unlike_beyond_kind,
    words,
)
from align.names.thresholds import CLEAR_BENEFIT, CONFIDENCE_BY_SHAPE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    from align.core.name_map import Ambiguity
    from align.names.read_layers import Layer, Pair, Tokens


UNRELATED = sentence("pair_note.unrelated")


@dataclass(frozen=True, slots=True)
class LayerMatch:
    """Sure pairs with their confidence, and what stays open."""

    pairs: list[tuple[Pair, float]]
    ambiguous: list[Ambiguity]


def match_layers(
    left: list[Layer], right: list[Layer], known: Sequence[Pair] | KnownPairs, ordered: bool, more: Sequence[Pair] = ()
) -> LayerMatch:
    """Pair the layers of both sides; pairs that are `known` already, and `more`, only teach.

    `ordered` says that both sides stand in the order of execution, which then is evidence.
    """
    if not left or not right:
        return LayerMatch([], [])
    if len(same := find_equal_paths(left, right).pairs) == len(left) == len(right):
        return LayerMatch([(pair, 1.0) for pair in same], [])
    whole: tuple[set[str], set[str]] = (set(), set())
    read = known if isinstance(known, KnownPairs) else KnownPairs(known)
    while True:
        folded, teaching = find_repeated_blocks((left, right), read, more, whole)
        pairs, groups = _match(folded[0].kept, folded[1].kept, teaching, ordered)
        if not any(unlike := unlike_lists(folded, [pair for pair, _ in pairs], groups)):
            break
        for lists, further in zip(whole, unlike, strict=True):
            lists.update(further)
    groups = unfold_groups(folded, groups)
    return LayerMatch(unfold_pairs(folded, pairs), [one for group in groups for one in as_ambiguities(group)])


def _match(
    left: list[Layer], right: list[Layer], known: Sequence[Pair], ordered: bool
) -> tuple[list[tuple[Pair, float]], list[OpenGroup]]:
    equal_paths = find_equal_paths(left, right)
    same = equal_paths.pairs
    known_shapes = {a.signature for a, _ in known}
    known = [*known, *same]
    left, right = _without(left, {a.path for a, _ in same}), _without(right, {b.path for _, b in same})
    if not (placed := place_layers(left, right)):  # nobody need read what the known pairs teach
        return [(pair, 1.0) for pair in same], []
    settlement = settle_exchanges(placed, (left, right), known, ordered, equal_paths.unlike)
    sure = [entry for entry in zip(settlement.pairs, settlement.weakest, strict=True) if entry[1] >= CLEAR_BENEFIT]
    pairs_so_far = [pair for pair, _ in sure]
    sides = [*left, *(a for a, _ in known)], [*right, *(b for _, b in known)]
    facts = read_pair_facts(pairs_so_far, [*known, *pairs_so_far], sides)
    doubts = _ShapeDoubts(facts, [*known, *pairs_so_far], [*same, *pairs_so_far])
    number = Counter(layer.signature for layer in (*left, *right))
    lone = [pair for pair in pairs_so_far if number[pair[0].signature] == 2 and pair[0].signature not in known_shapes]
    chance = {pair[0].path for pair in lone if doubts.is_chance(pair)}
    strange = {pair[0].path for pair in pairs_so_far if doubts.is_strange(pair)}
    strange |= {pair[0].path for pair in lone if doubts.stands_elsewhere(pair)}
    kept = [pair for pair in pairs_so_far if pair[0].path not in strange]
    beside, groups = settle_norms_beside(group_links(settlement.links), [*known, *kept])
    groups += [OpenGroup((("source", a), ("target", b)), UNRELATED) for a, b in pairs_so_far if a.path in strange]
    pairs = [
        (pair, CONFIDENCE_BY_SHAPE if pair[0].path in chance else confidence(weak))
        for pair, weak in sure
        if pair[0].path not in strange
    ]
    return [*((pair, 1.0) for pair in same), *pairs, *beside], groups


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


class _ShapeDoubts:
    """What speaks against pairs that little but their shape makes: words that a layer has for itself, and its place."""

    def __init__(self, facts: Mapping[str, PairFacts], settled: Sequence[Pair], placed: Sequence[Pair]) -> None:
        self._facts, self._settled, self._placed = facts, settled, placed

    def is_strange(self, pair: Pair) -> bool:
        """Tell whether the names or the place of a pair are those of other layers."""
        facts = self._facts[pair[0].path]
        return facts.differ or (not facts.alike and (facts.context < 0 or self._is_out_of_place(pair)))

    def is_chance(self, pair: Pair) -> bool:
        """Tell whether the words of its own are against a pair, and for it but a shape of one length."""
        return self._rests_on_shape(pair, own_words=True)

    def stands_elsewhere(self, pair: Pair) -> bool:
        """Tell whether a pair by its shape alone, and unlike in all its words, has another place among those settled.

        It stands before another on one side and behind it on the other, and beside none on both.
        """
        if not self._rests_on_shape(pair, own_words=False):
            return False
        others = [other for other in self._settled if other != pair]
        return any(crosses(pair, other) for other in others) and not any(
            one == two for one, two in zip(_beside(pair, others, 0), _beside(pair, others, 1), strict=True) if one
        )

    def _is_out_of_place(self, pair: Pair) -> bool:
        """Tell whether no settled pair speaks for a pair, and its place speaks against it.

        Its place is judged among the pairs of its own shape, and among those of equal names: where a port keeps the
        names, another name at another place is another layer.
        """
        a, facts = pair[0], self._facts[pair[0].path]
        if facts.translation or facts.neighbours:
            return False
        rivals = [one for one in self._placed if may_pair(a, one[1]) and len({a.axes, one[1].axes} - {""}) < 2]
        others = [*rivals, *(one for one in self._placed if one[0].path == one[1].path)]
        return any(crosses(pair, other) for other in others if other != pair)

    def _rests_on_shape(self, pair: Pair, *, own_words: bool) -> bool:
        """Tell whether the words of a pair are against it, and for it but a shape of one length."""
        facts = self._facts[pair[0].path]
        return facts.by_shape[own_words] and not facts.translation


def _beside(pair: Pair, others: Sequence[Pair], side: int) -> tuple[Pair | None, Pair | None]:
    """The pairs next before and next behind on one side."""
    here = pair[side].position
    before = [other for other in others if other[side].position < here]
    behind = [other for other in others if other[side].position > here]

    def position(other: Pair) -> int:
        return other[side].position

    return max(before, key=position, default=None), min(behind, key=position, default=None)


@dataclass(frozen=True, slots=True)
class PairFacts:
    """What the names and the settled pairs of both sides say of one pair.

    `alike` is the likeness in [0, 1] of the words that each path has for itself, that of all words if one has none.
    `differ` says that nothing is alike but a last word that stands elsewhere too; `by_shape` that words are against
    the pair, and for it but a shape of one length: all words, and their own. The others are what `PairEvidence` and
    `SettledNeighbours` call so.
    """

    alike: float
    differ: bool
    by_shape: tuple[bool, bool]
    translation: float
    context: float
    neighbours: float


def read_pair_facts(
    pairs: Sequence[Pair], settled: Sequence[Pair], sides: tuple[Sequence[Layer], Sequence[Layer]]
) -> dict[str, PairFacts]:
    """Return what speaks for and against each of the pairs, by the path of its source; `settled` pairs teach."""
    names = DistinctiveWords([[layer.path for layer in side] for side in sides], [(a.path, b.path) for a, b in settled])
    by_words = [_told_by_words(pair, names) for pair in pairs]
    evidence = PairEvidence(settled, ordered=False)
    return {pair[0].path: PairFacts(*said, *evidence.of_pair(pair)) for pair, said in zip(pairs, by_words, strict=True)}


def _told_by_words(pair: Pair, names: DistinctiveWords) -> tuple[float, bool, tuple[bool, bool]]:
    """The first facts of a pair, which its words tell."""
    a, b = pair[0].path, pair[1].path
    own, whole = names.of(a, b), (words(a), words(b))
    alike = likeness(*own) if all(own) else likeness(*whole)
    differ = not alike and names.share_an_end(a, b)
    return alike, differ, (_by_shape_alone(pair, whole), _by_shape_alone(pair, own))


def _by_shape_alone(pair: Pair, words: tuple[Tokens, Tokens]) -> bool:
    """Tell whether the words that are `words` of a pair are against it, and for it but a shape of one length.

    Anything of this width has that; but a layer of a numbered block is there as often as the block: no chance.
    """
    square = len({length for _, shape in pair[0].signature for length in shape} - {1}) == 1
    if not square or any(numbered(layer.path) for layer in pair):
        return False
    return unlike_beyond_kind(words, (pair[0].kind, pair[1].kind))


class PairedModules:
    """The modules of both sides with the paired layers below each; `side` is 0 for the source's, 1 for the target's."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._paths = [pair[0].path for pair in pairs], [pair[1].path for pair in pairs]
        self._facing: tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]] = {}, {}

    @cached_property
    def _below(self) -> tuple[dict[str, set[int]], dict[str, set[int]]]:
        """The numbers of the pairs below each module of both sides; where nothing is left over, nobody asks."""
        by_module: tuple[dict[str, set[int]], dict[str, set[int]]] = defaultdict(set), defaultdict(set)
        for paths, below in zip(self._paths, by_module, strict=True):
            for number, path in enumerate(paths):
                for module in modules_above(path):
                    below[module].add(number)
        return by_module

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


@dataclass(frozen=True, slots=True)
class EqualPaths:
    """Layers that have one path on both sides: `pairs` are the same layer, what is at an `unlike` path has changed.

    A layer whose width was changed, or that keeps its matrix the other way round, is no other layer for it.
    """

    pairs: list[Pair]
    unlike: Set[str]


def find_equal_paths(left: Sequence[Layer], right: Sequence[Layer]) -> EqualPaths:
    """Return the layers of equal path whose indices, if the path has any, mean the same on both sides."""
    others = {layer.path: layer for layer in right}
    common = [(layer, others[layer.path]) for layer in left if layer.path in others]
    if not common:
        return EqualPaths([], set())
    changed = {a.path for a, b in common if a.signature != b.signature and of_one_kind(a, b)}
    moved = _moved_lists(left, right, changed)
    doubtful = _unlike_lists(left, right) | _clashing_lists(left, right, common) | _crossed_lists(left, right, common)
    doubtful |= moved | _shortened_lists(left, right, changed)
    pairs = [
        (a, b) for a, b in common if may_pair(a, b) and (not doubtful or doubtful.isdisjoint(_lists_above(a.path)))
    ]
    return EqualPaths(pairs, {path for path in changed if moved.isdisjoint(_lists_above(path))})


def _moved_lists(left: Sequence[Layer], right: Sequence[Layer], changed: Set[str]) -> set[str]:
    """Lists with changed layers of which the children of one side are all on the other, at whatever numbers."""
    above = {container for path in changed for container in _lists_above(path)}
    mine, theirs = (_children(side) for side in (left, right)) if above else ({}, {})
    return {one for one in above if mine[one] <= theirs[one] or theirs[one] <= mine[one]}


def _children(layers: Sequence[Layer]) -> dict[str, Counter[frozenset[object]]]:
    """What the children of each numbered list hold, and how many hold that."""
    contents: dict[tuple[str, str], set[object]] = defaultdict(set)
    for layer in layers:
        for container, _, child in numbered(layer.path):
            contents[container, child].add((layer.path[len(child) :], layer.signature))
    children: dict[str, Counter[frozenset[object]]] = defaultdict(Counter)
    for (container, _), content in contents.items():
        children[container][frozenset(content)] += 1
    return children


def _shortened_lists(left: Sequence[Layer], right: Sequence[Layer], changed: Set[str]) -> set[str]:
    """Lists with changed layers that have fewer children on one side: numbers do not say which are missing."""
    mine, theirs = (_lists(side) for side in (left, right)) if changed else ({}, {})
    return {one for path in changed for one in _lists_above(path) if mine[one] != theirs[one]}


def _unlike_lists(left: Sequence[Layer], right: Sequence[Layer]) -> set[str]:
    mine, theirs = _lists(left), _lists(right)
    return {
        container
        for container in mine.keys() & theirs.keys()
        if not (mine[container] <= theirs[container] or theirs[container] <= mine[container])
    }


def _clashing_lists(left: Sequence[Layer], right: Sequence[Layer], common: Sequence[Pair]) -> set[str]:
    """Lists in which one path holds layers of two kinds, or a layer on one side and a module of layers on the other."""
    clashes = [a.path for a, b in common if a.kind != b.kind and a.kind and b.kind]
    for mine, theirs in ((left, right), (right, left)):
        modules = {path.rpartition(".")[0] for path in (layer.path for layer in theirs)}
        clashes += [layer.path for layer in mine if layer.path in modules]
    return {container for path in clashes for container in _lists_above(path)}


def _crossed_lists(left: Sequence[Layer], right: Sequence[Layer], common: Sequence[Pair]) -> set[str]:
    """Lists that stand before a free layer on one side and behind the free layer that it may be on the other.

    `in, conv1, conv2` against `conv1, conv2, conv3`: the numbers may have been shifted by one.
    """
    named = {a.path for a, _ in common}
    mine, theirs = ([layer for layer in side if layer.path not in named] for side in (left, right))
    free: dict[object, list[Pair]] = defaultdict(list)
    others: dict[object, list[Layer]] = defaultdict(list)
    for layer in _ends(theirs):
        others[layer.signature].append(layer)
    for x in _ends(mine):
        free[x.signature] += [(x, y) for y in others.get(x.signature, ()) if may_pair(x, y)]
    rivals = ((a, b, free.get(b.signature, ())) for a, b in common)
    crossed = [a.path for a, b, own in rivals if any(may_pair(x, b) and crosses((a, b), (x, y)) for x, y in own)]
    return {container for path in crossed for container in _lists_above(path)}


def _ends(layers: Sequence[Layer]) -> list[Layer]:
    """The first and the last of all layers that may pair the same: what crosses one between crosses one of these."""
    likes: dict[object, list[Layer]] = defaultdict(list)
    for layer in sorted(layers, key=lambda layer: layer.position):
        likes[layer.signature, layer.kind, layer.aside].append(layer)
    return [end for own in likes.values() for end in own[:: max(len(own) - 1, 1)]]


def _lists(layers: Sequence[Layer]) -> dict[str, set[str]]:
    indexes: dict[str, set[str]] = defaultdict(set)
    for layer in layers:
        for container, index, _ in numbered(layer.path):
            indexes[container].add(index)
    return indexes


def _lists_above(path: str) -> list[str]:
    return [container for container, _, _ in numbered(path)]
