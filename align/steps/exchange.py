"""Could two pairs of layers swap partners? The test that keeps a guess from being called sure.

Layers of equal class and shape are rivals. For each two pairs of rivals all evidence is weighed for and against an
exchange: numbers in order, words in the differing part of the paths, translations learnt from settled pairs, and the
order of execution where it is known on both sides. Evidence that contradicts itself settles nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

from align.steps.paths import difference, likeness, number_order, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from align.steps.layers import Layer

# One clear piece of evidence (a number, an abbreviated word, a translation seen twice) weighs 0.8 to 2.
SETTLED = 0.25
_ROUNDS = 4
_SUFFIX = 3

Pair = tuple["Layer", "Layer"]
# An unpaired layer: (source, None) or (None, target).
Rival = tuple["Layer | None", "Layer | None"]


@dataclass
class Translations:
    """How often ends of source paths were paired with ends of target paths among settled pairs."""

    together: Counter[tuple[str, str]] = field(default_factory=Counter)
    source: Counter[str] = field(default_factory=Counter)
    target: Counter[str] = field(default_factory=Counter)

    def learn(self, pairs: Iterable[Pair]) -> None:
        """Count the ends of these pairs' paths."""
        for a, b in pairs:
            left, right = _ends(a.path), _ends(b.path)
            self.source.update(left)
            self.target.update(right)
            self.together.update((x, y) for x in left for y in right)

    def agreement(self, a: Layer, b: Layer) -> float:
        """Largest share, in [0, 1], at which an end of one path went with an end of the other; seen at least twice."""
        return max(
            (
                self.together[x, y] / max(self.source[x], self.target[y])
                for x in _ends(a.path)
                for y in _ends(b.path)
                if self.together[x, y] > 1
            ),
            default=0.0,
        )


@dataclass(frozen=True, slots=True)
class Settlement:
    """Pairs after all profitable exchanges; `weakest` is each pair's smallest benefit over its rivals (2 if none)."""

    pairs: list[Pair]
    weakest: list[float]
    rivals: list[tuple[int, int]]


def settle(pairs: list[Pair], ordered: bool) -> Settlement:
    """Exchange partners wherever that is clearly better, learning translations from what is settled.

    `ordered` says that both sides stand in execution order. `rivals` are index pairs that stay unsettled.
    """
    learnt = Translations()
    settlement = _weigh(pairs, learnt, ordered)
    for _ in range(_ROUNDS):
        learnt = Translations()
        sure = [weak >= SETTLED for weak in settlement.weakest]
        learnt.learn(pair for pair, settled in zip(settlement.pairs, sure, strict=True) if settled)
        previous = settlement
        settlement = _weigh(_exchanged(previous.pairs, learnt, ordered), learnt, ordered)
        if settlement == previous:
            break
    return settlement


def exchange_benefit(one: Pair, two: Pair, learnt: Translations, ordered: bool) -> float:
    """What the present pairing has over the exchanged one: > 0 speaks for it, 0 means that nothing tells.

    Each kind of evidence lies in [-2, 2]; kinds that contradict each other give 0.
    """
    (a, b), (a2, b2) = one, two
    if a.path == b.path and a2.path == b2.path:
        return 2.0
    evidence = [float(number_order(a.path, a2.path) * number_order(b.path, b2.path))]
    if not evidence[0]:
        x, x2 = difference(a.path, a2.path)
        y, y2 = difference(b.path, b2.path)
        evidence.append(likeness(x, y) + likeness(x2, y2) - likeness(x, y2) - likeness(x2, y))
        agreement = learnt.agreement
        evidence.append(agreement(a, b) + agreement(a2, b2) - agreement(a, b2) - agreement(a2, b))
    if ordered:
        evidence.append(1.0 if (a.position < a2.position) == (b.position < b2.position) else -1.0)
    if max(evidence) >= SETTLED and min(evidence) <= -SETTLED:
        return 0.0
    return sum(evidence)


def replacement_benefit(pair: Pair, rival: Rival, learnt: Translations) -> float:
    """What a pair has over the one in which the unpaired rival takes the place of its source (or target)."""
    source, target = rival
    if source is not None:
        (mine, others), kept, new = difference(pair[0].path, source.path), pair[1], (source, pair[1])
    elif target is not None:
        (mine, others), kept, new = difference(pair[1].path, target.path), pair[0], (pair[0], target)
    else:
        return 2.0
    words = likeness(mine, tokens(kept.path)) - likeness(others, tokens(kept.path))
    return words + learnt.agreement(*pair) - learnt.agreement(*new)


def _weigh(pairs: list[Pair], learnt: Translations, ordered: bool) -> Settlement:
    weakest = [2.0] * len(pairs)
    rivals = []
    for i, j in _rivals(pairs):
        benefit = exchange_benefit(pairs[i], pairs[j], learnt, ordered)
        weakest[i] = min(weakest[i], benefit)
        weakest[j] = min(weakest[j], benefit)
        if benefit < SETTLED:
            rivals.append((i, j))
    return Settlement(pairs, weakest, rivals)


def _exchanged(pairs: list[Pair], learnt: Translations, ordered: bool) -> list[Pair]:
    result = list(pairs)
    for i, j in _rivals(pairs):
        if exchange_benefit(result[i], result[j], learnt, ordered) <= -SETTLED:
            (a, b), (a2, b2) = result[i], result[j]
            result[i], result[j] = (a, b2), (a2, b)
    return result


def _rivals(pairs: list[Pair]) -> Iterator[tuple[int, int]]:
    groups: dict[object, list[int]] = defaultdict(list)
    for index, (a, _) in enumerate(pairs):
        groups[a.signature].append(index)
    for members in groups.values():
        for i, j in combinations(members, 2):
            (a, b), (a2, b2) = pairs[i], pairs[j]
            if may_pair(a, b2) and may_pair(a2, b):
                yield i, j


def may_pair(a: Layer, b: Layer) -> bool:
    """Tell whether two layers may correspond: equal shapes by role, and no two known classes of different kind."""
    return a.signature == b.signature and (a.kind == b.kind or not a.kind or not b.kind)


def _ends(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[-length:]) for length in range(1, min(_SUFFIX, len(parts)) + 1)]
