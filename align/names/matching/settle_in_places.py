"""What is open, paired within the places of both models that are one: blocks as blocks, whatever they are called.

The widths of a model are few, so that a matrix has rivals all over it, and none within its place. There a layer is
paired that nothing else of its place could be, in any form: a matrix as (in, out), a vector with axes of length 1, a
weight and a bias that a module keeps side by side under names of its own. What has rivals in its place is weighed as
everywhere, among these alone; and what stays open is open within its place.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from align.core.name_map import Ambiguity
from align.names.layers.path_words import modules_above, numbered, unlike_beyond_kind, words
from align.names.layers.read_layers import USUAL_ROLES, may_pair, with_shapes
from align.names.matching.fused_layers import piece_sign
from align.names.matching.match_layers import UNRELATED, match_layers
from align.names.matching.matched_places import MatchedPlaces
from align.names.matching.norms_beside import norms_by_words
from align.names.matching.other_forms import plain_layer, transposed_layer
from align.names.matching.repeated_blocks import KnownPairs
from align.names.matching.stacked_layers import match_stacked
from align.names.thresholds import CONFIDENCE_OF_FORM, CONFIDENCE_OF_TURNED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.core.name_map import Pairing
    from align.core.parameters import ParameterSet
    from align.names.layers.read_layers import Layer, Pair

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
    found = InPlaces()
    if not all(free):
        return found
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
            _settle(found, place, layers, teacher)
    kept = [(pair, sure) for pair, sure in found.pairs if not _have_changed(pair, (paths[0], paths[1]))]
    found = replace(found, pairs=kept)
    found.ambiguous.extend(_within_places(groups, found, here))
    return found


def _have_changed(pair: Pair, paths: tuple[set[str], set[str]]) -> bool:
    """Tell whether one of two layers stands on the other side too, at its own path."""
    a, b = (layer.path for layer in pair)
    return a != b and (a in paths[1] or b in paths[0])


def _settle(found: InPlaces, place: tuple[str, str], layers: _Sides, teacher: _Teacher) -> None:
    """Take in what is paired in one place."""
    stacked = match_stacked(*layers, place)
    found.pairings.extend(stacked.pairings)
    found.ambiguous.extend(stacked.ambiguous)
    left, right = _without(layers, stacked.names)
    free = _joined(list(map(plain_layer, left))), _joined(list(map(plain_layer, right)))
    only = _only_ones(*free, teacher.is_chance)
    free = _without(free, _names(only))
    weighed = teacher.weighed(place, free, [pair for pair, _ in only])
    free = _without(free, _names(weighed))
    weighed += [(pair, CONFIDENCE_OF_FORM) for pair in norms_by_words(*free)]
    free = _without(free, _names(weighed))
    found.pairs.extend([*only, *weighed, *_lone_parameters(*free, teacher.is_chance)])


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
    found = {id(layer): layer for layer in layers}
    for (module, name), own in named.items():
        if own.keys() == {"weight", "bias"} and (one := _one_layer(own["weight"], own["bias"], f"{module}.{name}")):
            found[id(own["weight"])] = one
            del found[id(own["bias"])]
    return list(found.values())


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
    (one,), (other,) = weight.roles.values(), bias.roles.values()
    if len(other.shape) != 1 or len(one.shape) < 2 or other.shape[0] not in one.shape:
        return None
    turned = len(one.shape) == 2 and one.shape[0] != one.shape[1] and other.shape[0] == one.shape[1]
    square = len(one.shape) == 2 and one.shape[0] == one.shape[1]
    shapes = {"weight": one.shape[::-1] if turned else one.shape, "bias": other.shape}
    layer = replace(weight, path=path.removeprefix("."), roles={"weight": one, "bias": other})
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
    alike: dict[object, _Sides] = defaultdict(lambda: ([], []))
    for side, layers in enumerate((left, right)):
        for layer in layers:
            alike[tuple((role, *sorted(shape)) for role, shape in layer.signature)][side].append(layer)
    named = [{_name(layer) for layer in side} for side in (left, right)]
    for mine, theirs in alike.values():
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
    groups: Sequence[Ambiguity], found: InPlaces, here: dict[tuple[str, str], _Sides]
) -> Iterator[Ambiguity]:
    """Yield the groups without what is paired now, each place by itself."""
    taken = _names(found.pairs) | {name for one in found.pairings for name in (one.source, one.target)}
    taken |= {name for group in found.ambiguous for name in (*group.sources, *group.targets)}
    place_of = {
        one.name: place
        for place, sides in here.items()
        for side in sides
        for layer in side
        for one in layer.roles.values()
    }
    for group in groups:
        apart: dict[tuple[str, str] | None, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for side, names in enumerate((group.sources, group.targets)):
            for name in names:
                if name not in taken:
                    apart[place_of.get(name)][side].append(name)
        yield from (Ambiguity(tuple(x), tuple(y), group.reason) for x, y in apart.values() if x and y)
