"""Modules of both sides that are one place, whatever they are called: nothing else holds as many elements.

How many elements a module holds is what other names, nesting, fused and stacked tensors leave as it is. From the
outside in, a module is that of the other side if no other there has its number; of two lists that hold the same numbers
in their order the children are, one by one. A pair of layers of which one stands outside contradicts a place.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from align.names.layers.path_words import modules_above, numbered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.parameters import Parameter, ParameterSet, Shape
    from align.names.layers.read_layers import Pair

_Node = tuple[str, ...]  # one module, or the children of a list in the order of their numbers


class MatchedPlaces:
    """The modules of the source's side that are a place, each with that of the target's, as `settled` pairs allow.

    `whole` tells whether both models hold as many elements. Where one lacks something, what a module has left may be
    as much as another holds, and only several blocks that are alike are believed, and what is in them.
    """

    def __init__(self, sides: tuple[ParameterSet, ParameterSet], settled: Sequence[Pair]) -> None:
        self._trees = _Tree(sides[0], [a.path for a, _ in settled]), _Tree(sides[1], [b.path for _, b in settled])
        self.whole = self._trees[0].elements[""] == self._trees[1].elements[""]
        self._repeated: set[str] = set()
        self._partners: tuple[dict[str, str], dict[str, str]] = ({}, {})
        waiting = [("", "")]
        while waiting:
            place = waiting.pop()
            for own, path, other in zip(self._partners, place, place[::-1], strict=True):
                own[path] = other
            waiting += self._within(place)

    def around(self, path: str, side: int) -> tuple[str, str]:
        """The nearest place around a layer, by its paths on both sides; "" is that of both models."""
        partners = self._partners[side]
        nearest = next(one for one in (path, *modules_above(path)) if one in partners)
        both = nearest, partners[nearest]
        return both if not side else both[::-1]

    def is_repeated(self, path: str) -> bool:
        """Tell whether a layer of the source's stands in a block of which a list that is a place holds several."""
        return not self._repeated.isdisjoint(_with_modules_above(path))

    def _within(self, place: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the places next within a place, which hold no others that are not within them."""
        nodes = [self._nodes(tree, root) for tree, root in zip(self._trees, place, strict=True)]
        taken: tuple[set[str], set[str]] = (set(), set())
        for key in sorted(nodes[0].keys() & nodes[1].keys(), key=lambda one: (-sum(one), len(one))):
            free = [
                [node for node in own[key] if used.isdisjoint(_with_modules_above(node[0]))]
                for own, used in zip(nodes, taken, strict=True)
            ]
            if not (self.whole or len(key) > len(set(key)) or self.is_repeated(place[0])):
                continue
            if len(free[0]) == len(free[1]) == 1 and self._are_one(free[0][0], free[1][0], within=bool(any(place))):
                for used, (node,) in zip(taken, free, strict=True):
                    used.update(node)
                if len(key) > len(set(key)):
                    self._repeated.update(free[0][0])
                yield from zip(free[0][0], free[1][0], strict=True)

    @staticmethod
    def _nodes(tree: _Tree, root: str) -> dict[tuple[int, ...], list[_Node]]:
        """The modules and lists below a module by the elements that they hold, of one in another the outer."""
        found: dict[tuple[int, ...], list[_Node]] = defaultdict(list)
        lists: dict[str, dict[int, str]] = defaultdict(dict)
        for path in tree.below(root):
            above = path.rpartition(".")[0]
            if tree.elements[path] and (above == root or tree.elements[above] != tree.elements[path]):
                found[(tree.elements[path],)].append((path,))
            places = numbered(path)
            if places and places[-1][2] == path and tree.elements[path]:
                lists[places[-1][0]][int(places[-1][1])] = path
        for children in lists.values():
            node = tuple(children[number] for number in sorted(children))
            if len(node) > 1:
                found[tuple(tree.elements[path] for path in node)].append(node)
        return found

    def _are_one(self, mine: _Node, theirs: _Node, *, within: bool) -> bool:
        """Tell whether nothing is against it that modules are places, or the children of two lists in their order.

        `within` says that they stand in a place, where a layer of its own may be one.
        """
        left, right = self._trees
        if mine != theirs and any(x in right.elements or y in left.elements for x, y in zip(mine, theirs, strict=True)):
            return False  # what is called so on the other side has changed
        profile = [left.elements[path] for path in mine]
        if len(mine) > 1 and profile == profile[::-1] and not self._are_numbered(mine, theirs):
            return False
        both = zip(mine, theirs, strict=True)
        return all(left.pairs[x] == right.pairs[y] and self._hold_alike(x, y, within=within) for x, y in both)

    def _are_numbered(self, mine: _Node, theirs: _Node) -> bool:
        """Tell whether the numbers of two lists tell which child is which, where nothing else does.

        Not of single layers, nor of lists within lists of equal length, which may be nested the other way round.
        """
        trees = zip(self._trees, (mine, theirs), strict=True)
        if any(tree.is_layer(path) for tree, node in trees for path in node):
            return False
        left, right = self._trees
        turned = (left.elements[mine[0]] // len(mine),) * len(mine)
        if turned in self._nodes(left, mine[0]) and turned in self._nodes(right, theirs[0]):
            return False
        return left.rises(mine) == right.rises(theirs)

    def _hold_alike(self, mine: str, theirs: str, *, within: bool) -> bool:
        """Tell whether two modules may hold the same: single layers have shapes alike, or one stacks the other's."""
        left, right = self._trees
        if not (left.is_layer(mine) or right.is_layer(theirs)):
            return True
        alike = within and left.shapes(mine) == right.shapes(theirs)
        return (
            alike
            or (left.stacks(mine) and not right.is_layer(theirs))
            or (right.stacks(theirs) and not left.is_layer(mine))
        )


class _Tree:
    """The modules of one side: what each holds, the pairs of layers below it by number, and where it stands."""

    def __init__(self, side: ParameterSet, settled: Sequence[str]) -> None:
        self.elements: Counter[str] = Counter()
        self.pairs: dict[str, set[int]] = defaultdict(set)
        self._own: dict[str, list[Parameter]] = defaultdict(list)
        self._children: dict[str, dict[str, None]] = defaultdict(dict)
        self._place: dict[str, int] = {}
        for place, parameter in enumerate(side.parameters):
            self._add(parameter, place)
        for number, path in enumerate(settled):
            for module in _with_modules_above(path):
                self.pairs[module].add(number)

    def _add(self, parameter: Parameter, place: int) -> None:
        if parameter.tied_to or parameter.buffer or parameter.trainable is False:
            return
        self._own[parameter.module].append(parameter)
        modules = _with_modules_above(parameter.module)
        for module, above in pairwise(modules):
            self._children[above][module] = None
        for module in modules:
            self.elements[module] += parameter.count
            self._place.setdefault(module, place)

    def below(self, root: str) -> list[str]:
        """The modules below one, each before those in it."""
        found = list(self._children[root])
        for path in found:
            found += self._children[path]
        return found

    def is_layer(self, path: str) -> bool:
        """Tell whether a module holds one layer and nothing else."""
        own = sum(one.count for one in self._own[path])
        if own == self.elements[path]:
            return True
        return not own and len(self._children[path]) == 1 and self.is_layer(next(iter(self._children[path])))

    def shapes(self, path: str) -> Counter[Shape]:
        """The shapes below a module, whichever way round and without axes of length 1."""
        held = [one for module in (path, *self.below(path)) for one in self._own[module]]
        return Counter(tuple(sorted(length for length in one.shape if length != 1)) for one in held)

    def stacks(self, path: str) -> bool:
        """Tell whether all parameters of a module may hold one for each of several layers."""
        firsts = {one.shape[:1] for one in self._own[path]}
        return not self._children[path] and len(firsts) == 1 and any(len(one.shape) > 2 for one in self._own[path])

    def rises(self, paths: _Node) -> bool:
        """Tell whether modules are registered in this order."""
        places = [self._place[path] for path in paths]
        return places == sorted(places)


def _with_modules_above(path: str) -> tuple[str, ...]:
    return (path, *modules_above(path)) if path else ("",)
