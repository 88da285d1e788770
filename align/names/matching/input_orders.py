"""Matrices whose inputs may stand in another order on the other side: behind a flattening, or a joining of features.

No shape shows it. A matrix as wide as several of what comes before it, and as nothing that comes before it, is no sure
pair unless its path is equal on both sides.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.names.layers.read_layers import Layer, Pair

_FLATTENED = sentence("pair_note.flattened_inputs")
_JOINED = sentence("pair_note.joined_inputs")


def note_input_orders(pairs: Iterable[Pair], sides: tuple[Sequence[Layer], Sequence[Layer]]) -> dict[str, str]:
    """Return a note, by the source's name, on each weight whose inputs may stand in another order; `sides` are all."""
    widths = [{width for layer in side for width in _made_by(layer)} for side in sides]
    known = widths[0] & widths[1]
    channels = {layer.shapes["weight"][0] for side in sides for layer in side if _is_conv(layer)}
    joined = {sum(both) for both in combinations_with_replacement(sorted(known), 2)}
    notes: dict[str, str] = {}
    for a, b in pairs:
        weights = [len(one.roles["weight"].shape) for one in (a, b) if "weight" in one.roles]
        inputs = a.shapes["weight"][1] if len(weights) == 2 and len(a.shapes["weight"]) > 1 else 1
        if a.path == b.path or inputs in known or 2 not in weights or "embedding" in (a.kind, b.kind):
            continue
        if "linear" in (a.kind, b.kind) and any(inputs % width == 0 and inputs > width > 1 for width in channels):
            notes[a.roles["weight"].name] = _FLATTENED
        elif weights[0] != weights[1] and inputs in joined:
            notes[a.roles["weight"].name] = _JOINED
    return notes


def _made_by(layer: Layer) -> tuple[int, ...]:
    """How wide what a layer gives may be."""
    weight = layer.shapes.get("weight", ())
    if layer.kind == "embedding":
        return weight[1:]
    return weight[:2] if layer.kind == "conv_transpose" else weight[:1]


def _is_conv(layer: Layer) -> bool:
    return layer.kind == "conv" and len(layer.shapes.get("weight", ())) > 2
