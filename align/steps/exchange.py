"""Could two pairs of layers swap partners? The test that keeps a guess from being called sure.

Layers of equal class and shape are rivals. Each two pairs of rivals are weighed against their exchange, and each pair
against every unpaired rival that could take a place in it. Clear losses are exchanged; what stays undecided is open.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from align.steps.evidence import SETTLED, Learnt, exchange_benefit, replacement_benefit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.steps.evidence import Pair, Rival
    from align.steps.layers import Layer

_ROUNDS = 6

# Two pairs that may exchange partners, or a pair and an unpaired layer that may take a place in it.
Link = tuple["Pair", "Pair | Rival"]


@dataclass(frozen=True, slots=True)
class Settlement:
    """Pairs after all clear exchanges; `weakest` is each pair's smallest benefit over its rivals (2 if none).

    `links` are the pairs and rivals between which nothing decides.
    """

    pairs: list[Pair]
    weakest: list[float]
    links: list[Link]


def settle(pairs: Sequence[Pair], left: Sequence[Layer], right: Sequence[Layer], ordered: bool) -> Settlement:
    """Exchange partners wherever that is clearly better, learning from what is settled until nothing changes.

    `left` and `right` are all layers of both sides, `ordered` says that both stand in execution order.
    """
    settlement = _weigh(list(pairs), left, right, Learnt(ordered))
    for _ in range(_ROUNDS):
        learnt = Learnt(ordered)
        sure = [weak >= SETTLED for weak in settlement.weakest]
        learnt.learn(pair for pair, settled in zip(settlement.pairs, sure, strict=True) if settled)
        previous = settlement
        settlement = _weigh(_improved(previous.pairs, left, right, learnt), left, right, learnt)
        if settlement == previous:
            break
    return settlement


def may_pair(a: Layer, b: Layer) -> bool:
    """Tell whether two layers may correspond: equal shapes by role, and no two known classes of different kind."""
    return a.signature == b.signature and (a.kind == b.kind or not a.kind or not b.kind)


def _weigh(pairs: list[Pair], left: Sequence[Layer], right: Sequence[Layer], learnt: Learnt) -> Settlement:
    weakest = [2.0] * len(pairs)
    links: list[Link] = []
    for i, j in _rivals(pairs):
        benefit = exchange_benefit(pairs[i], pairs[j], learnt)
        weakest[i] = min(weakest[i], benefit)
        weakest[j] = min(weakest[j], benefit)
        if benefit < SETTLED:
            links.append((pairs[i], pairs[j]))
    for index, rival in _unplaced_rivals(pairs, left, right):
        benefit = replacement_benefit(pairs[index], rival, learnt)
        weakest[index] = min(weakest[index], benefit)
        if benefit < SETTLED:
            links.append((pairs[index], rival))
    return Settlement(pairs, weakest, links)


def _improved(pairs: list[Pair], left: Sequence[Layer], right: Sequence[Layer], learnt: Learnt) -> list[Pair]:
    result = list(pairs)
    for i, j in _rivals(pairs):
        if exchange_benefit(result[i], result[j], learnt) <= -SETTLED:
            (a, b), (a2, b2) = result[i], result[j]
            result[i], result[j] = (a, b2), (a2, b)
    placed: set[int] = set()
    for index, rival in _unplaced_rivals(result, left, right):
        source, target = rival
        new = (source or result[index][0], target or result[index][1])
        taken = id(source or target) in placed
        if not taken and replacement_benefit(result[index], rival, learnt) <= -SETTLED:
            result[index] = new
            placed.add(id(source or target))
    return result


def _rivals(pairs: list[Pair]) -> Iterator[tuple[int, int]]:
    groups: dict[object, list[int]] = defaultdict(list)
    for index, (a, _) in enumerate(pairs):
        groups[a.signature].append(index)
    for members in groups.values():
        for i, j in combinations(members, 2):
            if may_pair(pairs[i][0], pairs[j][1]) and may_pair(pairs[j][0], pairs[i][1]):
                yield i, j


def _unplaced_rivals(pairs: Sequence[Pair], left: Sequence[Layer], right: Sequence[Layer]) -> list[tuple[int, Rival]]:
    placed_left, placed_right = {a.path for a, _ in pairs}, {b.path for _, b in pairs}
    free_left = [layer for layer in left if layer.path not in placed_left]
    free_right = [layer for layer in right if layer.path not in placed_right]
    found: list[tuple[int, Rival]] = []
    for index, (a, b) in enumerate(pairs):
        found += [(index, (layer, None)) for layer in free_left if may_pair(layer, b)]
        found += [(index, (None, layer)) for layer in free_right if may_pair(a, layer)]
    return found
