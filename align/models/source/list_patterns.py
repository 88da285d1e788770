"""Which expression of a list's source makes which of its items.

Source says which expressions may follow each other: one behind the other, either of two, any number of times. So it is
an expression as regular ones are, and the items are its text. The states are its leaves (Glushkov, The abstract theory
of automata, 1961): a leaf makes an item if a way leads to it over the items before, and on over those behind.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Leaf:
    """An expression that makes items: their name there, "" where it gives none; `value` None for what nobody knows."""

    name: str
    value: ast.expr | None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a list's source by the numbers of leaves that may make its first and its last item."""

    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    may_be_empty: bool = True


class ListPattern:
    """The leaves of a list's source, and which may follow which."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self._follow: defaultdict[int, set[int]] = defaultdict(set)

    def leaf(self, value: ast.expr | None, name: str = "") -> Part:
        """One item."""
        number = frozenset({len(self.leaves)})
        self.leaves.append(Leaf(name, value))
        return Part(number, number, may_be_empty=False)

    def joined(self, parts: Iterable[Part]) -> Part:
        """One part behind the other."""
        return reduce(self._behind, parts, Part())

    def _behind(self, one: Part, other: Part) -> Part:
        for number in one.last:
            self._follow[number] |= other.first
        first = one.first | other.first if one.may_be_empty else one.first
        last = one.last | other.last if other.may_be_empty else other.last
        return Part(first, last, one.may_be_empty and other.may_be_empty)

    def repeated(self, part: Part) -> Part:
        """A part any number of times."""
        for number in part.last:
            self._follow[number] |= part.first
        return Part(part.first, part.last)

    @staticmethod
    def either(one: Part, other: Part = Part()) -> Part:
        """One of two parts, or one or none."""
        return Part(one.first | other.first, one.last | other.last, one.may_be_empty or other.may_be_empty)

    def leaves_of(self, whole: Part, fitting: Sequence[frozenset[int]]) -> list[frozenset[int]]:
        """The leaves that may make each item, of those that fit it; none for all where no way leads over all."""
        ways = [fitting[0] & whole.first] if fitting else []
        for own in fitting[1:]:
            ways.append(own.intersection(*[set[int]().union(*(self._follow[one] for one in ways[-1]))]))
        reached = whole.last
        for number in range(len(ways) - 1, -1, -1):
            ways[number] &= reached
            before = ways[number]
            reached = frozenset(one for one in range(len(self.leaves)) if self._follow[one] & before)
        return ways
