"""Fused layers whose pieces no name puts in order, as every order that a trial may find right."""

from __future__ import annotations

from collections import defaultdict
from itertools import permutations
from math import factorial
from typing import TYPE_CHECKING

from align.core.name_map import Pairing
from align.names.by_value.trial_groups import MOST_ALTERNATIVES
from align.names.layers.weight_transforms import in_pieces
from align.names.matching.other_forms import plain_layer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.name_map import Ambiguity
    from align.names.by_value.trial_groups import Alternative
    from align.names.layers.read_layers import Layer


def fused_piece_orders(
    ambiguous: Iterable[Ambiguity], left: Mapping[str, Layer], right: Mapping[str, Layer]
) -> list[list[Alternative]]:
    """For each open fused layer of either side, the pairings of its pieces in every order.

    The pieces follow each other; of pieces that are interleaved by heads none is right, and the layer stays open.
    """
    groups: dict[tuple[str, bool], dict[str, Layer]] = defaultdict(dict)
    wholes: dict[tuple[str, bool], Layer] = {}
    for group in ambiguous:
        cut = len(group.sources) == 1
        whole, pieces = (group.sources, group.targets) if cut else (group.targets, group.sources)
        names = (left, right) if cut else (right, left)
        if len(whole) == 1 < len(pieces) and whole[0] in names[0] and all(name in names[1] for name in pieces):
            key = names[0][whole[0]].path, cut
            wholes[key] = plain_layer(names[0][whole[0]])
            groups[key] |= {names[1][name].path: plain_layer(names[1][name]) for name in pieces}
    return [found for key, pieces in groups.items() if (found := _orders(wholes[key], [*pieces.values()], cut=key[1]))]


def _orders(whole: Layer, pieces: Sequence[Layer], *, cut: bool) -> list[Alternative]:
    """The pairings in every order; none if the pieces do not fill the fused layer, or are too many."""
    roles = [role for role in whole.roles if all(role in piece.roles for piece in pieces)]
    filled = all(sum(piece.shapes[role][0] for piece in pieces) == whole.shapes[role][0] for role in roles)
    if "weight" not in roles or not filled or factorial(len(pieces)) > MOST_ALTERNATIVES:
        return []
    return [
        tuple(Pairing(a, b, "trial", 1.0, change) for a, b, change in in_pieces(whole, order, roles, cut=cut))
        for order in permutations(pieces)
    ]
