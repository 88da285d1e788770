"""Pairs that something puts in doubt: names that may be shifted by one, inputs that may stand in another order.

No shape shows that a matrix takes what a flattening or a joining of features gives in another order. One as wide as
several of what comes before it, and as nothing that comes before it, is no sure pair unless its path is equal on both
sides.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

from align.names.layers.read_layers import crosses, may_pair
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.names.layers.read_layers import Layer, Pair

_COUNTED = re.compile(r"(?<![^._])(?:[A-Za-z]|zero|one|two|three|four|five|six|seven|eight|nine|ten)(?![^.])")
SHIFTED = sentence("pair_note.shifted")
_FLATTENED = sentence("pair_note.flattened_inputs")
_JOINED = sentence("pair_note.joined_inputs")


def note_shifted(pairs: Iterable[Pair], free: tuple[Sequence[Layer], Sequence[Layer]]) -> dict[str, str]:
    """Return a note, by the source's name, on each pair of equal names that the layers left `free` put in doubt."""
    left, right = (_by_siblings(side) for side in free)
    ends = {
        one: [(x, y) for x in left[one] for y in right[one] if may_pair(x, y)] for one in left.keys() & right.keys()
    }
    same: dict[str, list[Pair]] = defaultdict(list)
    for a, b in pairs:
        for siblings in _siblings(a.path):
            if a.path == b.path:
                same[siblings].append((a, b))
            elif siblings in _siblings(b.path):
                ends.setdefault(siblings, []).append((a, b))
    shifted: list[Pair] = []
    for siblings, at_ends in ends.items():
        for end in at_ends:
            rivals = [pair for pair in same[siblings] if may_pair(end[0], pair[1])]
            if rivals and all(crosses(end, pair) for pair in rivals):
                shifted += [end, *rivals]
    return {parameter.name: SHIFTED for a, _ in shifted for parameter in a.roles.values()}


def _by_siblings(layers: Iterable[Layer]) -> dict[str, list[Layer]]:
    found: dict[str, list[Layer]] = defaultdict(list)
    for layer in layers:
        for siblings in _siblings(layer.path):
            found[siblings].append(layer)
    return found


def _siblings(path: str) -> list[str]:
    """The path with one letter, or one word for a number, left open where it ends a part: `net.a.fc` -> `net.#.fc`."""
    return [f"{path[: one.start()]}#{path[one.end() :]}" for one in _COUNTED.finditer(path)]


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
