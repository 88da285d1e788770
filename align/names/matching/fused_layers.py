"""One layer against several whose outputs it computes at once: q, k and v in one matrix, a gate beside its values.

The layers must stand in one place of both models, fill each other exactly, and have no rival there. Shapes do not tell
the order of the pieces: words do (q, k, v), and numbers only where q, k and v are meant. No shape tells either whether
the pieces follow each other or are interleaved by heads, so that such pairs are never sure before a trial. Where not
all have a bias, all must be named, and the weights are paired alone.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from align.core.name_map import Ambiguity, Pairing
from align.core.piece_transforms import Part, Slice
from align.core.transforms import chained, turned_and_reshaped
from align.names.layers.path_words import is_number, tokens
from align.names.layers.read_layers import is_turned
from align.names.thresholds import (
    CONFIDENCE_OF_BIAS_BESIDE,
    CONFIDENCE_OF_NAMED_PIECES,
    CONFIDENCE_OF_NUMBERED_PIECES,
    CONFIDENCE_OF_PACKED,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.piece_transforms import Span
    from align.core.transforms import Transform
    from align.names.layers.read_layers import Layer, Signature
    from align.names.matching.match_layers import PairedModules


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
    found = FusedMatch([], [])
    fusions = _called_after([*_fusions(left, right, places, cut=True), *_fusions(right, left, places, cut=False)])
    wanted = Counter(id(layer) for fusion in fusions for layer in (fusion.whole, *fusion.pieces))
    for fusion in fusions:
        contested = any(wanted[id(layer)] > 1 for layer in (fusion.whole, *fusion.pieces))
        packed = fusion.whole.roles["weight"].attribute == "in_proj_weight"
        order = piece_order(fusion.whole.path, [piece.path for piece in fusion.pieces], packed=packed)
        if contested:
            found.ambiguous.extend(_open(fusion, _RIVALS))
        elif order is None:
            found.ambiguous.extend(_open(fusion, _UNORDERED))
        else:
            found.pairings.extend(_pairings(fusion, order))
            found.pairings.extend(_own_biases(fusion, left if fusion.cut else right))
            found.ambiguous.extend(_open_biases(fusion))
    return FusedMatch(found.pairings, _merged(found.ambiguous))


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
        for filling in _fillings(pieces):
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


def _fillings(pieces: Sequence[Layer]) -> Iterator[tuple[Layer, ...]]:
    """Yield all layers of a module, all with or without a bias, and those that names tell.

    Which of others are meant, nobody knows.
    """
    alike = ([piece for piece in pieces if ("bias" in piece.shapes) == biased] for biased in (True, False))
    named = [piece for piece in pieces if piece_sign(piece.path)]
    fillings = (tuple(one) for one in (pieces, *alike, named) if len(one) > 1)
    yield from {tuple(map(id, one)): one for one in fillings}.values()


def _pairings(fusion: _Fusion, order: PieceOrder) -> Iterator[Pairing]:
    ordered = [fusion.pieces[index] for index in order.indices]
    shared = [role for role in fusion.whole.roles if all(role in piece.roles for piece in ordered)]
    for source, target, transform in in_pieces(fusion.whole, ordered, shared, cut=fusion.cut):
        yield Pairing(source, target, "structure", order.confidence, transform, order.note)


def in_pieces(
    whole: Layer, pieces: Sequence[Layer], roles: Iterable[str], *, cut: bool
) -> Iterator[tuple[str, str, Transform]]:
    """Source, target and transform for each piece of a fused layer, in their order; `cut` says the source is fused."""
    ends = accumulate((piece.shapes["weight"][0] for piece in pieces), initial=0)
    spans = list(pairwise(ends))
    for role in roles:
        for piece, span in zip(pieces, spans, strict=True):
            own, other = whole.roles[role].name, piece.roles[role].name
            if cut:
                yield own, other, _piece_of_source(whole, piece, role, span)
            else:
                yield other, own, _part_of_target(piece, whole, role, span)


def _piece_of_source(source: Layer, target: Layer, role: str, span: Span) -> Transform:
    """Cut a target's parameter out of a fused source; `span` counts outputs."""
    axis = int(is_turned(source, role))
    cut = Slice(axis, *span, source.roles[role].shape)
    turned = is_turned(source, role) != is_turned(target, role)
    shape = cut.output_shape(source.roles[role].shape)
    return chained(cut, turned_and_reshaped(shape, target.roles[role].shape, turned))


def _part_of_target(source: Layer, target: Layer, role: str, span: Span) -> Transform:
    """Put a source's parameter in its place in a fused target; `span` counts outputs."""
    part = Part(int(is_turned(target, role)), *span, target.roles[role].shape)
    wanted = part.inverse(None, None).output_shape(part.shape)
    turned = is_turned(source, role) != is_turned(target, role)
    return chained(turned_and_reshaped(source.roles[role].shape, wanted, turned), part)


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


def _open_biases(fusion: _Fusion) -> Iterator[Ambiguity]:
    """Leave the bias of a fused layer open if some pieces have one and others not."""
    biases = tuple(piece.roles["bias"].name for piece in fusion.pieces if "bias" in piece.roles)
    whole = fusion.whole.roles.get("bias")
    if whole is not None and 0 < len(biases) < len(fusion.pieces):
        lacking = [piece.path.rpartition(".")[2] for piece in fusion.pieces if "bias" not in piece.roles]
        reason = sentence("open_reason.piece_without_bias", pieces=lacking)
        yield Ambiguity((whole.name,), biases, reason) if fusion.cut else Ambiguity(biases, (whole.name,), reason)


def _open(fusion: _Fusion, reason: str) -> Iterator[Ambiguity]:
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
    own = [[token for token in words if not all(token in others for others in last)] for words in last]
    wanted = _told_order(whole)
    signs = [_sign(words) for words in own]
    if all(signs) and len(set(signs)) == len(signs) and set(signs) <= set(wanted):
        by_name = [signs.index(sign) for sign in wanted if sign in signs]
        return PieceOrder(
            tuple(by_name),
            CONFIDENCE_OF_PACKED if packed else CONFIDENCE_OF_NAMED_PIECES,
            sentence("pair_note.pieces_by_name"),
        )
    attends = packed or not _ATTENDING.isdisjoint(tokens(whole)[-3:])
    if wanted == ATTENTION and attends and len(pieces) == 3 and (places := _numbered(own)):
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


def _numbered(own: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Places 0 to n - 1 if the pieces differ in numbers that follow each other, in the order of registration."""
    if not all(len(words) == 1 and is_number(words[0]) for words in own):
        return ()
    numbers = [int(words[0]) for words in own]
    return tuple(range(len(own))) if numbers == list(range(numbers[0], numbers[0] + len(own))) else ()


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
    for form, found in groups.items():
        fused = [layer for layer in wholes if _has(layer, form)]
        by_shape = len(fused) == len(found) and form not in taken and not any(_has(layer, form) for layer in others)
        if not by_shape:  # others may be as wide: those that are called after their pieces are meant
            fused = [layer for layer in fused if any(_is_called_after(layer, group) for group in found)]
        if by_shape or len(fused) == len(found):
            yield fused, [piece for group in found for piece in group]


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
