"""One tensor for all layers of a list, counted by its first axis: the experts of a mixture as one, or each by itself.

The matrices of one expert must be all that the stacks hold, each stack one of them or several side by side, all of
them the same way round. Where that leaves a choice, names decide, or nothing does. Which expert is which its number
tells; in which order several stand side by side is told as for other fused layers, and no surer.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate, combinations, islice, pairwise
from math import prod
from typing import TYPE_CHECKING

from align.core.name_map import Ambiguity, Pairing
from align.core.piece_transforms import Slice
from align.core.transforms import IDENTITY, Permute, Reshape, chained
from align.names.layers.path_words import likeness, numbered, words
from align.names.layers.read_layers import is_turned
from align.names.matching.fused_layers import piece_order, piece_sign
from align.names.thresholds import BENEFIT_OF_MAJORITY, CONFIDENCE_OF_FORM
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.parameters import Parameter, Shape
    from align.core.piece_transforms import Span
    from align.core.transforms import Transform
    from align.names.layers.read_layers import Layer

_UNORDERED = sentence("open_reason.pieces_unordered")
_RIVALS = sentence("open_reason.several_pieces")
Members = dict[str, list["Layer"]]  # the layers of a list by their names within a child, in the order of the children


@dataclass(frozen=True, slots=True)
class StackedMatch:
    """Pairings of pieces of stacks, what stays open, and the layers that need no other partner."""

    pairings: list[Pairing] = field(default_factory=list)
    ambiguous: list[Ambiguity] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        """All names that are paired or open."""
        paired = {name for one in self.pairings for name in (one.source, one.target)}
        return paired | {name for group in self.ambiguous for name in (*group.sources, *group.targets)}


def match_stacked(left: Sequence[Layer], right: Sequence[Layer], place: tuple[str, str]) -> StackedMatch:
    """Pair stacks of either side with the layers of a list on the other; all stand in one `place`."""
    found = StackedMatch()
    for stacks, layers, root, cut in ((left, right, place[1], True), (right, left, place[0], False)):
        lone = [layer for layer in stacks if not layer.kind and len(layer.roles) == 1]
        for members in _lists(layers, root):
            count = len(next(iter(members.values())))
            own = [layer for layer in lone if _may_stack(_tensor(layer).shape, count)]
            if own and sum(map(_size, own)) == sum(_size(one) for same in members.values() for one in same):
                _pair_list(found, own, members, cut=cut)
    return found


def _lists(layers: Sequence[Layer], root: str) -> Iterator[Members]:
    """Yield the outermost lists below a module of which all children hold the same linear layers."""
    lists: dict[str, dict[int, dict[str, Layer]]] = defaultdict(lambda: defaultdict(dict))
    for layer in layers:
        below = (one for one in numbered(layer.path) if len(one[2]) > len(root))
        for container, number, child in islice(below, 1):
            lists[container][int(number)][layer.path[len(child) :]] = layer
    for children in lists.values():
        ordered = [children[number] for number in sorted(children)]
        alike = {frozenset((name, one.signature) for name, one in child.items()) for child in ordered}
        if len(ordered) > 1 and len(alike) == 1 and all(map(_is_linear, ordered[0].values())):
            yield {name: [child[name] for child in ordered] for name in ordered[0]}


def _is_linear(layer: Layer) -> bool:
    weight = layer.shapes.get("weight", ())
    return layer.kind in ("", "linear") and len(weight) == 2 and layer.roles.keys() <= {"weight", "bias"}


def _may_stack(shape: Shape, count: int) -> bool:
    return len(shape) in (2, 3) and shape[0] == count


def _tensor(layer: Layer) -> Parameter:
    return next(iter(layer.roles.values()))


def _size(layer: Layer) -> int:
    return sum(prod(parameter.shape) for parameter in layer.roles.values())


@dataclass(frozen=True, slots=True)
class _Filling:
    """Which layers of a child each stack holds, by their names; `turned` says that outputs are the last axis."""

    groups: tuple[tuple[str, ...], ...]
    turned: bool


def _pair_list(found: StackedMatch, stacks: Sequence[Layer], members: Members, *, cut: bool) -> None:
    weights = [stack for stack in stacks if len(_tensor(stack).shape) == 3]
    biases = [stack for stack in stacks if len(_tensor(stack).shape) == 2]
    shapes = {name: same[0].shapes["weight"] for name, same in members.items()}
    fillings = [one for turned in (False, True) for one in _fillings(weights, shapes, turned=turned)]
    filling = _told_by_names(fillings, weights)
    names = [parameter.name for same in members.values() for one in same for parameter in one.roles.values()]
    if filling is None:
        if fillings:
            found.ambiguous.append(_open([_tensor(stack).name for stack in stacks], names, _RIVALS, cut=cut))
        return
    for stack, group in zip(weights, filling.groups, strict=True):
        _pair_stack(found, (stack, "weight"), [members[name] for name in group], cut=cut, turned=filling.turned)
    for stack, group in _with_biases(biases, members, filling, weights):
        _pair_stack(found, (stack, "bias"), [members[name] for name in group], cut=cut, turned=False)


def _fillings(
    stacks: Sequence[Layer], shapes: Mapping[str, Shape], *, turned: bool, taken: tuple[str, ...] = ()
) -> Iterator[_Filling]:
    """Yield each way in which the stacks hold all the matrices of these shapes, (out, in)."""
    if not stacks:
        if len(taken) == len(shapes):
            yield _Filling((), turned)
        return
    outputs, inputs = _tensor(stacks[0]).shape[:0:-1] if turned else _tensor(stacks[0]).shape[1:]
    fitting = [name for name, shape in shapes.items() if name not in taken and shape[1] == inputs]
    for count in range(1, len(fitting) + 1):
        for group in combinations(fitting, count):
            if sum(shapes[name][0] for name in group) == outputs:
                for rest in _fillings(stacks[1:], shapes, turned=turned, taken=(*taken, *group)):
                    yield _Filling((group, *rest.groups), turned)


def _told_by_names(fillings: Sequence[_Filling], stacks: Sequence[Layer]) -> _Filling | None:
    """The only filling, or that of which the names of stacks and layers are more alike than of all others."""
    if len(fillings) < 2:
        return next(iter(fillings), None)

    def alike(filling: _Filling) -> float:
        both = zip(stacks, filling.groups, strict=True)
        return sum(_likeness(stack.path, name) for stack, group in both for name in group)

    best, second, *_ = sorted(fillings, key=alike, reverse=True)
    return best if alike(best) - alike(second) > BENEFIT_OF_MAJORITY else None


def _likeness(stack: str, name: str) -> float:
    own = stack.rpartition(".")[2]
    if piece_sign(own) and piece_sign(own) == piece_sign(name):
        return 1.0
    return likeness(words(own), words(name))


def _with_biases(
    stacks: Sequence[Layer], members: Members, filling: _Filling, weights: Sequence[Layer]
) -> Iterator[tuple[Layer, tuple[str, ...]]]:
    """Yield the stacks of biases with the layers whose weights a stack holds: the one that is as wide, or called so."""
    for stack in stacks:
        fitting = [
            (weight, group)
            for weight, group in zip(weights, filling.groups, strict=True)
            if sum(members[name][0].shapes.get("bias", (0,))[0] for name in group) == _tensor(stack).shape[1]
        ]
        called = sorted(
            ((_likeness(stack.path, one[0].path.rpartition(".")[2]), one[1]) for one in fitting), reverse=True
        )
        if len(called) == 1 or (called and called[0][0] > called[1][0]):
            yield stack, called[0][1]


def _pair_stack(
    found: StackedMatch, stack: tuple[Layer, str], group: Sequence[Sequence[Layer]], *, cut: bool, turned: bool
) -> None:
    """Pair one stack with the layers that it holds of all children: `group` holds those of one name each."""
    layer, role = stack
    whole, order, sure, note = _tensor(layer), tuple(range(len(group))), CONFIDENCE_OF_FORM, ""
    if len(group) > 1:
        told = piece_order(layer.path, [same[0].path for same in group], packed=False)
        if told is None:
            names = [one.roles[role].name for same in group for one in same]
            found.ambiguous.append(_open([whole.name], names, _UNORDERED, cut=cut))
            return
        order, sure, note = told.indices, told.confidence, told.note
    spans = list(pairwise(accumulate((group[place][0].shapes[role][0] for place in order), initial=0)))
    for number in range(whole.shape[0]):
        for place, span in zip(order, spans, strict=True):
            member = group[place][number]
            one = member.roles[role]
            rows = (2 if turned else 1, span)
            across = turned != is_turned(member, role)
            change = _piece((whole.shape, number), rows, one.shape, turned=across, cut=cut)
            source, target = (whole, one) if cut else (one, whole)
            found.pairings.append(Pairing(source.name, target.name, "structure", sure, change, note))


def _piece(stack: tuple[Shape, int], rows: tuple[int, Span], wanted: Shape, *, turned: bool, cut: bool) -> Transform:
    """Cut one layer's tensor out of a stack, or put it there; `rows` are its outputs, and along which axis they are."""
    (shape, number), (axis, span), single = stack, rows, (1, *stack[0][1:])
    inner = IDENTITY if span == (0, shape[axis]) else Slice(axis, *span, single)
    piece = inner.output_shape(single)
    flat = piece[1:]
    last = flat[::-1] if turned else flat
    change = chained(
        Slice(0, number, number + 1, shape),
        inner,
        Reshape(flat, piece),
        Permute((1, 0)) if turned else IDENTITY,
        IDENTITY if last == wanted else Reshape(wanted, last),
    )
    return change if cut else change.inverse(shape, None)


def _open(stacks: Sequence[str], names: Sequence[str], reason: str, *, cut: bool) -> Ambiguity:
    return Ambiguity(*((tuple(stacks), tuple(names)) if cut else (tuple(names), tuple(stacks))), reason)
