"""What speaks for one layer being another beyond class and shape: learnt translations of names, and neighbours.

Both are learnt from pairs that are already settled, and used to settle others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align.steps.paths import contained, difference, likeness, number_order, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.steps.layers import Layer

_SUFFIX = 3

Pair = tuple["Layer", "Layer"]
# An unpaired layer: (source, None) or (None, target).
Rival = tuple["Layer | None", "Layer | None"]


@dataclass
class Learnt:
    """How often ends of source paths went with ends of target paths among settled pairs, and which layers they pair.

    `ordered` says that both sides stand in execution order, so that order is evidence too.
    """

    ordered: bool = False
    together: Counter[tuple[str, str]] = field(default_factory=Counter)
    source: Counter[str] = field(default_factory=Counter)
    target: Counter[str] = field(default_factory=Counter)
    places: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)

    def learn(self, pairs: Iterable[Pair]) -> None:
        """Take settled pairs in."""
        for a, b in pairs:
            left, right = _ends(a.path), _ends(b.path)
            self.source.update(left)
            self.target.update(right)
            self.together.update((x, y) for x in left for y in right)
            self.places[a.position, b.position] = _parent(a.path), _parent(b.path)

    def translation(self, a: Layer, b: Layer) -> float:
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

    def neighbours(self, a: Layer, b: Layer) -> float:
        """1 if siblings registered just before, or just after, both are a settled pair; else 0."""
        return float(any(self._settled_beside(a, b, step) for step in (-1, 1)))

    def _settled_beside(self, a: Layer, b: Layer, step: int) -> bool:
        parents = self.places.get((a.position + step, b.position + step))
        return parents == (_parent(a.path), _parent(b.path))


def exchange_benefit(one: Pair, two: Pair, learnt: Learnt) -> float:
    """What the present pairing has over the one with partners exchanged: > 0 speaks for it, 0: nothing tells.

    Each kind of evidence lies in [-2, 2]; kinds that contradict each other give 0.
    """
    (a, b), (a2, b2) = one, two
    if a.path == b.path and a2.path == b2.path:
        return 2.0
    order = 1.0 if (a.position < a2.position) == (b.position < b2.position) else -1.0
    evidence = [float(number_order(a.path, a2.path) * number_order(b.path, b2.path))]
    if not evidence[0]:
        known = (learnt.translation, learnt.neighbours)
        evidence = [knows(a, b) + knows(a2, b2) - knows(a, b2) - knows(a2, b) for knows in known]
        words = _words(one, two)
        # Words that the order of registration contradicts are a coincidence as often as not.
        evidence.append(words if words * order > 0 else 0.0)
    if learnt.ordered:
        evidence.append(order)
    return _sum_unless_contradictory(evidence)


def replacement_benefit(pair: Pair, rival: Rival, learnt: Learnt) -> float:
    """What a pair has over the one in which the unpaired rival takes the place of its source (or target)."""
    source, target = rival
    if source is not None:
        (mine, others), kept, new = difference(pair[0].path, source.path), pair[1], (source, pair[1])
    elif target is not None:
        (mine, others), kept, new = difference(pair[1].path, target.path), pair[0], (pair[0], target)
    else:
        return 2.0
    path = tokens(kept.path)
    evidence = [contained(mine, path) - contained(others, path)]
    evidence += [known(*pair) - known(*new) for known in (learnt.translation, learnt.neighbours)]
    return _sum_unless_contradictory(evidence)


# One clear piece of evidence (a number, an abbreviated word, a translation seen twice) weighs 0.8 to 2.
SETTLED = 0.25


def _sum_unless_contradictory(evidence: list[float]) -> float:
    if max(evidence) >= SETTLED and min(evidence) <= -SETTLED:
        return 0.0
    return sum(evidence)


def _words(one: Pair, two: Pair) -> float:
    x, x2 = difference(one[0].path, two[0].path)
    y, y2 = difference(one[1].path, two[1].path)
    return likeness(x, y) + likeness(x2, y2) - likeness(x, y2) - likeness(x2, y)


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _ends(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[-length:]) for length in range(1, min(_SUFFIX, len(parts)) + 1)]
