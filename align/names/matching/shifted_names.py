"""Equal names that may have been shifted by one: `a, b, c` against `b, c, d`, `one` to `three` against `zero` to `two`.

As with numbers, a sibling that is left over before all others on one side, and behind all on the other, says so.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from align.names.matching.weigh_exchanges import crosses, may_pair

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.names.layers.read_layers import Layer, Pair

SHIFTED = "equal names, but the siblings left over on both sides would fit if all were shifted by one"
_COUNTED = re.compile(r"(?<![^._])(?:[A-Za-z]|zero|one|two|three|four|five|six|seven|eight|nine|ten)(?![^.])")


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
