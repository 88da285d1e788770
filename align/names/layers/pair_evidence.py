"""What speaks for one layer being another beyond class and shape: learnt translations of names, and neighbours.

Both are learnt from pairs that are already settled, and used to settle others. Pairs in question are left out of
account, so that no guess confirms another, and so that two layers of which one is missing on the other side have the
same neighbours: what stands between the same neighbours stays undecided.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from align.names.layers.containers import NOTHING, Contents, containers
from align.names.layers.path_words import (
    ALIKE,
    contained,
    is_number,
    likeness,
    modules_above,
    number_order,
    place_order,
    unshared_words,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Set

    from align.names.layers.containers import NumberedLists
    from align.names.layers.read_layers import Layer, Pair


_SUFFIX = 3
# An unpaired layer: (source, None) or (None, target).
Rival = tuple["Layer | None", "Layer | None"]
# One clear piece of evidence (a number, an abbreviated word, a translation seen twice) weighs 0.8 to 2.
SETTLED = 0.25


MOST = 0.5


# Two correct implementations may call two branches in another order: that tells less than a name or a number.
ORDER = 0.5


# Which sibling is registered before or behind tells less still: neighbours alone leave a pair unsure.
NEXT_TO = 0.25


@dataclass
class SettledNeighbours:
    """Settled pairs by position, the settled children of each module in order, and how many pairs join two containers.

    Containers are modules and numbered lists.
    """

    partner: dict[int, int] = field(default_factory=dict)
    left: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    right: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    joined: Counter[tuple[str, str]] = field(default_factory=Counter)
    below_left: Counter[str] = field(default_factory=Counter)
    below_right: Counter[str] = field(default_factory=Counter)

    def add(self, a: Layer, b: Layer) -> None:
        """Take a settled pair in."""
        self.partner[a.position] = b.position
        if a.ran and b.ran:
            insort(self.left[modules_above(a.path)[0]], a.position)
            insort(self.right[modules_above(b.path)[0]], b.position)
        above_a, above_b = containers(a.path), containers(b.path)
        self.below_left.update(above_a)
        self.below_right.update(above_b)
        self.joined.update((x, y) for x in above_a for y in above_b)

    def neighbours(self, pair: Pair, judged: Sequence[Pair]) -> float:
        """1 if the nearest settled siblings before the pair, or those after it, are a pair; 0 if not, or unknown."""
        a, b = pair
        if not (a.ran and b.ran):
            return 0.0
        mine = _around(self.left.get(modules_above(a.path)[0], []), a.position, {x.position for x, _ in judged})
        theirs = _around(self.right.get(modules_above(b.path)[0], []), b.position, {y.position for _, y in judged})
        both = [(x, y) for x, y in zip(mine, theirs, strict=True) if x is not None and y is not None]
        return float(any(self.partner[x] == y for x, y in both))

    def company(self, pair: Pair, judged: Sequence[Pair], rivals: Sequence[Pair]) -> float:
        """Largest share, in [0, 1], of the settled layers in two containers around the pair that are in both; 0 if few.

        `rivals` are pairs whose other layers are rivals of its own. On a side with rivals only containers count that
        hold none of them, if each layer has such: a block that is not on the other side has no company. On a side
        without, the module counts that holds the layer.
        """
        own = [(x.path, y.path) for x, y in judged if self.partner.get(x.position) == y.position]
        left, right = ({layer.path for layer in side} for side in zip(*rivals, strict=True))
        if not (apart := _apart(pair[0].path, left)) or not (around := _apart(pair[1].path, right)):
            return 0.0
        mine = _held(containers(pair[0].path), self.below_left, [x for x, _ in own])
        theirs = _held(around, self.below_right, [y for _, y in own])[: None if len(right) > 1 else 1]
        most = shared = 0.0
        for x, held in mine:
            for y, other_held in theirs:
                if both := self.joined[x, y]:
                    both -= sum(x in containers(one) and y in containers(two) for one, two in own)
                    share = both / (held + other_held - both)
                    most, shared = (max(most, share), shared) if x in apart else (most, max(shared, share))
        return most if most > MOST and most >= shared else 0.0

    def context(self, pair: Pair, judged: Sequence[Pair]) -> float:
        """1 if the nearest modules around both that hold settled layers hold some in common, -1 if none; 0: unknown."""
        a, b = pair
        own = [(x, y) for x, y in judged if self.partner.get(x.position) == y.position]
        mine = _nearest(modules_above(a.path), self.below_left, [x.path for x, _ in own])
        theirs = _nearest(modules_above(b.path), self.below_right, [y.path for _, y in own])
        if not mine or not theirs:
            return 0.0
        shared = self.joined[mine, theirs]
        if shared > len(own):  # more than could be left out
            return 1.0
        left_out = sum(mine in containers(x.path) and theirs in containers(y.path) for x, y in own)
        return 1.0 if shared > left_out else -1.0


def _nearest(around: Iterable[str], below: Counter[str], left_out: Sequence[str]) -> str | None:
    """The first container that holds a settled layer beside those left out."""
    for path in around:
        held = below[path]
        if held > len(left_out) or (held and held > sum(path in containers(own) for own in left_out)):
            return path
    return None


def _apart(path: str, judged: Set[str]) -> tuple[str, ...]:
    """Containers that tell a layer from the others judged; none if one of these has none that tells it.

    Beside no others, these are the containers up to the module that holds the layer itself.
    """
    found = containers(path)
    if len(judged) < 2:
        return found[: found.index(path.rpartition(".")[0]) + 1]
    for rival in judged:
        if rival != path:
            own = _without(path, rival)
            found = tuple(one for one in found if one in own) if _without(rival, path) else ()
    return found


@lru_cache(maxsize=1 << 17)
def _without(path: str, rival: str) -> tuple[str, ...]:
    """Containers around a layer that do not hold its rival."""
    others = containers(rival)
    return tuple(one for one in containers(path) if one not in others)


def _held(around: Iterable[str], below: Counter[str], left_out: Sequence[str]) -> list[tuple[str, int]]:
    """Containers that hold settled layers beside those left out, with how many."""
    counts = [(one, below[one] - sum(one in containers(out) for out in left_out)) for one in around if below[one]]
    return [(one, count) for one, count in counts if count > 0]


def _around(settled: list[int], position: int, skipped: set[int]) -> tuple[int | None, int | None]:
    place = bisect_left(settled, position)
    return _first(settled, range(place - 1, -1, -1), skipped), _first(settled, range(place, len(settled)), skipped)


def _first(settled: list[int], places: range, skipped: set[int]) -> int | None:
    return next((settled[place] for place in places if settled[place] not in skipped), None)


@dataclass
class Learnt:
    """How often ends of source paths went with ends of target paths among settled pairs, and who stands beside whom.

    `ordered` says that both sides stand in execution order, so that order is evidence too.
    """

    ordered: bool = False
    together: Counter[tuple[str, str]] = field(default_factory=Counter)
    source: Counter[str] = field(default_factory=Counter)
    target: Counter[str] = field(default_factory=Counter)
    around: SettledNeighbours = field(default_factory=SettledNeighbours)
    contents: Contents = NOTHING
    lists: NumberedLists | None = None

    def add(self, a: Layer, b: Layer) -> None:
        """Take a settled pair in."""
        left, right = (path_ends(path) for path in self._sized(a, b))
        self.source.update(left)
        self.target.update(right)
        self.together.update((x, y) for x in left for y in right)
        self.around.add(a, b)

    def translation(self, a: Layer, b: Layer, judged: Sequence[Pair] = (), *, uneven: bool = False) -> float:
        """Largest share, in [0, 1], at which an end of one path went with an end of the other; seen at least twice.

        Ends that all pairs that are `judged` have in common do not tell them apart, and do not count. Nor do those
        that differ by an index alone where one side has more layers (`uneven`): which block is not there on the other
        side, other lists do not teach.
        """
        ends = _unnumbered_ends if uneven else path_ends
        shared = [_shared_ends(layers, ends) for layers in zip(*judged, strict=True)] or [set(), set()]
        mine, theirs = (
            [end for end, form in zip(path_ends(sized), ends(layer.path), strict=True) if form not in common]
            for layer, sized, common in zip((a, b), self._sized(a, b), shared, strict=True)
        )
        return max(
            (
                self.together[x, y] / max(self.source[x], self.target[y])
                for x in mine
                for y in theirs
                if self.together[x, y] > 1
            ),
            default=0.0,
        )

    def _sized(self, a: Layer, b: Layer) -> tuple[str, str]:
        """Both paths, with what an index is out of: the same words in a list of another length teach nothing."""
        mine, theirs = self.contents.sized
        return mine.get(a.path, a.path), theirs.get(b.path, b.path)


def learn_from_pairs(
    pairs: Iterable[Pair], ordered: bool, contents: Contents = NOTHING, lists: NumberedLists | None = None
) -> Learnt:
    """Return what settled pairs teach, and what the `contents` of both sides and the numbers of their `lists` tell."""
    learnt = Learnt(ordered, contents=contents, lists=lists)
    for a, b in pairs:
        learnt.add(a, b)
    return learnt


def exchange_benefit(one: Pair, two: Pair, learnt: Learnt) -> float:
    """What the present pairing has over the one with partners exchanged: > 0 speaks for it, 0: nothing tells.

    Each kind of evidence lies in [-2, 2]; kinds that contradict each other give 0: a block that moved in its list is
    told by what it holds, against its number. Beside numbers that are in order little else counts.
    """
    (a, b), (a2, b2) = one, two
    order = 1.0 if (a.position < a2.position) == (b.position < b2.position) else -1.0
    numbers, nested_alike = learnt.lists.agreement(one, two) if learnt.lists else (0, True)
    knowledge = _knowledge(learnt, (one, two))
    if numbers:
        knowledge = [_axes, _context(learnt, (one, two))] if nested_alike else [_axes]
    evidence = [
        sum(knows(pair) for pair in (one, two)) - sum(knows(pair) for pair in ((a, b2), (a2, b))) for knows in knowledge
    ]
    if numbers:
        evidence.append(float(numbers))
    else:
        evidence += [_places(one, two, order), _words(one, two, order), _contents(one, two, order, learnt.contents)]
    if learnt.ordered and all(layer.ran for layer in (a, b, a2, b2)):
        evidence.append(ORDER * order)
    if max(map(abs, evidence)) < SETTLED:
        beside = _next_to(learnt, (one, two))
        evidence.append(beside(one) + beside(two) - beside((a, b2)) - beside((a2, b)))
    return _sum_unless_contradictory(evidence)


def _knowledge(
    learnt: Learnt, judged: Sequence[Pair], apart_from: Sequence[Pair] = ()
) -> list[Callable[[Pair], float]]:
    return [
        lambda pair: learnt.translation(*pair, apart_from or judged, uneven=bool(apart_from)),
        _context(learnt, judged),
        lambda pair: learnt.around.company(pair, judged, apart_from or judged),
        _axes,
    ]


def _axes(pair: Pair) -> float:
    """1 if the classes of both say that they work on equally many axes; BatchNorm1d and BatchNorm2d have one shape."""
    return float(bool(pair[0].axes) and pair[0].axes == pair[1].axes)


def _next_to(learnt: Learnt, judged: Sequence[Pair]) -> Callable[[Pair], float]:
    """What sure siblings before and behind say, where nothing else speaks: batch norms stand at their convolutions."""
    return lambda pair: NEXT_TO * learnt.around.neighbours(pair, judged) if pair[0].kind == "batch_norm" else 0.0


def _context(learnt: Learnt, judged: Sequence[Pair]) -> Callable[[Pair], float]:
    return lambda pair: learnt.around.context(pair, judged)


def replacement_benefit(pair: Pair, rival: Rival, learnt: Learnt) -> float:
    """What a pair has over the one in which the unpaired rival takes the place of its source (or target)."""
    (a, b), (source, target) = pair, rival
    mine, others = (
        unshared_words(a.path, source.path) if source else unshared_words(b.path, target.path if target else b.path)
    )
    kept = words(b.path if source else a.path)
    evidence = [_unless_slight(contained(mine, kept) - contained(others, kept))]
    new = (source or a, target or b)
    evidence += [knows(pair) - knows(new) for knows in _knowledge(learnt, (pair,), (pair, new))]
    if max(map(abs, evidence)) < SETTLED:
        beside = _next_to(learnt, (pair,))
        evidence.append(beside(pair) - beside(new))
    return _sum_unless_contradictory(evidence)


def _sum_unless_contradictory(evidence: list[float]) -> float:
    if max(evidence) >= SETTLED and min(evidence) <= -SETTLED:
        return 0.0
    return sum(evidence)


def _unless_slight(share: float) -> float:
    """Return 0 where not even every second word is alike: `aux_head.fc` is not `fc` for its last word."""
    return share if abs(share) > MOST else 0.0


def _places(one: Pair, two: Pair, order: float) -> float:
    """What words for places (`pre`, `post`) say beside others, or beside numbers.

    Numbers against the order of registration tell less: the first norm of a block may be the one behind its attention.
    """
    paths = (one[0].path, two[0].path), (one[1].path, two[1].path)
    numbers = [number_order(*of_side) for of_side in paths]
    benefit = float(place_order(*paths[0]) * place_order(*paths[1]))
    return 0.0 if all(numbers) else benefit * (MOST if any(numbers) and benefit * order < 0 else 1)


def _words(one: Pair, two: Pair, order: float) -> float:
    """What the words that tell the two pairs apart say.

    Where the order of registration contradicts them, they count only if nothing but the better pairing is alike.
    """
    (x, x2), (y, y2) = unshared_words(one[0].path, two[0].path), unshared_words(one[1].path, two[1].path)
    kept, exchanged = (likeness(x, y), likeness(x2, y2)), (likeness(x, y2), likeness(x2, y))
    benefit = sum(kept) - sum(exchanged)
    worse, better = sorted((kept, exchanged), key=sum)
    clear = not max(worse) and (min(better) if benefit > 0 else max(better)) >= ALIKE
    return benefit if clear or benefit * order > 0 else 0.0


def _contents(one: Pair, two: Pair, order: float, contents: Contents) -> float:
    """What the containers around both pairs hold says, where the order of registration agrees."""
    (a, b), (a2, b2) = one, two
    benefit = contents.alike(a, b) + contents.alike(a2, b2) - contents.alike(a, b2) - contents.alike(a2, b)
    return max(-2.0, min(benefit, 2.0)) if benefit * order > 0 else 0.0


def _shared_ends(layers: Sequence[Layer], ends: Callable[[str], Sequence[str]]) -> Set[str]:
    """Ends that the paths of several different layers have in common."""
    paths = {layer.path for layer in layers}
    return set.intersection(*(set(ends(path)) for path in paths)) if len(paths) > 1 else set()


@lru_cache(maxsize=1 << 16)
def path_ends(path: str) -> tuple[str, ...]:
    """The last part of a path, the last two, and the last three.

    >>> path_ends("layer.0.attn.q")
    ('q', 'attn.q', '0.attn.q')
    """
    parts = path.split(".")
    return tuple(".".join(parts[-length:]) for length in range(1, min(_SUFFIX, len(parts)) + 1))


@lru_cache(maxsize=1 << 16)
def _unnumbered_ends(path: str) -> tuple[str, ...]:
    return path_ends(".".join("#" if is_number(part) else part for part in path.split(".")))
