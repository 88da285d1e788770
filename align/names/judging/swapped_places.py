"""Places that a port has in another order: two paths that both sides have, each paired with the other one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.core.name_map import Pairing


def swapped_places(pairings: Iterable[Pairing]) -> list[tuple[str, str]]:
    """Pairs of paths, each once, that stand in each other's place by their shapes; without what both have at the end.

    What a run, equal values or the user say is no finding: they say that it is right so.

    >>> from align.core.name_map import Pairing
    >>> one, other = "layers.1.fc.weight", "layers.2.fc.weight"
    >>> swapped_places([Pairing(one, other, "structure", 1.0), Pairing(other, one, "structure", 1.0)])
    [('layers.1', 'layers.2')]
    """
    moved = {_owner(p.source): _owner(p.target) for p in pairings if p.evidence == "structure"}
    mutual = [(a, b) for a, b in moved.items() if a < b and moved.get(b) == a]
    return list(dict.fromkeys(_without_common_end(a, b) for a, b in mutual))


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _without_common_end(a: str, b: str) -> tuple[str, str]:
    left, right = a.split("."), b.split(".")
    while len(left) > 1 and len(right) > 1 and left[-1] == right[-1]:
        left, right = left[:-1], right[:-1]
    return ".".join(left), ".".join(right)
