"""What settled pairs say of others beyond class and shape: translations of names, neighbours, contents, numbers, words.

The evidence is computed once a round, from the pairs that are settled by then, and read by all who weigh a pair.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from align.names.layers.path_words import (
    compare_names,
    contained,
    is_number,
    likeness,
    unshared_words,
    word_likeness,
    words,
)
from align.names.layers.surroundings import Contents, SettledNeighbours, modules_above
from align.names.thresholds import (
    AGREEING_BLOCKS,
    BENEFIT_OF_MAJORITY,
    CLEAR_BENEFIT,
    LONGEST_END,
    TRANSLATION_SEEN,
    WEIGHT_OF_NEIGHBOURS,
    WEIGHT_OF_ORDER,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Set

    from align.names.layers.numbered_lists import NumberedLists
    from align.names.layers.path_words import Tokens
    from align.names.layers.read_layers import Layer, Pair

_DIGITS = re.compile(r"\d+")


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
            evidence.append(WEIGHT_OF_ORDER * order)
        if max(map(abs, evidence)) < CLEAR_BENEFIT:
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
        evidence = [share if abs(share) > BENEFIT_OF_MAJORITY else 0.0]
        evidence += [knows(pair) - knows(new) for knows in self._knowledge((pair,), (pair, new), uneven=True)]
        if max(map(abs, evidence)) < CLEAR_BENEFIT:
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
            (
                together[x, y] / max(left[x], right[y])
                for x in mine
                for y in theirs
                if together[x, y] >= TRANSLATION_SEEN
            ),
            default=0.0,
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


def _shared_ends(layers: Sequence[Layer], ends: Callable[[str], Sequence[str]]) -> Set[str]:
    """Ends that the paths of several different layers have in common."""
    paths = {layer.path for layer in layers}
    return set.intersection(*(set(ends(path)) for path in paths)) if len(paths) > 1 else set()


class BlockAgreement:
    """How many layers of both sides have each end of a path."""

    def __init__(self, left: Iterable[Layer], right: Iterable[Layer]) -> None:
        self._counts = tuple(Counter(end for layer in side for end in path_ends(layer.path)) for side in (left, right))

    def of_all_blocks(self, pairs: Sequence[Pair]) -> list[bool]:
        """Tell of each pair whether an end of its source went with one of its target in all layers that have either."""
        together = Counter((x, y) for a, b in pairs for x in path_ends(a.path) for y in path_ends(b.path))
        mine, theirs = self._counts
        whole = {
            (x, y) for (x, y), count in together.items() if count == mine[x] == theirs[y] and count >= AGREEING_BLOCKS
        }
        return [any((x, y) in whole for x in path_ends(a.path) for y in path_ends(b.path)) for a, b in pairs]


@lru_cache(maxsize=1 << 16)
def path_ends(path: str) -> tuple[str, ...]:
    """The last part of a path, the last two, and the last three.

    >>> path_ends("layer.0.attn.q")
    ('q', 'attn.q', '0.attn.q')
    """
    parts = path.split(".")
    return tuple(".".join(parts[-length:]) for length in range(1, min(LONGEST_END, len(parts)) + 1))


@lru_cache(maxsize=1 << 16)
def unnumbered_ends(path: str) -> tuple[str, ...]:
    """The same ends, with what is a number left open."""
    return path_ends(".".join("#" if is_number(part) else part for part in path.split(".")))


@dataclass(frozen=True, slots=True)
class PairFacts:
    """What the names and the settled pairs of both sides say of one pair.

    `own` are the words that each path has for itself. `alike` is their likeness in [0, 1], that of all words if one has
    none. `differ` says that nothing is alike but a last word that stands elsewhere too. The others are what
    `PairEvidence` and `SettledNeighbours` call so.
    """

    own: tuple[Tokens, Tokens]
    alike: float
    differ: bool
    translation: float
    context: float
    neighbours: float


def read_pair_facts(
    pairs: Sequence[Pair], settled: Sequence[Pair], sides: tuple[Sequence[Layer], Sequence[Layer]]
) -> dict[str, PairFacts]:
    """Return what speaks for and against each of the pairs, by the path of its source; `settled` pairs teach."""
    evidence = PairEvidence(settled, ordered=False)
    names = DistinctiveWords([[layer.path for layer in side] for side in sides], [(a.path, b.path) for a, b in settled])
    found: dict[str, PairFacts] = {}
    for a, b in pairs:
        mine, theirs = names.of(a.path, b.path)
        alike = likeness(mine, theirs) if mine and theirs else likeness(words(a.path), words(b.path))
        found[a.path] = PairFacts(
            (mine, theirs),
            alike,
            not alike and names.share_an_end(a.path, b.path),
            evidence.translation((a, b)),
            evidence.around.context((a, b), ((a, b),)),
            evidence.around.neighbours((a, b), ((a, b),)),
        )
    return found


class DistinctiveWords:
    """The words that tell a path from the others of its side.

    Not those of modules whose other layers are settled, since every layer there has them, nor those that stand in
    several places (`dense`, `token`).
    """

    def __init__(self, sides: Sequence[Sequence[str]], settled: Sequence[tuple[str, str]]) -> None:
        self._common = [_common_words(paths) for paths in sides]
        self._held = [Counter(module for pair in settled for module in modules_above(pair[side])) for side in (0, 1)]
        self._settled = set(settled)
        self._ends: dict[Tokens, list[tuple[str, str]]] = defaultdict(list)
        for a, b in self._settled:
            for end in {words(a)[-1:], words(b)[-1:]}:
                self._ends[end].append((a, b))

    def of(self, a: str, b: str) -> tuple[Tokens, Tokens]:
        """The words that each of a source's path and a target's has for itself."""
        counted = int((a, b) in self._settled)
        return self._of(a, 0, counted), self._of(b, 1, counted)

    def share_an_end(self, a: str, b: str) -> bool:
        """Tell whether both end in a word that both sides use alike elsewhere: `mask_token` and `dist_token`."""
        mine, theirs = words(a), words(b)
        ends = self._ends.get(mine[-1:], []) if mine and mine[-1:] == theirs[-1:] else []
        others = [both for both in ends if both != (a, b)]
        return bool(others) and all(words(one)[-2:] == words(other)[-2:] for one, other in others)

    def _of(self, path: str, side: int, counted: int) -> Tokens:
        module = next((one for one in modules_above(path) if self._held[side][one] > counted), "")
        common = self._common[side]
        return tuple(
            word
            for word in words(path[len(module) :])
            if len(word) > 1 and not any(word_likeness(word, other) for other in common)
        )


def _common_words(paths: Iterable[str]) -> set[str]:
    """Words of several modules or layers; the numbers of lists make no difference."""
    places = set()
    for path in {_DIGITS.sub("#", path) for path in paths}:
        places.update({path, *modules_above(path)})
    count = Counter(word for place in places for word in set(words(place.rpartition(".")[2])))
    return {word for word, number in count.items() if number > 1}
