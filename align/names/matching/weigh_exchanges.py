"""Could two pairs of layers swap partners? The test that keeps a guess from being called sure.

Layers of equal class and shape are rivals. Each two pairs of rivals are weighed against their exchange, and each pair
against every unpaired rival that could take a place in it. Clear losses are exchanged; what stays undecided is open,
joined into the groups that a user has to settle together. What each block shows in part, and all blocks alike, counts
in full.

The evidence is one value, `PairEvidence`: made once a round of the pairs that are settled by then, and read by all who
weigh a pair. Each kind of it lies in [-2, 2].
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

from align.core.thresholds import SURE
from align.names.numbered_lists import (
    BlockAgreement,
    Contents,
    NumberedLists,
    SettledNeighbours,
    path_ends,
    read_contents,
    unnumbered_ends,
)
from align.names.read_layers import compare_names, contained, may_pair, tokens, unshared_words, words
from align.names.thresholds import (
    BENEFIT_OF_MAJORITY,
    BENEFIT_OF_SURE,
    BENEFIT_WITHOUT_RIVALS,
    CLEAR_BENEFIT,
    CONFIDENCE_BESIDE,
    MOST_EXCHANGES,
    TRANSLATION_SEEN,
    WEIGHING_ROUNDS,
    WEIGHT_OF_NEIGHBOURS,
    WEIGHT_OF_ORDER,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence, Set

    from align.names.matching.repeated_blocks import Link, OpenGroup, Rival
    from align.names.read_layers import Layer, Pair


Sides = tuple["Sequence[Layer]", "Sequence[Layer]"]


@dataclass(frozen=True, slots=True)
class Settlement:
    """Pairs after all clear exchanges; `weakest` is each pair's smallest benefit over its rivals (2 if none).

    `links` are the pairs and rivals between which nothing decides.
    """

    pairs: list[Pair]
    weakest: list[float]
    links: list[Link]

    def confirm(self, agreement: BlockAgreement) -> None:
        """Call pairs sure that are clear in every block, in each by itself, if not sure in one."""
        clear = [index for index, weak in enumerate(self.weakest) if weak >= BENEFIT_OF_MAJORITY]
        agreed = agreement.of_all_blocks([self.pairs[index] for index in clear])
        for index, alike in zip(clear, agreed, strict=True):
            if alike:
                self.weakest[index] = max(self.weakest[index], BENEFIT_OF_SURE)

    def note(self, benefit: float, index: int, other: int | Rival) -> None:
        """Take in what a pair has over an exchange with another pair, or over a rival in its place."""
        self.weakest[index] = min(self.weakest[index], benefit)
        if isinstance(other, int):
            self.weakest[other] = min(self.weakest[other], benefit)
        if benefit < CLEAR_BENEFIT:
            self.links.append((self.pairs[index], self.pairs[other] if isinstance(other, int) else other))


def settle_exchanges(
    pairs: Sequence[Pair], free: Sides, known: Sequence[Pair], ordered: bool, unlike: Set[str]
) -> Settlement:
    """Exchange partners wherever that is clearly better, learning from what is settled until nothing changes.

    `free` are the layers of both sides that may be paired; those that are `known` to be pairs only teach. `ordered`
    says that both sides stand in execution order. What is at an `unlike` path of both sides is paired with nothing.
    Layers of a shape that too many others have are not weighed, and open (`MOST_EXCHANGES`).
    """
    crowded = _crowded(free)
    few = [[layer for layer in side if layer.signature not in crowded] for side in free]
    settlement = _settle([p for p in pairs if p[0].signature not in crowded], (few[0], few[1]), known, ordered, unlike)
    _open_crowds(settlement, pairs, free, crowded)
    return settlement


def _crowded(free: Sides) -> set[object]:
    """Shapes of layers whose exchanges are more than `MOST_EXCHANGES`; the rarest shapes are weighed first."""
    counts = [Counter(layer.signature for layer in side) for side in free]
    costs = {shape: counts[0][shape] * counts[1][shape] // 2 for shape in counts[0].keys() & counts[1].keys()}
    crowded: set[object] = set()
    spent = 0
    for shape in sorted(costs, key=lambda one: (costs[one], one)):
        spent += costs[shape]
        if spent > MOST_EXCHANGES:
            crowded.add(shape)
    return crowded


def _open_crowds(settlement: Settlement, pairs: Sequence[Pair], free: Sides, crowded: Set[object]) -> None:
    """Link all layers of a crowded shape, paired or not, with the first pair of it."""
    firsts: dict[object, Pair] = {}
    crowd = [pair for pair in pairs if pair[0].signature in crowded]
    for pair in crowd:
        settlement.links.append((firsts.setdefault(pair[0].signature, pair), pair))
    for index, side in enumerate(_unplaced(crowd, free)):
        for layer in side:
            if first := firsts.get(layer.signature):
                settlement.links.append((first, (None, layer) if index else (layer, None)))


def _settle(pairs: Sequence[Pair], free: Sides, known: Sequence[Pair], ordered: bool, unlike: Set[str]) -> Settlement:
    every = [*free[0], *(a for a, _ in known)], [*free[1], *(b for _, b in known)]
    contents = read_contents(*every)
    agreement = None if ordered else BlockAgreement(*every)  # the order of calls agrees in every block by itself
    settlement = _weigh(
        list(pairs), free, PairEvidence(known, ordered=ordered, contents=contents), unlike, BENEFIT_WITHOUT_RIVALS
    )
    alone = [
        pair for pair, weak in zip(settlement.pairs, settlement.weakest, strict=True) if weak >= BENEFIT_WITHOUT_RIVALS
    ]
    evidence = PairEvidence([*known, *alone], ordered=ordered, contents=contents)
    settlement = _weigh(_improved(settlement.pairs, free, evidence), free, evidence, unlike, BENEFIT_OF_SURE)
    lists: NumberedLists | None = None  # numbers count once the rest shows what they mean
    previous, sure = settlement, alone
    for turn in range(WEIGHING_ROUNDS):
        weighed = zip(settlement.pairs, settlement.weakest, strict=True)
        before, sure = sure, [pair for pair, weak in weighed if confidence(weak) >= SURE]  # no guess teaches another
        if turn and sure == before and settlement.pairs == previous.pairs:
            break
        teaching = [*known, *sure]
        lists = lists or NumberedLists(*every, teaching)
        evidence = PairEvidence(teaching, ordered=ordered, contents=contents, lists=lists)
        previous = settlement
        settlement = _weigh(_improved(previous.pairs, free, evidence), free, evidence, unlike)
        if agreement:
            settlement.confirm(agreement)
    return settlement


def confidence(benefit: float) -> float:
    """How sure a pair is with this benefit over its closest rival, in [0.5, 1] from 0 on."""
    return 0.5 + min(benefit, 1.0) / 2


def _weigh(
    pairs: list[Pair], free: Sides, evidence: PairEvidence, unlike: Set[str], enough: float | None = None
) -> Settlement:
    """Weigh all rivals; with `enough`, only as far as it takes to know which pairs have so much over each."""
    settlement = Settlement(pairs, [0.0 if {a.path, b.path} & unlike else BENEFIT_WITHOUT_RIVALS for a, b in pairs], [])
    contests = _contests(pairs, _unplaced(pairs, free))
    contested = {pairs[index][0].signature for index, _ in contests}
    for i, j in _rivals(pairs):
        known = enough is not None and max(settlement.weakest[i], settlement.weakest[j]) < enough
        if not known or pairs[i][0].signature in contested:
            settlement.note(evidence.exchange_benefit(pairs[i], pairs[j]), i, j)
    uneven = _weigh_against(settlement, contests, evidence)
    # Where one side has more layers of a shape than the other, all others of them may be off by one with an open pair.
    judged: set[int] = set()
    while loose := [i for i, weak in enumerate(settlement.weakest) if weak < CLEAR_BENEFIT and i not in judged]:
        judged.update(loose)
        own = [pairs[i] for i in loose if pairs[i][0].signature in uneven]
        _weigh_against(settlement, _contests(pairs, ([a for a, _ in own], [b for _, b in own])), evidence)
    _join_unplaced(settlement, contests, evidence)
    return settlement


def _weigh_against(
    settlement: Settlement, contests: Sequence[tuple[int, Rival]], evidence: PairEvidence
) -> set[object]:
    """Note the benefit of each settled pair over the rivals; return the signatures of those that may take its place."""
    signatures: set[object] = set()
    for index, rival in contests:
        signatures.add(settlement.pairs[index][0].signature)
        if settlement.weakest[index] >= CLEAR_BENEFIT:
            settlement.note(
                evidence.replacement_benefit(settlement.pairs[index], _replaced(settlement.pairs[index], rival)),
                index,
                rival,
            )
    return signatures


def _join_unplaced(settlement: Settlement, contests: Sequence[tuple[int, Rival]], evidence: PairEvidence) -> None:
    """Link each open pair with every unplaced rival in its place: if the pair is a guess, so is who is left over."""
    context = evidence.around.context
    for index, rival in contests:
        if settlement.weakest[index] < CLEAR_BENEFIT:
            pair = settlement.pairs[index]
            if context(_replaced(pair, rival), (pair,)) >= context(pair, (pair,)):
                settlement.links.append((pair, rival))


def _replaced(pair: Pair, rival: Rival) -> Pair:
    """The pair with an unpaired rival in the place of its source or target."""
    return rival[0] or pair[0], rival[1] or pair[1]


def _improved(pairs: list[Pair], free: Sides, evidence: PairEvidence) -> list[Pair]:
    result = list(pairs)
    for i, j in _rivals(pairs):
        if evidence.exchange_benefit(result[i], result[j]) <= -CLEAR_BENEFIT:
            (a, b), (a2, b2) = result[i], result[j]
            result[i], result[j] = (a, b2), (a2, b)
    placed: set[int] = set()
    for index, rival in _contests(result, _unplaced(result, free)):
        layer_id = id(rival[0] or rival[1])
        new = _replaced(result[index], rival)
        if layer_id not in placed and evidence.replacement_benefit(result[index], new) <= -CLEAR_BENEFIT:
            result[index] = new
            placed.add(layer_id)
    return result


def _rivals(pairs: list[Pair]) -> Iterator[tuple[int, int]]:
    groups: dict[object, list[int]] = defaultdict(list)
    for index, (a, _) in enumerate(pairs):
        groups[a.signature].append(index)
    for members in groups.values():
        for i, j in combinations(members, 2):
            if may_pair(pairs[i][0], pairs[j][1]) and may_pair(pairs[j][0], pairs[i][1]):
                yield i, j


def _unplaced(pairs: Sequence[Pair], free: Sides) -> Sides:
    placed = {a.path for a, _ in pairs}, {b.path for _, b in pairs}
    left, right = (
        [layer for layer in side if layer.path not in paths] for side, paths in zip(free, placed, strict=True)
    )
    return left, right


def _contests(pairs: Sequence[Pair], rivals: Sides) -> list[tuple[int, Rival]]:
    """Return each pair, by its index, with each layer of `rivals` that could take a place in it."""
    contests: list[tuple[int, Rival]] = []
    sources, targets = (_by_signature(side) for side in rivals)
    for index, (a, b) in enumerate(pairs):
        contests += [(index, (layer, None)) for layer in sources.get(b.signature, ()) if may_pair(layer, b)]
        contests += [(index, (None, layer)) for layer in targets.get(a.signature, ()) if may_pair(a, layer)]
    return contests


def _by_signature(layers: Iterable[Layer]) -> dict[object, list[Layer]]:
    found: dict[object, list[Layer]] = defaultdict(list)
    for layer in layers:
        found[layer.signature].append(layer)
    return found


class PairEvidence:
    """What pairs teach: how often ends of paths went together, and who stands beside whom.

    `ordered` says that both sides stand in execution order, so that order is evidence too. `contents` and `lists` are
    what the containers and the numbers of both sides tell.
    """

    def __init__(
        self,
        pairs: Iterable[Pair],
        *,
        ordered: bool,
        contents: Contents | None = None,
        lists: NumberedLists | None = None,
    ) -> None:
        self._ordered, self._contents, self._lists = ordered, contents or Contents(), lists
        self._together: Counter[tuple[str, str]] = Counter()
        self._ends: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        self.around = SettledNeighbours()
        self._exchanges: dict[tuple[str, ...], float] = {}
        for pair in pairs:
            left, right = map(path_ends, self._sized(pair))
            self._ends[0].update(left)
            self._ends[1].update(right)
            self._together.update((x, y) for x in left for y in right)
            self.around.add(*pair)

    def exchange_benefit(self, first: Pair, two: Pair) -> float:
        """What two pairs have over the two with partners exchanged: > 0 speaks for them, 0: nothing tells.

        Each kind of evidence lies in [-2, 2]; kinds that contradict each other give 0: a block that moved in its list
        is known by what it holds, against its number. Beside numbers that are in order little else counts.
        """
        key = (first[0].path, first[1].path, two[0].path, two[1].path)
        if key not in self._exchanges:  # those that are not made are asked for again
            self._exchanges[key] = _sum_unless_contradictory(self._of_exchange(first, two))
        return self._exchanges[key]

    def _of_exchange(self, first: Pair, two: Pair) -> list[float]:
        judged, exchanged = (first, two), ((first[0], two[1]), (two[0], first[1]))
        order = 1.0 if (first[0].position < two[0].position) == (first[1].position < two[1].position) else -1.0
        numbers, nested_alike = self._lists.agreement(first, two) if self._lists else (0, True)
        knowledge = self._knowledge(judged, judged)
        if numbers:
            knowledge = [_axes, self._context(judged)] if nested_alike else [_axes]
        evidence = [sum(map(knows, judged)) - sum(map(knows, exchanged)) for knows in knowledge]
        if numbers:
            evidence.append(float(numbers))
        else:
            evidence += compare_names((first[0].path, two[0].path), (first[1].path, two[1].path), order)
            held = sum(map(self._contents.alike, judged)) - sum(map(self._contents.alike, exchanged))
            evidence.append(max(-2.0, min(held, 2.0)) if held * order > 0 else 0.0)
        if self._ordered and all(layer.ran for pair in judged for layer in pair):
            evidence.append(WEIGHT_OF_ORDER * order)
        if max(map(abs, evidence)) < CLEAR_BENEFIT:
            beside = self._next_to(judged)
            evidence.append(sum(map(beside, judged)) - sum(map(beside, exchanged)))
        return evidence

    def replacement_benefit(self, pair: Pair, new: Pair) -> float:
        """What a pair has over a `new` one, in which an unpaired layer takes the place of its source or target."""
        (a, b), (source, target) = pair, new
        kept = words((b if a is not source else a).path)
        mine, others = unshared_words(*((a.path, source.path) if a is not source else (b.path, target.path)))
        share = contained(mine, kept) - contained(others, kept)
        # Not even every second word is alike: `aux_head.fc` is not `fc` for its last word.
        evidence = [share if abs(share) > BENEFIT_OF_MAJORITY else 0.0]
        evidence += [knows(pair) - knows(new) for knows in self._knowledge((pair,), (pair, new), uneven=True)]
        if max(map(abs, evidence)) < CLEAR_BENEFIT:
            beside = self._next_to((pair,))
            evidence.append(beside(pair) - beside(new))
        return _sum_unless_contradictory(evidence)

    def of_pair(self, pair: Pair) -> tuple[float, float, float]:
        """What is said of one pair without a rival: its translation, its context and its neighbours."""
        return self.translation(pair), self.around.context(pair, (pair,)), self.around.neighbours(pair, (pair,))

    def translation(self, pair: Pair, judged: Sequence[Pair] = (), *, uneven: bool = False) -> float:
        """Largest share, in [0, 1], at which an end of one path went with an end of the other; seen at least twice.

        Ends that all pairs that are `judged` have in common do not tell them apart, and do not count. Nor do those
        that differ by an index alone where one side has more layers (`uneven`): which block is not there on the other
        side, other lists do not teach.
        """
        ends = unnumbered_ends if uneven else path_ends
        sides = [frozenset(layer.path for layer in layers) for layers in zip(*judged, strict=True)]
        shared = [_shared_ends(paths, ends) for paths in sides] or [set(), set()]
        mine, theirs = (
            [end for end, form in zip(path_ends(sized), ends(layer.path), strict=True) if form not in common]
            for layer, sized, common in zip(pair, self._sized(pair), shared, strict=True)
        )
        together, (left, right) = self._together, self._ends
        seen = ((x, y) for x in mine for y in theirs if together[x, y] >= TRANSLATION_SEEN)
        return max((together[x, y] / max(left[x], right[y]) for x, y in seen), default=0.0)

    def _sized(self, pair: Pair) -> tuple[str, str]:
        """Both paths, with what an index is out of: the same words in a list of another length teach nothing."""
        mine, theirs = self._contents.sized
        return mine.get(pair[0].path, pair[0].path), theirs.get(pair[1].path, pair[1].path)

    def _knowledge(
        self, judged: Sequence[Pair], apart_from: Sequence[Pair], *, uneven: bool = False
    ) -> list[Callable[[Pair], float]]:
        return [
            lambda pair: self.translation(pair, apart_from, uneven=uneven),
            self._context(judged),
            lambda pair: self.around.company(pair, judged, apart_from),
            _axes,
        ]

    def _context(self, judged: Sequence[Pair]) -> Callable[[Pair], float]:
        return lambda pair: self.around.context(pair, judged)

    def _next_to(self, judged: Sequence[Pair]) -> Callable[[Pair], float]:
        """What sure siblings on both sides say where nothing else speaks: batch norms stand at their convolutions."""
        return lambda pair: (
            WEIGHT_OF_NEIGHBOURS * self.around.neighbours(pair, judged) if pair[0].kind == "batch_norm" else 0.0
        )


def _axes(pair: Pair) -> float:
    """1 if the classes of both say that they work on equally many axes; BatchNorm1d and BatchNorm2d have one shape."""
    return float(bool(pair[0].axes) and pair[0].axes == pair[1].axes)


def _sum_unless_contradictory(evidence: list[float]) -> float:
    if max(evidence) >= CLEAR_BENEFIT and min(evidence) <= -CLEAR_BENEFIT:
        return 0.0
    return sum(evidence)


@lru_cache  # two pairs and their exchange have the same
def _shared_ends(paths: frozenset[str], ends: Callable[[str], Sequence[str]]) -> Set[str]:
    """Ends that several different paths have in common."""
    return set.intersection(*(set(ends(path)) for path in paths)) if len(paths) > 1 else set()


# Norms that no word tells apart, known by what stands between them: an attention before each, or behind.
#
# Only where a module has the same norms on both sides, and all of them stand among the settled layers of the module
# as their counterparts do. Where one side registers a norm before the attention and the other behind, each norm would
# have a wrong neighbour, and nothing is said.

_NORMS = frozenset({"layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm"})
_NAMES = ("source", "target")
# What the norms of a block are called after, in the order in which blocks have it; norms have words of one row or none.
_ATTENDING, _FEEDING = ("attention", "att", "self", "attends"), ("mlp", "feedforward", "ff", "moe", "feed")
_WORDS = {**dict.fromkeys(_ATTENDING, 1), **dict.fromkeys(_FEEDING, 2), "1": 1, "2": 2}


def settle_norms_beside(
    groups: Sequence[OpenGroup], settled: Sequence[Pair]
) -> tuple[list[tuple[Pair, float]], list[OpenGroup]]:
    """Return pairs of norms with their confidence, and the groups that stay open; `settled` pairs are their anchors."""
    if not any(map(_of_norms, groups)):
        return [], list(groups)
    anchors = _Anchors(settled, 0), _Anchors(settled, 1)
    pairs: list[tuple[Pair, float]] = []
    rest = []
    for group in groups:
        sides = [[layer for side, layer in group.members if side == name] for name in _NAMES]
        if _of_norms(group) and _stand_alike(sides, anchors):
            pairs += [(pair, CONFIDENCE_BESIDE) for pair in zip(*sides, strict=True)]
        else:
            rest.append(group)
    return pairs, rest


def norms_by_words(left: Sequence[Layer], right: Sequence[Layer]) -> list[Pair]:
    """Pair the two norms of a block of an attention and layers behind it, if both sides say which is which.

    By what they are called after (`attn_norm`, `ffn_norm`), or by number.
    """
    sides = [[layer for layer in side if _is_norm(layer)] for side in (left, right)]
    if [len(own) for own in sides] != [2, 2] or len({layer.signature for own in sides for layer in own}) > 1:
        return []
    if len({_module(layer) for layer in sides[0]}) > 1 or len({_module(layer) for layer in sides[1]}) > 1:
        return []
    mine, theirs = map(_first_and_second, sides)
    return list(zip(mine, theirs, strict=True)) if mine and theirs else []


def _first_and_second(norms: Sequence[Layer]) -> list[Layer]:
    names = [tokens(layer.path.rpartition(".")[2]) for layer in norms]
    if any(name[-1:] == ("2",) for name in names) and sorted(map(len, names)) == [1, 2]:
        names = [name if len(name) > 1 else (*name, "1") for name in names]  # `norm` and `norm2`
    signs = [{_WORDS[word] for word in name if word in _WORDS} for name in names]
    if sorted(map(sorted, signs)) != [[1], [2]]:
        return []
    return [layer for _, layer in sorted(zip(map(min, signs), norms, strict=True), key=lambda one: one[0])]


def _is_norm(layer: Layer) -> bool:
    return layer.kind in _NORMS or (not layer.kind and _has_vectors(layer))


def _of_norms(group: OpenGroup) -> bool:
    """Tell whether a group is of norms; one whose class no rule knows has vectors alone."""
    layers = [layer for _, layer in group.members]
    return all(map(_is_norm, layers))


def _has_vectors(layer: Layer) -> bool:
    return "weight" in layer.shapes and all(len(shape) == 1 for _, shape in layer.signature)


def _stand_alike(sides: Sequence[Sequence[Layer]], anchors: tuple[_Anchors, _Anchors]) -> bool:
    """Tell whether both sides have as many, each in one module, with the same settled pairs around each."""
    modules = [{_module(layer) for layer in side} for side in sides]
    if len(sides[0]) != len(sides[1]) or any(len(own) != 1 for own in modules):
        return False
    mine, theirs = ([beside.around(layer) for layer in side] for side, beside in zip(sides, anchors, strict=True))
    return mine == theirs and len(set(mine)) == len(mine)


def _module(layer: Layer) -> str:
    return layer.path.rpartition(".")[0]


class _Anchors:
    """The settled layers of one side, by position."""

    def __init__(self, settled: Sequence[Pair], side: int) -> None:
        placed = sorted((pair[side].position, number) for number, pair in enumerate(settled))
        self._paths = [settled[number][side].path for _, number in placed]
        self._numbers = [number for _, number in placed]
        self._positions = [position for position, _ in placed]

    def around(self, layer: Layer) -> tuple[int | None, int | None]:
        """The numbers of the settled pairs right before and behind a layer in its module; None at its ends."""
        place = bisect_left(self._positions, layer.position)
        return self._within(place - 1, layer), self._within(place, layer)

    def _within(self, place: int, layer: Layer) -> int | None:
        module = _module(layer)
        inside = 0 <= place < len(self._paths) and (not module or self._paths[place].startswith(f"{module}."))
        return self._numbers[place] if inside else None
