"""The first side of a comparison: its uses, looked up by the rows that go in, and what is added to sums of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from align.core.piece_transforms import Share, Sum
from align.names.thresholds import AGREEING_DISTANCE, MOST_NEAR_FEATURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

    from numpy.typing import NDArray

    from align.names.dataflow.operator_uses import Use
    from align.names.dataflow.seen_rows import SeenRows

    Features = tuple[int, ...]
    Entries = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]
    Term = tuple[Use, int]


@dataclass(slots=True)
class FirstSide:
    """The uses of the first side, looked up by the rows that go in."""

    uses: list[Use]
    _by_kind: dict[tuple[str, int], list[Use]] = field(init=False)
    _sizes: dict[tuple[str, int], list[float]] = field(init=False)
    joined: JoinedFeatures = field(init=False)

    def __post_init__(self) -> None:
        self.joined = JoinedFeatures(self.uses)
        grouped: dict[tuple[str, int], list[tuple[float, int, Use]]] = defaultdict(list)
        for use in self.uses:
            grouped[use.kind, use.rows.width].append((use.rows.size, use.order, use))
        self._by_kind = {key: [one[2] for one in sorted(own, key=lambda one: one[:2])] for key, own in grouped.items()}
        self._sizes = {key: [one.rows.size for one in own] for key, own in self._by_kind.items()}

    def alike(self, kind: str, rows: SeenRows) -> list[Use]:
        """Uses of a kind that the same rows go into, in their order."""
        known, sizes = self._by_kind.get((kind, rows.width), []), self._sizes.get((kind, rows.width), [])
        margin = 2 * AGREEING_DISTANCE * rows.size
        near = known[bisect_left(sizes, rows.size - margin) : bisect_right(sizes, rows.size + margin)]
        found = [use for use in near if use.rows.count == rows.count and use.rows.same(rows)]
        return sorted(found, key=lambda use: use.order)

    def among(self, kind: str, rows: SeenRows) -> list[Use]:
        """Uses of a kind that some of these rows go into, or these and others, in their order."""
        known = self._by_kind.get((kind, rows.width), [])
        found = [use for use in known if use.rows.count != rows.count and use.rows.same(rows)]
        return sorted(found, key=lambda use: use.order)

    def fed_zeros(self, kind: str, rows: SeenRows) -> list[Use]:
        """Uses of a kind that rows of zeros go into, as first states are, if these are such; in their order."""
        known = () if rows.marks.any() else self._by_kind.get((kind, rows.width), ())
        return sorted((use for use in known if not use.rows.marks.all()), key=lambda use: use.order)

    def overlapping(self, kind: str, rows: SeenRows) -> list[Use]:
        """Products that most of these rows go into, as of sequences of which one side computes the padding, too."""
        known = self._by_kind.get((kind, rows.width), []) if kind == "product" else []
        return sorted((use for use in known if rows.overlaps(use.rows)), key=lambda use: use.order)


class TakenUses:
    """The uses of the first side, and the features of them, that a use of the second side was matched with."""

    def __init__(self, wholes: Iterable[Use]) -> None:
        self._features: dict[int, set[Features | None]] = {use.order: {None} for use in wholes}

    @property
    def orders(self) -> Set[int]:
        """The places of all uses of which something is taken."""
        return self._features.keys()

    def add(self, use: Use, features: Features | None) -> None:
        """Take some features of a use, or all of them."""
        self._features.setdefault(use.order, set()).add(features)

    def has(self, use: Use, features: Features | None) -> bool:
        """Tell whether exactly these features were taken."""
        return features in self._features.get(use.order, ())

    def has_all(self, use: Use) -> bool:
        """Tell whether all features were taken, at once or in parts."""
        taken = self._features.get(use.order, set())
        return None in taken or sum(len(features) for features in taken if features) >= use.features > 1


def each_has_its_own(product: Use) -> bool:
    """Tell whether to each product of the sum that one is in something is added before they are added up."""
    group = product.summed or [product]
    return all(one.bias is not None and [bias for bias, _ in one.biases] == [one.bias] for one in group)


def added_by_feature(product: Use) -> list[list[tuple[Term, int]]]:
    """The terms that are added to each feature of a product, and of the sum that it is in there.

    A term is a use and its number among the terms of that use; with it stands which of its numbers is added. Behind
    rows of zeros what was added is seen to be added again: it counts once.
    """
    terms: list[dict[tuple[int, int], tuple[Term, int]]] = [{} for _ in range(product.features)]
    whole = tuple(range(product.features))
    for features, group in [(whole, [product]), *product.sums]:
        among = set(features)
        for bias, own in chain.from_iterable(member.biases for member in group):
            for at, (piece, _) in enumerate(bias.terms if bias.value.size == len(own) else ()):
                elements = zip(own, piece.places().reshape(-1).tolist(), strict=True)
                for place, (feature, element) in enumerate(elements):
                    if feature in among:
                        terms[feature].setdefault((piece.number, element), ((bias, at), place))
    return [sorted(one.values(), key=lambda term: (term[0][0].order, term[0][1])) for one in terms]


def terms_paired(
    mine: Sequence[Term], theirs: Sequence[Term], hints: Mapping[str, Sequence[str]]
) -> Iterator[tuple[int, int, Sum | Share | None]]:
    """Which of the one side's terms is which of the other's, as `hints` say if it is any; one is a sum of several."""
    if len(mine) == len(theirs):
        yield from ((mine.index(own), theirs.index(other), None) for own, other in _by_names(mine, theirs, hints))
    elif len(mine) == 1:
        yield from ((0, at, Sum(at, len(theirs))) for at in range(len(theirs)))
    elif len(theirs) == 1:
        yield from ((at, 0, Share(at, len(mine))) for at in range(len(mine)))


def _by_names(
    mine: Sequence[Term], theirs: Sequence[Term], hints: Mapping[str, Sequence[str]]
) -> list[tuple[Term, Term]]:
    """Each term with one of the other side: with the one that names say, else the next one that is left."""
    left = list(theirs)
    partners: dict[Term, Term] = {}
    for term in mine:
        names = hints.get(term[0].terms[term[1]][0].names[0], ())
        meant = next((one for one in left if one[0].terms[one[1]][0].names[0] in names), None)
        if meant is not None:
            partners[term] = meant
            left.remove(meant)
    return [(term, partners[term] if term in partners else left.pop(0)) for term in mine]


# Uses whose rows are those of several uses of the other side, one beside the other.


class JoinedFeatures:
    """The uses of a side, looked up by the largest feature of a row: zeros are near each other, and tell nothing."""

    def __init__(self, uses: Sequence[Use]) -> None:
        self._uses = uses
        self._by_kind: dict[str, list[int]] = defaultdict(list)
        for at, use in enumerate(uses):
            self._by_kind[use.kind].append(at)
        self._largest: dict[str, Entries] = {}
        self._all: dict[str, Entries] = {}

    def parts(self, use: Use, is_free: Callable[[Use, Features | None], bool]) -> list[tuple[Use, Features]] | None:
        """Uses whose features are side by side in those of one use, each with where: they must be all of them."""
        ends, width = use.rows.ends, use.rows.width
        starts: dict[int, dict[Use, None]] = defaultdict(dict)
        for at in np.flatnonzero(ends[0]).tolist() if len(ends) else ():
            for joined_use, column in self._near(self._largest, use.kind, float(ends[0, at])):
                starts[at - column][joined_use] = None
        parts: list[tuple[Use, Features]] = []
        at = 0
        while at < width:
            taken = [joined_use for joined_use, _ in parts]
            fitting = (
                joined_use
                for joined_use in starts.get(at, ())
                if joined_use not in taken and use.rows.begins(joined_use.rows, at)
            )
            part = next((joined_use for joined_use in fitting if is_free(joined_use, None)), None)
            if part is None or part.rows.width >= width:
                return None
            parts.append((part, tuple(range(at, at + part.rows.width))))
            at += part.rows.width
        return parts

    def whole(self, use: Use, is_free: Callable[[Use, Features | None], bool]) -> tuple[Use, Features] | None:
        """A use among whose features those of one use stand side by side, and which these are."""
        ends, width = use.rows.ends, use.rows.width
        if not len(ends) or not use.rows.varies or not ends[0].any():
            return None
        for wide, _ in self._near(self._all, use.kind, float(ends[0, abs(ends[0]).argmax()])):
            at = wide.rows.holds(use.rows) if wide.rows.width > width else None
            features = None if at is None else tuple(range(at, at + width))
            if features is not None and is_free(wide, features):
                return wide, features
        return None

    def _near(self, known: dict[str, Entries], kind: str, value: float) -> list[tuple[Use, int]]:
        """Uses of a kind that have a number near this one in a first row, and where: anywhere, or as the largest."""
        if kind not in known:
            known[kind] = self._entries(kind, everywhere=known is self._all)
        values, places, columns = known[kind]
        margin = AGREEING_DISTANCE * abs(value)
        low, high = np.searchsorted(values, [value - margin, value + margin])
        near = zip(places[low:high].tolist(), columns[low:high].tolist(), strict=True)
        return [(self._uses[at], column) for at, column in sorted(near)[:MOST_NEAR_FEATURES]]

    def _entries(self, kind: str, *, everywhere: bool) -> Entries:
        entries: list[tuple[float, int, int]] = []
        for at in self._by_kind[kind]:
            for row in (ends[0] for _, ends in self._uses[at].rows.calls if len(ends) and ends[0].any()):
                columns = np.flatnonzero(row) if everywhere else [int(abs(row).argmax())]
                entries += [(float(row[column]), at, int(column)) for column in columns]
        entries.sort()
        numbers = [np.array(one) for one in zip(*entries, strict=True)] or [np.empty(0)] * 3
        return numbers[0], numbers[1].astype(np.int64), numbers[2].astype(np.int64)
