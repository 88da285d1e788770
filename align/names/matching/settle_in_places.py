"""What is open, paired within the places of both models that are one: blocks as blocks, whatever they are called.

The widths of a model are few, so that a matrix has rivals all over it, and none within its place. There a layer is
paired that nothing else of its place could be, in any form: a matrix as (in, out), a vector with axes of length 1, a
weight and a bias that a module keeps side by side under names of its own. What has rivals in its place is weighed as
everywhere, among these alone; and what stays open is open within its place.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from align.core.name_map import Ambiguity
from align.names.matching.fused_layers import match_stacked, piece_sign
from align.names.matching.match_layers import UNRELATED, match_layers
from align.names.matching.matrix_orientations import plain_layer, transposed_layer
from align.names.matching.repeated_blocks import KnownPairs
from align.names.matching.weigh_exchanges import norms_by_words
from align.names.read_layers import (
    USUAL_ROLES,
    may_pair,
    modules_above,
    numbered,
    unlike_beyond_kind,
    with_shapes,
    words,
)
from align.names.thresholds import CONFIDENCE_OF_FORM, CONFIDENCE_OF_TURNED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.core.name_map import Pairing
    from align.core.parameters import Parameter, ParameterSet, Shape
    from align.names.read_layers import Layer, Pair


_ALONE = "alone"  # the role of a parameter apart from its layer
_Sides = tuple[list["Layer"], list["Layer"]]
# A role at the beginning or the end of an attribute's name: `w_up`, `up_bias`, `W1`.
_ROLE_AND_NAME = re.compile(r"(?:(weight|kernel|bias|w|b)_?(.+)|(.+)_(weight|kernel|bias|w|b))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class InPlaces:
    """Pairs of layers with their confidence, pairings of pieces of stacks, and what stays open, place by place."""

    pairs: list[tuple[Pair, float]] = field(default_factory=list)
    pairings: list[Pairing] = field(default_factory=list)
    ambiguous: list[Ambiguity] = field(default_factory=list)


def settle_in_places(
    free: tuple[Sequence[Layer], Sequence[Layer]],
    sides: tuple[ParameterSet, ParameterSet],
    settled: Sequence[Pair],
    groups: Sequence[Ambiguity],
    *,
    ordered: bool,
) -> InPlaces:
    """Pair layers that are `free` in the places that `settled` pairs do not contradict; `groups` are open so far.

    `ordered` says that both sides stand in the order of execution.
    """
    in_places = InPlaces()
    if not all(free):
        return in_places
    places = MatchedPlaces(sides, settled)
    alike = [one for one in groups if one.reason != UNRELATED]
    rivals = ({name for one in alike for name in one.sources}, {name for one in alike for name in one.targets})
    paths = tuple({path for one in side.parameters for path in (one.module, one.name)} for side in sides)
    here: dict[tuple[str, str], _Sides] = defaultdict(lambda: ([], []))
    for side, own in enumerate(free):
        for layer in own:
            place = places.around(layer.path, side)
            if any(place) or (places.whole and _is_among(layer, rivals[side])):
                here[place][side].append(layer)
    teacher = _Teacher(places, settled, groups, ordered=ordered)
    for place, layers in here.items():
        if all(layers):
            _settle(in_places, place, layers, teacher)
    kept = [(pair, sure) for pair, sure in in_places.pairs if not _have_changed(pair, (paths[0], paths[1]))]
    in_places = replace(in_places, pairs=kept)
    in_places.ambiguous.extend(_within_places(groups, in_places, here))
    return in_places


def _have_changed(pair: Pair, paths: tuple[set[str], set[str]]) -> bool:
    """Tell whether one of two layers stands on the other side too, at its own path."""
    a, b = (layer.path for layer in pair)
    return a != b and (a in paths[1] or b in paths[0])


def _settle(in_places: InPlaces, place: tuple[str, str], layers: _Sides, teacher: _Teacher) -> None:
    """Take in what is paired in one place."""
    stacked = match_stacked(*layers, place)
    in_places.pairings.extend(stacked.pairings)
    in_places.ambiguous.extend(stacked.ambiguous)
    left, right = _without(layers, stacked.names)
    free = _joined(list(map(plain_layer, left))), _joined(list(map(plain_layer, right)))
    only = _only_ones(*free, teacher.is_chance)
    free = _without(free, _names(only))
    weighed = teacher.weighed(place, free, [pair for pair, _ in only])
    free = _without(free, _names(weighed))
    weighed += [(pair, CONFIDENCE_OF_FORM) for pair in norms_by_words(*free)]
    free = _without(free, _names(weighed))
    in_places.pairs.extend([*only, *weighed, *_lone_parameters(*free, teacher.is_chance)])


def _is_among(layer: Layer, names: set[str]) -> bool:
    return any(one.name in names for one in layer.roles.values())


class _Teacher:
    """What is known around a place: settled pairs by the modules that hold their sources, and what may be chance."""

    def __init__(
        self, places: MatchedPlaces, settled: Sequence[Pair], groups: Sequence[Ambiguity], *, ordered: bool
    ) -> None:
        self._ordered = ordered
        self._places = places
        self._strangers = {name for one in groups if one.reason == UNRELATED for name in one.sources}
        self._known: dict[str, KnownPairs] = {}
        self._below: dict[str, list[Pair]] = defaultdict(list)
        for pair in settled:
            for module in modules_above(pair[0].path):
                self._below[module].append(pair)

    def weighed(self, place: tuple[str, str], layers: _Sides, more: Sequence[Pair]) -> list[tuple[Pair, float]]:
        """Pairs that words and numbers tell among what is left of a place; pairs around it, and `more`, teach.

        Not of layers that are all of a list, which may run the other way.
        """
        left, right = (
            [layer for layer in side if _name(layer) != f"{root}.{layer.path.rpartition('.')[2]}"]
            for side, root in zip(layers, place, strict=True)
        )
        if not left or not right or not any(place):
            return []
        module = place[0].rpartition(".")[0]
        if module not in self._known:
            self._known[module] = KnownPairs(self._below[module])
        matched = match_layers(left, right, self._known[module], ordered=self._ordered, more=more)
        return [(pair, min(sure, CONFIDENCE_OF_FORM)) for pair, sure in matched.pairs if not self.is_chance(pair)]

    def is_chance(self, pair: Pair) -> bool:
        """Tell whether nothing but a width speaks for the only two of a place: of unlike words, and in no block.

        Of two of which something else stands around the other the width says nothing anywhere.
        """
        a, b = pair
        if len({length for _, shape in a.signature for length in shape} - {1}) > 1:
            return False
        if any(one.name in self._strangers for one in a.roles.values()):
            return True
        unlike = unlike_beyond_kind((words(a.path), words(b.path)), (a.kind, b.kind))
        return unlike and not (self._places.is_repeated(a.path) or any(numbered(layer.path) for layer in pair))


def _names(pairs: Sequence[tuple[Pair, float]]) -> set[str]:
    return {one.name for pair, _ in pairs for layer in pair for one in layer.roles.values()}


def _without(layers: _Sides, names: set[str]) -> _Sides:
    left, right = (
        [one for one in side if names.isdisjoint([parameter.name for parameter in one.roles.values()])]
        for side in layers
    )
    return left, right


def _joined(layers: Sequence[Layer]) -> list[Layer]:
    """The layers, with a lone weight and a lone bias of one name in one module (`w_up`, `b_up`) as one layer."""
    named: dict[tuple[str, str], dict[str, Layer]] = defaultdict(dict)
    for layer in layers:
        if told := _role_and_name(layer):
            named[layer.path.rpartition(".")[0], told[1]][told[0]] = layer
    joined = {id(layer): layer for layer in layers}
    for (module, name), own in named.items():
        if own.keys() == {"weight", "bias"} and (one := _one_layer(own["weight"], own["bias"], f"{module}.{name}")):
            joined[id(own["weight"])] = one
            del joined[id(own["bias"])]
    return list(joined.values())


def _role_and_name(layer: Layer) -> tuple[str, str] | None:
    if layer.kind or len(layer.roles) != 1:
        return None
    told = _ROLE_AND_NAME.fullmatch(next(iter(layer.roles.values())).attribute)
    if told is None:
        return None
    role, name = (told[1], told[2]) if told[1] else (told[4], told[3])
    return USUAL_ROLES[role.lower()], name


def _one_layer(weight: Layer, bias: Layer, path: str) -> Layer | None:
    """Both as a layer, with the matrix as (out, in) where the bias, which is as long as the outputs, tells."""
    (matrix,), (other,) = weight.roles.values(), bias.roles.values()
    if len(other.shape) != 1 or len(matrix.shape) < 2 or other.shape[0] not in matrix.shape:
        return None
    turned = len(matrix.shape) == 2 and matrix.shape[0] != matrix.shape[1] and other.shape[0] == matrix.shape[1]
    square = len(matrix.shape) == 2 and matrix.shape[0] == matrix.shape[1]
    shapes = {"weight": matrix.shape[::-1] if turned else matrix.shape, "bias": other.shape}
    layer = replace(weight, path=path.removeprefix("."), roles={"weight": matrix, "bias": other})
    return replace(with_shapes(layer, shapes), inputs_first=None if square else turned)


def _only_ones(
    left: Sequence[Layer], right: Sequence[Layer], is_chance: Callable[[Pair], bool]
) -> list[tuple[Pair, float]]:
    """Layers of which each is the only one that the other could be, whichever way round their matrices stand."""
    pairs = []
    for a, b in _unique(left, right, _fit, is_chance):
        if may_pair(a, b):
            pairs.append(((a, b), CONFIDENCE_OF_FORM))
        elif (turned := transposed_layer(b)) and may_pair(a, turned):
            pairs.append(((a, turned), _confidence_of_turned(a)))
        elif (turned := transposed_layer(a)) and may_pair(turned, b):
            pairs.append(((turned, b), _confidence_of_turned(b)))
    return pairs


def _lone_parameters(
    left: Sequence[Layer], right: Sequence[Layer], is_chance: Callable[[Pair], bool]
) -> list[tuple[Pair, float]]:
    """Parameters of which each is the only one that the other could be, whatever else their layers hold."""
    one, two = ([part for layer in side for part in _parts(layer)] for side in (left, right))
    return [(pair, CONFIDENCE_OF_FORM) for pair in _unique(one, two, _fit_alone, is_chance)]


def _unique(
    left: Sequence[Layer],
    right: Sequence[Layer],
    fit: Callable[[Layer, Layer], bool],
    is_chance: Callable[[Pair], bool],
) -> Iterator[Pair]:
    """Yield each two that fit each other and nothing else, unless something speaks against them."""
    by_signature: dict[object, _Sides] = defaultdict(lambda: ([], []))
    for side, layers in enumerate((left, right)):
        for layer in layers:
            by_signature[tuple((role, *sorted(shape)) for role, shape in layer.signature)][side].append(layer)
    named = [{_name(layer) for layer in side} for side in (left, right)]
    for mine, theirs in by_signature.values():
        for a in mine:
            b = _only(partial(fit, a), theirs)
            if b is None or _only(partial(fit, b), mine) is not a:  # what fits, fits either way
                continue
            signs = {piece_sign(a.path), piece_sign(b.path)} - {""}
            changed = _name(a) != _name(b) and (_name(a) in named[1] or _name(b) in named[0])
            if len(signs) < 2 and not changed and not is_chance((a, b)):
                yield a, b


def _only(fit: Callable[[Layer], bool], layers: Sequence[Layer]) -> Layer | None:
    """The one layer that fits, None if several do."""
    found = list(islice(filter(fit, layers), 2))
    return found[0] if len(found) == 1 else None


def _name(layer: Layer) -> str:
    """The own name of a layer, its whole path if that is a number."""
    name = layer.path.rpartition(".")[2]
    return layer.path if name.isdigit() else name


def _fit(a: Layer, b: Layer) -> bool:
    """Tell whether two layers may be one, whichever way round their matrices stand."""
    turned = ((transposed_layer(a), b), (transposed_layer(b), a))
    return may_pair(a, b) or any(one and may_pair(one, two) for one, two in turned)


def _confidence_of_turned(other: Layer) -> float:
    """How sure a matrix is that stands as (in, out), no square: its counterpart's class tells, or nothing does."""
    return CONFIDENCE_OF_FORM if other.kind == "linear" else CONFIDENCE_OF_TURNED


def _parts(layer: Layer) -> list[Layer]:
    """The parameters of a layer as layers of one role; their shapes lack axes of length 1."""
    return [
        with_shapes(
            replace(layer, roles={_ALONE: one}), {_ALONE: tuple(length for length in layer.shapes[role] if length != 1)}
        )
        for role, one in layer.roles.items()
    ]


def _fit_alone(a: Layer, b: Layer) -> bool:
    """Tell whether two parameters may be one: no square of which only one class says which way round it stands."""
    roles, shape = [USUAL_ROLES.get(layer.roles[_ALONE].attribute, "") for layer in (a, b)], a.shapes[_ALONE]
    square = len(shape) == 2 and shape[0] == shape[1] and bool(a.kind) != bool(b.kind)
    told = a.roles[_ALONE].shape == b.roles[_ALONE].shape or bool(shape)  # a scalar is no tensor of one element
    return told and may_pair(a, b) and (not all(roles) or roles[0] == roles[1]) and not square


def _within_places(
    groups: Sequence[Ambiguity], in_places: InPlaces, here: dict[tuple[str, str], _Sides]
) -> Iterator[Ambiguity]:
    """Yield the groups without what is paired now, each place by itself."""
    taken = _names(in_places.pairs) | {name for item in in_places.pairings for name in (item.source, item.target)}
    taken |= {name for group in in_places.ambiguous for name in (*group.sources, *group.targets)}
    place_of = {
        item.name: place
        for place, sides in here.items()
        for side in sides
        for layer in side
        for item in layer.roles.values()
    }
    for group in groups:
        apart: dict[tuple[str, str] | None, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for side, names in enumerate((group.sources, group.targets)):
            for name in names:
                if name not in taken:
                    apart[place_of.get(name)][side].append(name)
        yield from (Ambiguity(tuple(x), tuple(y), group.reason) for x, y in apart.values() if x and y)


# Modules of both sides that are one place, whatever they are called: nothing else holds as many elements.
#
# How many elements a module holds is what other names, nesting, fused and stacked tensors leave as it is. From the
# outside in, a module is that of the other side if no other there has its number; of two lists that hold the same
# numbers in their order the children are, one by one. A pair of layers of which one stands outside contradicts a
# place.

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
        nodes: dict[tuple[int, ...], list[_Node]] = defaultdict(list)
        lists: dict[str, dict[int, str]] = defaultdict(dict)
        for path in tree.below(root):
            above = path.rpartition(".")[0]
            if tree.elements[path] and (above == root or tree.elements[above] != tree.elements[path]):
                nodes[(tree.elements[path],)].append((path,))
            places = numbered(path)
            if places and places[-1][2] == path and tree.elements[path]:
                lists[places[-1][0]][int(places[-1][1])] = path
        for children in lists.values():
            node = tuple(children[number] for number in sorted(children))
            if len(node) > 1:
                nodes[tuple(tree.elements[path] for path in node)].append(node)
        return nodes

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
