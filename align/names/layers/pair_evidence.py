"""What settled pairs tell of others beyond class and shape: translations of names, neighbours, contents, numbers.

The evidence is computed once a round, from the pairs that are settled by then, and read by all who weigh a pair. Pairs
in question are left out of account, so that no guess confirms another, and so that two layers of which one is missing
on the other side have the same neighbours: what stands between the same neighbours stays undecided. Of containers that
are renamed or nested otherwise, what they hold tells which is which: ports rarely split a branch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.names.layers.numbered_lists import NumberedLists
from align.names.layers.path_words import path_ends

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

    from align.names.layers.read_layers import Layer, Pair


from bisect import bisect_left, insort
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING

from align.names.layers.path_words import (
    compare_names,
    contained,
    containers,
    is_number,
    modules_above,
    unnumbered_ends,
    unshared_words,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Set

    from align.names.layers.numbered_lists import NumberedLists
    from align.names.layers.read_layers import Layer, Pair

# One clear piece of evidence (a number, an abbreviated word, a translation seen twice) weighs 0.8 to 2.
SETTLED = 0.25
MOST = 0.5
# Two correct implementations may call two branches in another order: that tells less than a name or a number.
_ORDER = 0.5
# Which sibling is registered before or behind tells less still: neighbours alone leave a pair unsure.
_NEXT_TO = 0.25
_BLOCKS = 3  # the least number of them that agree
_NONE: frozenset[object] = frozenset()


@dataclass(frozen=True, slots=True)
class Contents:
    """For each layer of both sides, by its path, what the containers around it hold.

    `sized` are the paths of both sides with the length of its list behind each index (`block.0/12.layer.1/3.norm`).
    """

    source: dict[str, frozenset[object]] = field(default_factory=dict)
    target: dict[str, frozenset[object]] = field(default_factory=dict)
    sized: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))

    def alike(self, pair: Pair) -> float:
        """Number of containers around the one that hold the same shapes as containers around the other."""
        return float(len(self.source.get(pair[0].path, _NONE) & self.target.get(pair[1].path, _NONE)))


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
        for pair in pairs:
            left, right = map(path_ends, self._sized(pair))
            self._ends[0].update(left)
            self._ends[1].update(right)
            self._together.update((x, y) for x in left for y in right)
            self.around.add(*pair)

    def exchange_benefit(self, one: Pair, two: Pair) -> float:
        """What two pairs have over the two with partners exchanged: > 0 speaks for them, 0: nothing tells.

        Each kind of evidence lies in [-2, 2]; kinds that contradict each other give 0: a block that moved in its list
        is told by what it holds, against its number. Beside numbers that are in order little else counts.
        """
        judged, exchanged = (one, two), ((one[0], two[1]), (two[0], one[1]))
        order = 1.0 if (one[0].position < two[0].position) == (one[1].position < two[1].position) else -1.0
        numbers, nested_alike = self._lists.agreement(one, two) if self._lists else (0, True)
        knowledge = self._knowledge(judged, judged)
        if numbers:
            knowledge = [_axes, self._context(judged)] if nested_alike else [_axes]
        evidence = [sum(map(knows, judged)) - sum(map(knows, exchanged)) for knows in knowledge]
        if numbers:
            evidence.append(float(numbers))
        else:
            evidence += compare_names((one[0].path, two[0].path), (one[1].path, two[1].path), order)
            held = sum(map(self._contents.alike, judged)) - sum(map(self._contents.alike, exchanged))
            evidence.append(max(-2.0, min(held, 2.0)) if held * order > 0 else 0.0)
        if self._ordered and all(layer.ran for pair in judged for layer in pair):
            evidence.append(_ORDER * order)
        if max(map(abs, evidence)) < SETTLED:
            beside = self._next_to(judged)
            evidence.append(sum(map(beside, judged)) - sum(map(beside, exchanged)))
        return _sum_unless_contradictory(evidence)

    def replacement_benefit(self, pair: Pair, new: Pair) -> float:
        """What a pair has over a `new` one, in which an unpaired layer takes the place of its source or target."""
        (a, b), (source, target) = pair, new
        kept = words((b if a is not source else a).path)
        mine, others = unshared_words(*((a.path, source.path) if a is not source else (b.path, target.path)))
        share = contained(mine, kept) - contained(others, kept)
        # Not even every second word is alike: `aux_head.fc` is not `fc` for its last word.
        evidence = [share if abs(share) > MOST else 0.0]
        evidence += [knows(pair) - knows(new) for knows in self._knowledge((pair,), (pair, new), uneven=True)]
        if max(map(abs, evidence)) < SETTLED:
            beside = self._next_to((pair,))
            evidence.append(beside(pair) - beside(new))
        return _sum_unless_contradictory(evidence)

    def translation(self, pair: Pair, judged: Sequence[Pair] = (), *, uneven: bool = False) -> float:
        """Largest share, in [0, 1], at which an end of one path went with an end of the other; seen at least twice.

        Ends that all pairs that are `judged` have in common do not tell them apart, and do not count. Nor do those
        that differ by an index alone where one side has more layers (`uneven`): which block is not there on the other
        side, other lists do not teach.
        """
        ends = unnumbered_ends if uneven else path_ends
        shared = [_shared_ends(layers, ends) for layers in zip(*judged, strict=True)] or [set(), set()]
        mine, theirs = (
            [end for end, form in zip(path_ends(sized), ends(layer.path), strict=True) if form not in common]
            for layer, sized, common in zip(pair, self._sized(pair), shared, strict=True)
        )
        together, (left, right) = self._together, self._ends
        return max(
            (together[x, y] / max(left[x], right[y]) for x in mine for y in theirs if together[x, y] > 1), default=0.0
        )

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
        return lambda pair: _NEXT_TO * self.around.neighbours(pair, judged) if pair[0].kind == "batch_norm" else 0.0


def _axes(pair: Pair) -> float:
    """1 if the classes of both say that they work on equally many axes; BatchNorm1d and BatchNorm2d have one shape."""
    return float(bool(pair[0].axes) and pair[0].axes == pair[1].axes)


def _sum_unless_contradictory(evidence: list[float]) -> float:
    if max(evidence) >= SETTLED and min(evidence) <= -SETTLED:
        return 0.0
    return sum(evidence)


def _shared_ends(layers: Sequence[Layer], ends: Callable[[str], Sequence[str]]) -> Set[str]:
    """Ends that the paths of several different layers have in common."""
    paths = {layer.path for layer in layers}
    return set.intersection(*(set(ends(path)) for path in paths)) if len(paths) > 1 else set()


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


def read_contents(left: Iterable[Layer], right: Iterable[Layer]) -> Contents:
    """Return what the containers of both sides hold: the signatures of their layers, each with its number."""
    codes: dict[object, int] = {}
    left, right = list(left), list(right)
    sized = _sized(left), _sized(right)
    return Contents(_contents(left, codes), _contents(right, codes), sized)


def _sized(layers: list[Layer]) -> dict[str, str]:
    """Each path, and the same with the number of members behind each index in a list."""
    paths = [layer.path.split(".") for layer in layers]
    members: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for path in paths:
        for place, part in enumerate(path):
            members[tuple(path[:place])].update([part] if is_number(part) else [])
    return {
        ".".join(path): ".".join(
            f"{part}/{len(members[tuple(path[:place])])}" if is_number(part) else part
            for place, part in enumerate(path)
        )
        for path in paths
    }


def _contents(layers: list[Layer], codes: dict[object, int]) -> dict[str, frozenset[object]]:
    """As above; equal contents have one of the `codes`, for to compare all that a model holds takes long."""
    held: dict[str, Counter[object]] = defaultdict(Counter)
    for layer in layers:
        for container in containers(layer.path):
            held[container][layer.signature] += 1
    contents = {
        container: codes.setdefault(frozenset(counter.items()), len(codes)) for container, counter in held.items()
    }
    return {layer.path: frozenset(contents[one] for one in containers(layer.path)) for layer in layers}


class BlockAgreement:
    """How many layers of both sides have each end of a path."""

    def __init__(self, left: Iterable[Layer], right: Iterable[Layer]) -> None:
        self._counts = tuple(Counter(end for layer in side for end in path_ends(layer.path)) for side in (left, right))

    def of_all_blocks(self, pairs: Sequence[Pair]) -> list[bool]:
        """Tell of each pair whether an end of its source went with one of its target in all layers that have either."""
        together = Counter((x, y) for a, b in pairs for x in path_ends(a.path) for y in path_ends(b.path))
        mine, theirs = self._counts
        whole = {(x, y) for (x, y), count in together.items() if count == mine[x] == theirs[y] and count >= _BLOCKS}
        return [any((x, y) in whole for x in path_ends(a.path) for y in path_ends(b.path)) for a, b in pairs]
