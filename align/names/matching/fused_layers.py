"""One layer against several whose outputs it computes at once: q, k and v in one matrix, a gate beside its values.

The layers must stand in one place of both models, fill each other exactly, and have no rival there. Shapes do not tell
the order of the pieces: words do (q, k, v), and numbers only where q, k and v are meant. No shape tells either whether
the pieces follow each other or are interleaved by heads, so that such pairs are never sure before a trial. Where not
all have a bias, all must be named, and the rows of those without one are zeros in the fused bias.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, combinations, islice, pairwise
from math import prod
from typing import TYPE_CHECKING

from align.core.align_sequences import grouped
from align.core.name_map import Ambiguity, Pairing
from align.core.piece_transforms import Part, Slice, tiling_fault, zero_cuts, zero_parts
from align.core.transforms import IDENTITY, Permute, Reshape, chained, turned_and_reshaped
from align.names.read_layers import is_number, is_turned, likeness, numbered, tokens, words
from align.names.thresholds import (
    BENEFIT_OF_MAJORITY,
    CONFIDENCE_OF_BIAS_BESIDE,
    CONFIDENCE_OF_FORM,
    CONFIDENCE_OF_NAMED_PIECES,
    CONFIDENCE_OF_NUMBERED_PIECES,
    CONFIDENCE_OF_PACKED,
)
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.parameters import Parameter, Shape
    from align.core.piece_transforms import Span, Spans
    from align.core.transforms import Transform
    from align.names.matching.match_layers import PairedModules
    from align.names.read_layers import Layer, Signature


_UNORDERED = sentence("open_reason.pieces_unordered")
_RIVALS = sentence("open_reason.several_pieces")
# Words for the pieces, by the sign that stands for each.
_SIGNS = {
    "q": "q", "query": "q", "queries": "q",
    "k": "k", "key": "k", "keys": "k",
    "v": "v", "val": "v", "value": "v", "values": "v",
    "gate": "g", "up": "u",
}  # fmt: skip
ATTENTION = ("q", "k", "v")
_FUSED = re.compile(r"w?(qkv|qvk|kqv|kvq|vqk|vkq|qk|kv|vk|kq)")
_ATTENDING = frozenset({"qkv", "wqkv", "attn", "attention"})
_GROUPS = (("q", "k", "v"), ("k", "v"))
Group = tuple["Layer", ...]
Form = tuple["Signature", bool]


@dataclass(frozen=True, slots=True)
class FusedMatch:
    """Pairings of pieces, and what stays open."""

    pairings: list[Pairing]
    ambiguous: list[Ambiguity]


@dataclass(frozen=True, slots=True)
class _Fusion:
    """A fused layer, and layers of the other side that fill it; `cut` says that the source is the fused one."""

    whole: Layer
    pieces: tuple[Layer, ...]
    cut: bool


def match_fused(left: Sequence[Layer], right: Sequence[Layer], places: PairedModules) -> FusedMatch:
    """Pair fused layers of either side with their pieces on the other."""
    match = FusedMatch([], [])
    fusions = _called_after([*_fusions(left, right, places, cut=True), *_fusions(right, left, places, cut=False)])
    wanted = Counter(id(layer) for fusion in fusions for layer in (fusion.whole, *fusion.pieces))
    for fusion in fusions:
        contested = any(wanted[id(layer)] > 1 for layer in (fusion.whole, *fusion.pieces))
        packed = fusion.whole.roles["weight"].attribute == "in_proj_weight"
        order = piece_order(fusion.whole.path, [piece.path for piece in fusion.pieces], packed=packed)
        if contested:
            match.ambiguous.extend(_open_fusion(fusion, _RIVALS))
        elif order is None:
            match.ambiguous.extend(_open_fusion(fusion, _UNORDERED))
        else:
            match.pairings.extend(_pairings(fusion, order))
            match.pairings.extend(_own_biases(fusion, left if fusion.cut else right))
    return FusedMatch(match.pairings, _merged(match.ambiguous))


def _called_after(fusions: Sequence[_Fusion]) -> list[_Fusion]:
    """The fusions without those of which another has the same pieces and a name that spells them."""
    spelled = {tuple(map(id, one.pieces)) for one in fusions if _is_called_after(one.whole, one.pieces)}
    return [
        one for one in fusions if tuple(map(id, one.pieces)) not in spelled or _is_called_after(one.whole, one.pieces)
    ]


def _fusions(
    wholes: Sequence[Layer], others: Sequence[Layer], places: PairedModules, *, cut: bool
) -> Iterator[_Fusion]:
    """Yield each layer with each group of the other side's that fills it in its place."""
    side = int(not cut)
    groups: dict[object, list[Layer]] = defaultdict(list)
    for layer in filter(_is_linear, others):
        groups[(_parent(layer.path), *_form(layer))].append(layer)
    fillings: dict[object, dict[str | None, list[tuple[Layer, ...]]]] = defaultdict(lambda: defaultdict(list))
    for pieces in groups.values():
        for filling in _fillings_of_module(pieces):
            outputs = sum(piece.shapes["weight"][0] for piece in filling)
            place = places.module(filling[0], 1 - side)
            fillings[(outputs, *_form(filling[0]))][place].append(filling)
    for whole in filter(_is_linear, wholes):
        fitting = fillings.get((whole.shapes["weight"][0], *_form(whole)), {})
        facing = places.facing(whole, side) if fitting else frozenset()
        found = [one for module in sorted(facing) for one in fitting.get(module, ())]
        if places.module(whole, side) is None:  # nothing is paired in any place: a name that spells them remains
            found = [one for one in fitting.get(None, ()) if _is_called_after(whole, one)]
        yield from (_Fusion(whole, one, cut) for one in found if _alike(whole, one))


def _form(layer: Layer) -> tuple[object, ...]:
    """What a fused layer and its pieces have in common."""
    return layer.shapes["weight"][1:], layer.aside


def _alike(whole: Layer, pieces: Sequence[Layer]) -> bool:
    """Tell whether all have a bias or none has, or all pieces are named."""
    same = all(piece.shapes.keys() == whole.shapes.keys() for piece in pieces)
    return same or all(piece_sign(piece.path) for piece in pieces)


def _is_linear(layer: Layer) -> bool:
    weight = layer.shapes.get("weight", ())
    biased = layer.shapes.get("bias") in (None, weight[:1])
    return layer.kind in ("", "linear") and len(weight) == 2 and layer.shapes.keys() <= {"weight", "bias"} and biased


def _fillings_of_module(pieces: Sequence[Layer]) -> Iterator[tuple[Layer, ...]]:
    """Yield all layers of a module, all with or without a bias, and those that names tell.

    Which of others are meant, nobody knows.
    """
    alike = ([piece for piece in pieces if ("bias" in piece.shapes) == biased] for biased in (True, False))
    named = [piece for piece in pieces if piece_sign(piece.path)]
    fillings = (tuple(one) for one in (pieces, *alike, named) if len(one) > 1)
    yield from {tuple(map(id, one)): one for one in fillings}.values()


def _pairings(fusion: _Fusion, order: PieceOrder) -> Iterator[Pairing]:
    ordered = [fusion.pieces[index] for index in order.indices]
    shared = [role for role in fusion.whole.roles if any(role in piece.roles for piece in ordered)]
    lacking = [piece.path.rpartition(".")[2] for piece in ordered if "bias" not in piece.roles]
    without = joined("; ", [order.note, sentence("pair_note.rows_of_zeros", pieces=lacking)])
    for source, target, transform in in_pieces(fusion.whole, ordered, shared, cut=fusion.cut):
        note = without if zero_parts(transform) or zero_cuts(transform) else order.note
        yield Pairing(source, target, "structure", order.confidence, transform, note)


def in_pieces(
    whole: Layer, pieces: Sequence[Layer], roles: Iterable[str], *, cut: bool
) -> Iterator[tuple[str, str, Transform]]:
    """Source, target and transform for each piece of a fused layer, in their order; `cut` says the source is fused.

    The rows of pieces that lack a role are zeros; the first piece that has it says so.
    """
    ends = accumulate((piece.shapes["weight"][0] for piece in pieces), initial=0)
    spans = list(pairwise(ends))
    for role in roles:
        zeros = tuple(span for piece, span in zip(pieces, spans, strict=True) if role not in piece.roles)
        for piece, span in zip(pieces, spans, strict=True):
            if role not in piece.roles:
                continue
            fused, other = whole.roles[role].name, piece.roles[role].name
            if cut:
                yield fused, other, _piece_of_source(whole, piece, role, (span, zeros))
            else:
                yield other, fused, _part_of_target(piece, whole, role, (span, zeros))
            zeros = ()


def _piece_of_source(source: Layer, target: Layer, role: str, place: tuple[Span, Spans]) -> Transform:
    """Cut a target's parameter out of a fused source; `place` counts outputs: those of it, and those that are zeros."""
    axis = int(is_turned(source, role))
    cut = Slice(axis, *place[0], source.roles[role].shape, place[1])
    turned = is_turned(source, role) != is_turned(target, role)
    shape = cut.output_shape(source.roles[role].shape)
    return chained(cut, turned_and_reshaped(shape, target.roles[role].shape, turned))


def _part_of_target(source: Layer, target: Layer, role: str, place: tuple[Span, Spans]) -> Transform:
    """Put a source's parameter in its place in a fused target; `place` is told as in `_piece_of_source`."""
    part = Part(int(is_turned(target, role)), *place[0], target.roles[role].shape, place[1])
    wanted = part.inverse(None, None).output_shape(part.shape)
    turned = is_turned(source, role) != is_turned(target, role)
    return chained(turned_and_reshaped(source.roles[role].shape, wanted, turned), part)


def with_rows_of_zeros(pairings: Sequence[Pairing], shapes: Sequence[Mapping[str, Shape]]) -> list[Pairing]:
    """The pairings, where the rows of a fused bias are zeros that belong to a piece of the matrix without a bias.

    `shapes` are those of both sides' tensors by name.
    """
    vectors = [
        {(_parent(name), prod(shape)) for name, shape in side.items() if prod(shape) == max(shape, default=0)}
        for side in shapes
    ]
    zeros: dict[Pairing, Spans] = {}
    for at, kind in enumerate((Slice, Part)):
        placed = [(pairing, step) for pairing in pairings if (step := _only_span(pairing.transform, kind)) is not None]
        names = {pairing: (pairing.source, pairing.target)[:: 1 - 2 * at] for pairing, _ in placed}  # the whole's first
        for pieces in grouped((_parent(names[pairing][0]), (pairing, *step)) for pairing, step in placed).values():
            lacking = {
                (span, shape[0])
                for pairing, span, shape in pieces
                if len(shape) > 1 and (_parent(names[pairing][1]), span[1] - span[0]) not in vectors[1 - at]
            }
            biases = ((names[pairing][0], (pairing, span, shape)) for pairing, span, shape in pieces if len(shape) == 1)
            for rows in grouped(biases).values() if lacking else ():
                first, _, (size,) = rows[0]
                taken = {span for _, span, _ in rows}
                left = {span for span, whole in lacking if whole == size} - taken
                if left and not tiling_fault([*taken, *left], size):
                    zeros[first] = tuple(sorted(left))
    return [
        replace(pairing, transform=chained(*(_with_zeros(step, zeros[pairing]) for step in pairing.transform.steps)))
        if pairing in zeros
        else pairing
        for pairing in pairings
    ]


def _only_span(transform: Transform, kind: type[Slice | Part]) -> tuple[Span, Shape] | None:
    """The rows that a transform takes of a whole, or gives it, and the whole's shape; None in another form."""
    steps = [step for step in transform.steps if isinstance(step, (Slice, Part))]
    if len(steps) != 1 or not isinstance(steps[0], kind) or steps[0].axis:
        return None
    shape = steps[0].origin if isinstance(steps[0], Slice) else steps[0].shape
    return None if shape is None else ((steps[0].start, steps[0].stop), shape)


def _with_zeros(step: Transform, zeros: Spans) -> Transform:
    return replace(step, zeros=zeros) if isinstance(step, (Slice, Part)) else step


def _own_biases(fusion: _Fusion, layers: Sequence[Layer]) -> Iterator[Pairing]:
    """Pair parameters beside a fused layer without a bias (`q_bias`) with the biases of the pieces of that name."""
    if "bias" in fusion.whole.roles:
        return
    parent = _parent(fusion.whole.path)
    beside = {
        (piece_sign(layer.path), *layer.shapes.values()): parameter
        for layer in layers
        if _parent(layer.path) == parent and tokens(layer.path)[-1] == "bias"
        for parameter in layer.roles.values()
    }
    for piece in fusion.pieces:
        own = beside.get((piece_sign(piece.path), piece.shapes.get("bias", ())))
        if own is not None and piece_sign(piece.path):
            bias = piece.roles["bias"]
            source, target = (own, bias) if fusion.cut else (bias, own)
            yield Pairing(source.name, target.name, "structure", CONFIDENCE_OF_BIAS_BESIDE)


def _open_fusion(fusion: _Fusion, reason: str) -> Iterator[Ambiguity]:
    for role, whole in fusion.whole.roles.items():
        pieces = tuple(piece.roles[role].name for piece in fusion.pieces if role in piece.roles)
        if not pieces:
            continue
        yield Ambiguity((whole.name,), pieces, reason) if fusion.cut else Ambiguity(pieces, (whole.name,), reason)


def _merged(groups: Sequence[Ambiguity]) -> list[Ambiguity]:
    """Groups that have a name in common as one."""
    merged: list[Ambiguity] = []
    for group in groups:
        common = [one for one in merged if {*one.sources, *one.targets} & {*group.sources, *group.targets}]
        sources = dict.fromkeys(name for one in (*common, group) for name in one.sources)
        targets = dict.fromkeys(name for one in (*common, group) for name in one.targets)
        merged = [one for one in merged if one not in common]
        merged.append(Ambiguity(tuple(sources), tuple(targets), group.reason))
    return merged


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class PieceOrder:
    """The pieces by their place in the whole, how sure that is, and what is to be known of it."""

    indices: tuple[int, ...]
    confidence: float
    note: str


def piece_order(whole: str, pieces: Sequence[str], *, packed: bool) -> PieceOrder | None:
    """Return the order of pieces in a fused layer by the paths of all; None if they do not tell.

    `packed` says that it is the packed projection of torch's attention.
    """
    last = [tokens(piece.rpartition(".")[2]) for piece in pieces]  # they stand in one module
    own_words = [[token for token in words if not all(token in others for others in last)] for words in last]
    wanted = _told_order(whole)
    signs = [_sign(words) for words in own_words]
    if all(signs) and len(set(signs)) == len(signs) and set(signs) <= set(wanted):
        by_name = [signs.index(sign) for sign in wanted if sign in signs]
        return PieceOrder(
            tuple(by_name),
            CONFIDENCE_OF_PACKED if packed else CONFIDENCE_OF_NAMED_PIECES,
            sentence("pair_note.pieces_by_name"),
        )
    attends = packed or not _ATTENDING.isdisjoint(tokens(whole)[-3:])
    if wanted == ATTENTION and attends and len(pieces) == 3 and (places := _numbered(own_words)):
        return PieceOrder(places, CONFIDENCE_OF_NUMBERED_PIECES, sentence("pair_note.pieces_by_number"))
    return None


def piece_sign(path: str) -> str:
    """The sign for what a layer computes by its own name (q, k, v, g for a gate, u for the values), "" if none."""
    return _sign_of_name(path.rpartition(".")[2])


@lru_cache(maxsize=1 << 12)
def _sign_of_name(name: str) -> str:
    return _sign(tokens(name))


def _told_order(whole: str) -> tuple[str, ...]:
    """Signs in the order that the name of the fused layer tells or implies; none if it is not known."""
    last = tokens(whole)[-3:]
    spelled = [_SIGNS[token] for token in last if token in _SIGNS]
    if set(spelled) & {"g", "u"}:
        return tuple(spelled) if len(spelled) == len(set(spelled)) > 1 else ()
    if len(spelled) > 1:  # query_key_value is interleaved by heads in some models, and not in others
        return ()
    letters = next((found[1] for token in last if (found := _FUSED.fullmatch(token))), "")
    return tuple(letters) or ATTENTION


def _sign(words: Sequence[str]) -> str:
    signs = {_SIGNS[word] for word in words if word in _SIGNS}
    return signs.pop() if len(signs) == 1 else ""


def _numbered(own_words: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Places 0 to n - 1 if the pieces differ in numbers that follow each other, in the order of registration."""
    if not all(len(words) == 1 and is_number(words[0]) for words in own_words):
        return ()
    numbers = [int(words[0]) for words in own_words]
    return tuple(range(len(own_words))) if numbers == list(range(numbers[0], numbers[0] + len(own_words))) else ()


def reserve_fused(left: Sequence[Layer], right: Sequence[Layer]) -> tuple[set[str], set[str]]:
    """Names of the parameters of each side that belong to fused layers or to their pieces."""
    names: tuple[set[str], set[str]] = (set(), set())
    for signs in _GROUPS:
        named = [list(named_groups(side, signs)) for side in (left, right)]
        for index, sides in enumerate(((left, right), (right, left))):
            for found in _matching(sides, (named[index], named[1 - index])):
                for side, layers in zip((index, 1 - index), found, strict=True):
                    names[side].update(p.name for layer in layers for p in layer.roles.values())
    return names


def _matching(
    sides: tuple[Sequence[Layer], Sequence[Layer]], named: tuple[Sequence[Group], Sequence[Group]]
) -> Iterator[tuple[list[Layer], list[Layer]]]:
    """Yield fused layers of the first side and all pieces of them, form by form; `named` are the groups of both."""
    wholes, others = sides
    groups: dict[Form | None, list[Group]] = defaultdict(list)
    for group in named[1]:
        groups[_joint_form(group)].append(group)
    taken = {_joint_form(group) for group in named[0]}
    for form, groups_of_form in groups.items():
        fused = [layer for layer in wholes if _has(layer, form)]
        by_shape = (
            len(fused) == len(groups_of_form) and form not in taken and not any(_has(layer, form) for layer in others)
        )
        if not by_shape:  # others may be as wide: those that are called after their pieces are meant
            fused = [layer for layer in fused if any(_is_called_after(layer, group) for group in groups_of_form)]
        if by_shape or len(fused) == len(groups_of_form):
            yield fused, [piece for group in groups_of_form for piece in group]


def _is_called_after(whole: Layer, pieces: Sequence[Layer]) -> bool:
    """Tell whether the name of a fused layer spells its pieces: `kv` of `k` and `v`."""
    letters = next((found[1] for token in tokens(_own_name(whole)) if (found := _FUSED.fullmatch(token))), "")
    return sorted(letters) == sorted(piece_sign(piece.path) for piece in pieces)


def _own_name(layer: Layer) -> str:
    return layer.path.rpartition(".")[2]


def named_groups(layers: Sequence[Layer], signs: tuple[str, ...]) -> Iterator[Group]:
    """Yield the layers of each module that are called by these signs, each once."""
    places: dict[str, dict[str, list[Layer]]] = defaultdict(lambda: defaultdict(list))
    for layer in layers:
        if len(layer.shapes.get("weight", ())) == 2 and (sign := piece_sign(layer.path)) in signs:
            places[layer.path.rpartition(".")[0]][sign].append(layer)
    for found in places.values():
        if all(len(found[sign]) == 1 for sign in signs):
            yield tuple(found[sign][0] for sign in signs)


def _joint_form(group: Group) -> Form | None:
    """What a layer that is all of a group has, and whether that is all it has; None if they do not fit together.

    Where some have a bias and others not, the whole one may have one or not.
    """
    signatures = [dict(layer.signature) for layer in group]
    shared = [role for role in signatures[0] if all(role in signature for signature in signatures)]
    even = all(len(signature) == len(shared) for signature in signatures)
    if not even and shared != ["weight"]:
        return None
    joint = []
    for role in shared:
        shapes = [signature[role] for signature in signatures]
        if not all(shapes) or len({shape[1:] for shape in shapes}) > 1:
            return None
        joint.append((role, (sum(shape[0] for shape in shapes), *shapes[0][1:])))
    return tuple(joint), even


def _has(layer: Layer, form: Form | None) -> bool:
    if form is None:
        return False
    signature, even = form
    return layer.signature == signature if even else set(signature) <= set(layer.signature)


# One tensor for all layers of a list, counted by its first axis: the experts of a mixture as one, or each by itself.
#
# The matrices of one expert must be all that the stacks hold, each stack one of them or several side by side, all of
# them the same way round. Where that leaves a choice, names decide, or nothing does. Which expert is which its number
# tells; in which order several stand side by side is told as for other fused layers, and no surer.

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
    match = StackedMatch()
    for stacks, layers, root, cut in ((left, right, place[1], True), (right, left, place[0], False)):
        lone = [layer for layer in stacks if not layer.kind and len(layer.roles) == 1]
        for members in _lists(layers, root):
            count = len(next(iter(members.values())))
            own = [layer for layer in lone if _may_stack(_tensor(layer).shape, count)]
            if own and sum(map(_size, own)) == sum(_size(one) for same in members.values() for one in same):
                _pair_list(match, own, members, cut=cut)
    return match


def _lists(layers: Sequence[Layer], root: str) -> Iterator[Members]:
    """Yield the outermost lists below a module of which all children hold the same linear layers."""
    lists: dict[str, dict[int, dict[str, Layer]]] = defaultdict(lambda: defaultdict(dict))
    for layer in layers:
        below = (level for level in numbered(layer.path) if len(level[2]) > len(root))
        for container, number, child in islice(below, 1):
            lists[container][int(number)][layer.path[len(child) :]] = layer
    for children in lists.values():
        ordered = [children[number] for number in sorted(children)]
        alike = {frozenset((name, level.signature) for name, level in child.items()) for child in ordered}
        if len(ordered) > 1 and len(alike) == 1 and all(map(_is_stackable, ordered[0].values())):
            yield {name: [child[name] for child in ordered] for name in ordered[0]}


def _is_stackable(layer: Layer) -> bool:
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


def _pair_list(match: StackedMatch, stacks: Sequence[Layer], members: Members, *, cut: bool) -> None:
    weights = [stack for stack in stacks if len(_tensor(stack).shape) == 3]
    biases = [stack for stack in stacks if len(_tensor(stack).shape) == 2]
    shapes = {name: same[0].shapes["weight"] for name, same in members.items()}
    fillings = [one for turned in (False, True) for one in _fillings_of_stacks(weights, shapes, turned=turned)]
    filling = _told_by_names(fillings, weights)
    names = [parameter.name for same in members.values() for one in same for parameter in one.roles.values()]
    if filling is None:
        if fillings:
            match.ambiguous.append(_open_stacks([_tensor(stack).name for stack in stacks], names, _RIVALS, cut=cut))
        return
    for stack, group in zip(weights, filling.groups, strict=True):
        _pair_stack(match, (stack, "weight"), [members[name] for name in group], cut=cut, turned=filling.turned)
    for stack, group in _with_biases(biases, members, filling, weights):
        _pair_stack(match, (stack, "bias"), [members[name] for name in group], cut=cut, turned=False)


def _fillings_of_stacks(
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
                for rest in _fillings_of_stacks(stacks[1:], shapes, turned=turned, taken=(*taken, *group)):
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
    match: StackedMatch, stack: tuple[Layer, str], group: Sequence[Sequence[Layer]], *, cut: bool, turned: bool
) -> None:
    """Pair one stack with the layers that it holds of all children: `group` holds those of one name each."""
    layer, role = stack
    whole, order, sure, note = _tensor(layer), tuple(range(len(group))), CONFIDENCE_OF_FORM, ""
    if len(group) > 1:
        piece_places = piece_order(layer.path, [same[0].path for same in group], packed=False)
        if piece_places is None:
            names = [part.roles[role].name for same in group for part in same]
            match.ambiguous.append(_open_stacks([whole.name], names, _UNORDERED, cut=cut))
            return
        order, sure, note = piece_places.indices, piece_places.confidence, piece_places.note
    spans = list(pairwise(accumulate((group[place][0].shapes[role][0] for place in order), initial=0)))
    for number in range(whole.shape[0]):
        for place, span in zip(order, spans, strict=True):
            member = group[place][number]
            part = member.roles[role]
            rows = (2 if turned else 1, span)
            across = turned != is_turned(member, role)
            change = _piece((whole.shape, number), rows, part.shape, turned=across, cut=cut)
            source, target = (whole, part) if cut else (part, whole)
            match.pairings.append(Pairing(source.name, target.name, "structure", sure, change, note))


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


def _open_stacks(stacks: Sequence[str], names: Sequence[str], reason: str, *, cut: bool) -> Ambiguity:
    return Ambiguity(*((tuple(stacks), tuple(names)) if cut else (tuple(names), tuple(stacks))), reason)
