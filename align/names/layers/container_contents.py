"""What holds a layer beside others: modules, and lists whose members are only numbered siblings.

`branch3x3_1`, `branch3x3_2a` and `branch3x3_2b` are one branch as much as the children of a module `branch1` are.
Which of two such is which is told by what both hold: ports rename and nest branches otherwise, and rarely split them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from align.names.layers.path_words import is_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.names.layers.read_layers import Layer

_LETTERED = re.compile(r"(.*\d)[a-z]")
# `attn_norm` stands beside what is in `attn`, `dw_bn` beside `dw_conv`.
_TYPED = re.compile(r"(?!layer_)(.+?)_(?:layer_?norm|norm|ln|bn|conv)", re.IGNORECASE)
_NUMBERED = re.compile(r"(.*?)_?\d+")


@lru_cache(maxsize=1 << 16)
def containers(path: str) -> tuple[str, ...]:
    """Modules and numbered lists around a layer, the nearest first, the root ("") last.

    >>> containers("mixed.branch3x3_2a.conv")
    ('mixed.branch3x3_2a', 'mixed.branch3x3_2', 'mixed.branch3x3', 'mixed', '')
    """
    parts = path.split(".")
    found: list[str] = []
    for place in range(len(parts) - 1, -1, -1):
        above = "".join(f"{part}." for part in parts[:place])
        found += [above + stem for stem in _stems(parts[place])]
        found.append(above[:-1])
    return tuple(dict.fromkeys(found))


def _stems(part: str) -> list[str]:
    """The part without its letter (`2a`), without its number, without what a layer is: the like belong together."""
    if typed := _TYPED.fullmatch(part):
        return [typed[1]]
    lettered = _LETTERED.fullmatch(part)
    stems = [lettered[1]] if lettered else []
    numbered = _NUMBERED.fullmatch(lettered[1] if lettered else part)
    return stems + ([numbered[1]] if numbered and numbered[1] else [])


@dataclass(frozen=True, slots=True)
class Contents:
    """For each layer of both sides, by its path, what the containers around it hold.

    `sized` are the paths of both sides with the length of its list behind each index (`block.0/12.layer.1/3.norm`).
    """

    source: dict[str, frozenset[object]]
    target: dict[str, frozenset[object]]
    sized: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))

    def alike(self, a: Layer, b: Layer) -> float:
        """Number of containers around the one that hold the same shapes as containers around the other."""
        return float(len(self.source.get(a.path, _NONE) & self.target.get(b.path, _NONE)))


_NONE: frozenset[object] = frozenset()
NOTHING = Contents({}, {})


def read_contents(left: Iterable[Layer], right: Iterable[Layer]) -> Contents:
    """Return what the containers of both sides hold: the signatures of their layers, each with its number."""
    codes: dict[object, int] = {}
    left, right = list(left), list(right)
    return Contents(_contents(left, codes), _contents(right, codes), (_sized(left), _sized(right)))


def _sized(layers: list[Layer]) -> dict[str, str]:
    """Each path, and the same with the number of members behind each index in a list."""
    paths = [layer.path.split(".") for layer in layers]
    members: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for path in paths:
        for place, part in enumerate(path):
            members[tuple(path[:place])].update([part] if is_number(part) else [])
    return {
        ".".join(path): ".".join(
            f"{part}/{len(members[tuple(path[:place])])}" if is_number(part) else part
            for place, part in enumerate(path)
        )
        for path in paths
    }


def _contents(layers: list[Layer], codes: dict[object, int]) -> dict[str, frozenset[object]]:
    """As above; equal contents have one of the `codes`, for to compare all that a model holds takes long."""
    held: dict[str, Counter[object]] = defaultdict(Counter)
    for layer in layers:
        for container in containers(layer.path):
            held[container][layer.signature] += 1
    contents = {
        container: codes.setdefault(frozenset(counter.items()), len(codes)) for container, counter in held.items()
    }
    return {layer.path: frozenset(contents[one] for one in containers(layer.path)) for layer in layers}
