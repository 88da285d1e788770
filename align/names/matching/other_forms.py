"""Layers that the ordinary stages leave over: those that one side only numbers, and those of another form.

`q, k, v` against `dense1, dense2, dense3` share shapes, and no words: conventions of writing pair them, in one place of
both models. A convolution of one position, or of all positions, against a linear layer, axes of length 1 that one side
has, the packed matrix of an attention layer, a hand-written layer that holds (in, out): such layers are written in one
form and matched as always. But a form is a guess, so what stands around both must be paired to each other, or their
names must be alike.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from align.core.name_map import Pairing
from align.names.layers.path_words import likeness, numbered, words
from align.names.layers.read_layers import may_pair, remaining, transform_between, with_shapes
from align.names.matching.fused_layers import ATTENTION, match_fused, named_groups, reserve_fused
from align.names.matching.match_layers import PairedModules, match_layers
from align.names.thresholds import (
    CONFIDENCE_OF_FLATTENED,
    CONFIDENCE_OF_FORM,
    CONFIDENCE_OF_NUMBERED_PIECES,
    CONFIDENCE_OF_TURNED,
    LIKENESS_OF_FORMS,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.core.name_map import Ambiguity
    from align.core.parameters import Shape
    from align.names.layers.read_layers import Layer, Pair
    from align.names.matching.fused_layers import Group

    _Form = Callable[[Layer], Layer | None]
    _Members = dict[int, Layer]

_PACKED = {"in_proj_weight": "weight", "in_proj_bias": "bias"}
_FLAT_NOTE = sentence("pair_note.flattened")


@dataclass(frozen=True, slots=True)
class OtherForms:
    """Pairs of layers of another form with their confidence, pairings of fused layers, and what stays open."""

    pairs: list[tuple[Pair, float]] = field(default_factory=list)
    pairings: list[Pairing] = field(default_factory=list)
    ambiguous: list[Ambiguity] = field(default_factory=list)


def match_other_forms(left: list[Layer], right: list[Layer], known: Sequence[Pair], ordered: bool) -> OtherForms:
    """Pair what is left of both sides; `known` are the pairs of layers so far, which teach."""
    found, places = OtherForms(), PairedModules(known)
    left, right = [plain_layer(layer) for layer in left], [plain_layer(layer) for layer in right]
    whole = [remaining(side, names) for side, names in zip((left, right), reserve_fused(left, right), strict=True)]
    forms: tuple[tuple[_Form, _Form], ...] = ((_same, _same), (_same, transposed_layer), (transposed_layer, _same))
    for before, after in forms:
        one, two = _in_form(whole[0], before, found), _in_form(whole[1], after, found)
        matched = match_layers(one, two, [*known, *(pair for pair, _ in found.pairs)], ordered)
        most = CONFIDENCE_OF_FORM if before is after else CONFIDENCE_OF_TURNED
        found.pairs.extend((pair, min(sure, most)) for pair, sure in matched.pairs if _in_place(pair, places))
        if before is after:
            found.ambiguous.extend(matched.ambiguous)
    fused = match_fused(_in_form(left, _same, found), _in_form(right, _same, found), places)
    found.pairings.extend(fused.pairings)
    found.ambiguous.extend(fused.ambiguous)
    for before, after in ((_flattened, _dense), (_dense, _flattened)):
        matched = match_layers(_in_form(left, before, found), _in_form(right, after, found), known, ordered)
        found.pairings.extend(
            one for pair, sure in matched.pairs if _in_place(pair, places) for one in _pairings(pair, sure)
        )
    return found


def plain_layer(layer: Layer) -> Layer:
    """The layer as one of the simplest kind that holds the same values: no axes of length 1, no packed roles."""
    if "in_proj_weight" in layer.roles and layer.roles.keys() <= _PACKED.keys():
        roles = {_PACKED[role]: parameter for role, parameter in layer.roles.items()}
        shapes = {_PACKED[role]: shape for role, shape in layer.shapes.items()}
        return with_shapes(replace(layer, kind="linear", roles=roles), shapes)
    weight = layer.shapes.get("weight", ())
    if layer.kind == "conv" and len(weight) > 2 and set(weight[2:]) == {1}:
        return with_shapes(replace(layer, kind="linear"), layer.shapes | {"weight": weight[:2]})
    if layer.kind == "conv" and weight[2:3] == (1,):  # over one axis, written as over two
        return with_shapes(layer, layer.shapes | {"weight": (*weight[:2], *weight[3:])})
    if layer.kind:
        return layer
    return with_shapes(layer, {role: _squeezed(shape) for role, shape in layer.shapes.items()})


def transposed_layer(layer: Layer) -> Layer | None:
    """A layer of unknown class as if its matrix stood as (in, out); None if it has no matrix, or its class is known."""
    weight = layer.shapes.get("weight", ())
    if layer.inputs_first is not None or len(weight) != 2:
        return None
    return replace(with_shapes(layer, layer.shapes | {"weight": weight[::-1]}), inputs_first=True)


def _flattened(layer: Layer) -> Layer | None:
    """A convolution of several channels and positions, as a linear layer behind a flattening.

    Of one channel it is as likely one of each channel alone.
    """
    weight = layer.shapes.get("weight", ())
    if layer.kind != "conv" or len(weight) < 3 or weight[1] == 1:
        return None
    return with_shapes(replace(layer, kind="linear"), layer.shapes | {"weight": (weight[0], prod(weight[1:]))})


def _dense(layer: Layer) -> Layer | None:
    """A layer that is linear by its class, and no convolution of one position."""
    is_dense = layer.kind == "linear" and "weight" in layer.roles and len(layer.roles["weight"].shape) == 2
    return layer if is_dense else None


def _pairings(pair: Pair, sure: float) -> Iterator[Pairing]:
    a, b = pair
    for role, mine in a.roles.items():
        change = transform_between(a, b, role)
        note = _FLAT_NOTE if a.shapes[role] == a.shapes.get("weight") else ""
        yield Pairing(mine.name, b.roles[role].name, "structure", min(sure, CONFIDENCE_OF_FLATTENED), change, note)


def _same(layer: Layer) -> Layer | None:
    return layer


def _squeezed(shape: Shape) -> Shape:
    return tuple(length for length in shape if length != 1) or shape[:1]


def _in_form(layers: Sequence[Layer], form: Callable[[Layer], Layer | None], found: OtherForms) -> list[Layer]:
    """The layers that are free yet, in a form, as far as they have it."""
    taken = {id(p) for pair, _ in found.pairs for layer in pair for p in layer.roles.values()}
    named = {name for group in found.ambiguous for name in (*group.sources, *group.targets)}
    named |= {name for pairing in found.pairings for name in (pairing.source, pairing.target)}
    free = [layer for layer in layers if all(id(p) not in taken and p.name not in named for p in layer.roles.values())]
    return [formed for layer in free if (formed := form(layer))]


def _in_place(pair: Pair, places: PairedModules) -> bool:
    """Tell whether something beside its shape speaks for a pair of another form."""
    a, b = pair
    return places.together(a, b) or likeness(words(a.path), words(b.path)) >= LIKENESS_OF_FORMS


@dataclass(frozen=True, slots=True)
class _Convention:
    """The signs of the named layers in the order that they are written in, and the numbered ones in that order."""

    signs: tuple[str, ...]
    chosen: Callable[[str, _Members], Group]


def match_numbered_projections(
    left: Sequence[Layer], right: Sequence[Layer], known: Sequence[Pair]
) -> list[tuple[Pair, float]]:
    """Pair free layers that one side names and the other numbers; the pairs that are `known` tell the places."""
    places = PairedModules(known)
    pairs: list[Pair] = []
    for convention in _CONVENTIONS:
        for named, listed in _triples(convention, (left, right), places, 0):
            pairs += zip(named, listed, strict=True)
        for named, listed in _triples(convention, (right, left), places, 1):
            pairs += zip(listed, named, strict=True)
    return [(pair, CONFIDENCE_OF_NUMBERED_PIECES) for pair in pairs]


def _triples(
    convention: _Convention, layers: tuple[Sequence[Layer], Sequence[Layer]], places: PairedModules, side: int
) -> Iterator[tuple[Group, Group]]:
    """Yield each named group with the numbered one that alone stands in its place; `side` is that of the named."""
    written = [group for group in named_groups(layers[0], convention.signs) if _in_order(group)]
    groups, lists = _by_place(written, places, side), _by_place(list(_listed(layers[1], convention)), places, 1 - side)
    for here in groups.values():
        others = [group for place in places.facing(here[0][0], side) for group in lists.get(place, ())]
        if len(here) == len(others) == 1 and all(may_pair(x, y) for x, y in zip(here[0], others[0], strict=True)):
            yield here[0], others[0]


def _by_place(groups: Sequence[Group], places: PairedModules, side: int) -> dict[str | None, list[Group]]:
    found: dict[str | None, list[Group]] = defaultdict(list)
    for group in groups:
        found[places.module(group[0], side)].append(group)
    return found


def _in_order(group: Group) -> bool:
    positions = [layer.position for layer in group]
    return positions == sorted(positions)


def _listed(layers: Sequence[Layer], convention: _Convention) -> Iterator[Group]:
    """Yield the layers that a convention chooses from each list of numbered matrices."""
    lists: dict[str, _Members] = defaultdict(dict)
    for layer in layers:
        found = numbered(layer.path)
        if len(layer.shapes.get("weight", ())) == 2 and found and found[-1][2] == layer.path:
            lists[found[-1][0]][int(found[-1][1])] = layer
    for stem, members in lists.items():
        if chosen := convention.chosen(stem.rpartition(".")[2], members):
            yield chosen


def _attending(_: str, members: _Members) -> Group:
    """The first three of three, or of four, of which the last is the projection of what they give."""
    numbers = sorted(members)
    if len(numbers) not in (3, 4) or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return ()
    return tuple(members[number] for number in numbers[:3])


def _gated(stem: str, members: _Members) -> Group:
    """`w1` and `w3`, whether or not `w2` is paired already."""
    return (members[1], members[3]) if stem == "w" and members.keys() | {2} == {1, 2, 3} else ()


_CONVENTIONS = (_Convention(ATTENTION, _attending), _Convention(("g", "u"), _gated))
