"""The transform between one layer's parameter and another's, whichever way round and with whichever axes each is."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from align.core.piece_transforms import Part, Slice
from align.core.transforms import IDENTITY, Permute, Reshape, chained

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.parameters import Shape
    from align.core.piece_transforms import Span
    from align.core.transforms import Transform
    from align.names.layers.read_layers import Layer

_TURN = Permute((1, 0))


def transform_between(source: Layer, target: Layer, role: str, other: str = "") -> Transform:
    """Turn a source's parameter into the target's, which as torch has them are of one shape.

    `other` is its role there if that is called otherwise.
    """
    before, wanted = source.roles[role].shape, target.roles[other or role].shape
    return turned_and_reshaped(before, wanted, is_turned(source, role) != is_turned(target, other or role))


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


def is_turned(layer: Layer, role: str) -> bool:
    """Tell whether a parameter is a matrix that stands as (in, out)."""
    return bool(layer.inputs_first) and role == "weight" and len(layer.roles[role].shape) == 2


def turned_and_reshaped(before: Shape, wanted: Shape, turned: bool) -> Transform:
    """Turn a matrix, or a convolution of one position, as the target wants it; then shape it."""
    if not turned:
        return IDENTITY if before == wanted else Reshape(wanted, before)
    flat = before[:2]
    matrix = IDENTITY if flat == before else Reshape(flat, before)
    return chained(matrix, _TURN, IDENTITY if flat[::-1] == wanted else Reshape(wanted, flat[::-1]))
