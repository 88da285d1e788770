"""Could two pairs of layers swap partners? The test that keeps a guess from being called sure.

Layers of equal class and shape are rivals. Each two pairs of rivals are weighed against their exchange, and each pair
against every unpaired rival that could take a place in it. Clear losses are exchanged; what stays undecided is open,
joined into the groups that a user has to settle together. What each block tells in part, and all blocks tell alike, is
told in full.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from scipy.cluster.hierarchy import DisjointSet

from align.core.name_map import Ambiguity
from align.core.thresholds import SURE
from align.names.layers.numbered_lists import NumberedLists
from align.names.layers.pair_evidence import BlockAgreement, PairEvidence
from align.names.layers.read_layers import may_pair
from align.names.layers.surroundings import read_contents
from align.names.thresholds import (
    BENEFIT_OF_MAJORITY,
    BENEFIT_OF_SURE,
    BENEFIT_WITHOUT_RIVALS,
    CLEAR_BENEFIT,
    MOST_EXCHANGES,
    WEIGHING_ROUNDS,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Set

    from align.names.layers.read_layers import Layer, Pair


# An unpaired layer: (source, None) or (None, target).
Rival = tuple["Layer | None", "Layer | None"]
# Two pairs that may exchange partners, or a pair and an unpaired layer that may take a place in it.
Link = tuple["Pair", "Pair | Rival"]
Sides = tuple["Sequence[Layer]", "Sequence[Layer]"]
Member = tuple[str, "Layer"]  # the name of its side, and a layer
_REASON = sentence("open_reason.alike")


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
    lists: NumberedLists | None = None  # numbers speak when the rest has told what they mean
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
        own = id(rival[0] or rival[1])
        new = _replaced(result[index], rival)
        if own not in placed and evidence.replacement_benefit(result[index], new) <= -CLEAR_BENEFIT:
            result[index] = new
            placed.add(own)
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
    found: list[tuple[int, Rival]] = []
    sources, targets = (_by_signature(side) for side in rivals)
    for index, (a, b) in enumerate(pairs):
        found += [(index, (layer, None)) for layer in sources.get(b.signature, ()) if may_pair(layer, b)]
        found += [(index, (None, layer)) for layer in targets.get(a.signature, ()) if may_pair(a, layer)]
    return found


def _by_signature(layers: Iterable[Layer]) -> dict[object, list[Layer]]:
    found: dict[object, list[Layer]] = defaultdict(list)
    for layer in layers:
        found[layer.signature].append(layer)
    return found


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """Layers of both sides that belong together, in their order, and nothing tells which is which."""

    members: tuple[Member, ...]
    reason: str = _REASON


def group_links(links: Sequence[Link]) -> list[OpenGroup]:
    """Groups of linked layers; a link says that two pairs may exchange partners."""
    members: dict[tuple[str, str], Layer] = {}
    groups: DisjointSet[tuple[str, str]] = DisjointSet()
    for link in links:
        keys = []
        for source, target in link:
            for side, layer in (("source", source), ("target", target)):
                if layer is not None:
                    keys.append((side, layer.path))
                    members[side, layer.path] = layer
                    groups.add((side, layer.path))
        for key in keys[1:]:
            groups.merge(keys[0], key)
    return in_order([OpenGroup(tuple((key[0], members[key]) for key in group)) for group in groups.subsets()])


def in_order(groups: Iterable[OpenGroup]) -> list[OpenGroup]:
    """The groups, and the members of each, as they stand on their sides."""
    placed = [OpenGroup(tuple(sorted(group.members, key=_place)), group.reason) for group in groups]
    return sorted(placed, key=lambda group: _place(group.members[0]))


def as_ambiguities(group: OpenGroup) -> list[Ambiguity]:
    """One ambiguity for each role of a group."""
    return [
        Ambiguity(
            tuple(layer.roles[role].name for side, layer in group.members if side == "source" and role in layer.roles),
            tuple(layer.roles[role].name for side, layer in group.members if side == "target" and role in layer.roles),
            group.reason,
        )
        for role in _roles_of(layer for _, layer in group.members)
    ]


def _place(member: Member) -> int:
    return member[1].position


def _roles_of(layers: Iterable[Layer]) -> list[str]:
    """Every role of some layers that their counterparts must have, in order."""
    return list(dict.fromkeys(role for layer in layers for role, _ in layer.signature))
