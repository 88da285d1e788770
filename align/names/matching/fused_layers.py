"""One layer against several whose outputs it computes at once: q, k and v in one matrix, a gate beside its values.

The layers must stand in one place of both models, fill each other exactly, and have no rival there. Shapes do not tell
the order of the pieces: words do (q, k, v), and numbers only where q, k and v are meant. No shape tells either whether
the pieces follow each other or are interleaved by heads, so that such pairs are never sure before a trial. Where not
all have a bias, all must be named, and the weights are paired alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.message_words import first_few
from align.core.name_map import Ambiguity, Pairing
from align.names.layers.path_words import tokens
from align.names.layers.weight_transforms import in_pieces
from align.names.matching.piece_order import piece_order, piece_sign

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.names.layers.read_layers import Layer
    from align.names.layers.same_place import PairedModules
    from align.names.matching.piece_order import PieceOrder

_UNORDERED = "one is the others side by side, and nothing but a trial with values could tell in which order"
_PARTLY = (
    "{} of the pieces has no bias, and no map makes the zeros that stand for it in the fused one, or leaves them out"
)
# A bias beside the fused layer is not cut: its name says of which piece it is.
_BESIDE = 0.9
_RIVALS = "one layer is several others side by side, and more than one could be it"


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
    fusions = [*_fusions(left, right, places, cut=True), *_fusions(right, left, places, cut=False)]
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
        found = (one for module in sorted(facing) for one in fitting.get(module, ()))
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
            yield Pairing(source.name, target.name, "structure", _BESIDE)


def _open_biases(fusion: _Fusion) -> Iterator[Ambiguity]:
    """Leave the bias of a fused layer open if some pieces have one and others not."""
    biases = tuple(piece.roles["bias"].name for piece in fusion.pieces if "bias" in piece.roles)
    whole = fusion.whole.roles.get("bias")
    if whole is not None and 0 < len(biases) < len(fusion.pieces):
        lacking = [piece.path.rpartition(".")[2] for piece in fusion.pieces if "bias" not in piece.roles]
        reason = _PARTLY.format(first_few(lacking))
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
