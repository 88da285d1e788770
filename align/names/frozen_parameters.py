"""Parameters that one side trains and the other does not, by the name map: no run without training shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.names.fold_names import fold_names
from align.words.message_words import first_few

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import Parameter, ParameterSet


@dataclass(frozen=True, slots=True)
class FrozenApart:
    """How many paired parameters each side trains, and which only one side does not: the pairs, in the source's order.

    A buffer is trained by nobody. Where a parameter is cut into several, each piece counts.
    """

    trainable: tuple[int, int]
    frozen_in_source: tuple[Pairing, ...] = ()
    frozen_in_target: tuple[Pairing, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.frozen_in_source or self.frozen_in_target)


def frozen_apart(name_map: NameMap, source: ParameterSet, target: ParameterSet) -> FrozenApart:
    """Compare what is trained of the paired parameters; those of a file, which cannot tell, are left out."""
    known = [
        (pairing, bool(left.trainable), bool(right.trainable))
        for pairing in name_map.pairings
        if (left := _known(source, pairing.source)) and (right := _known(target, pairing.target))
    ]
    return FrozenApart(
        (sum(mine for _, mine, _ in known), sum(theirs for _, _, theirs in known)),
        tuple(pairing for pairing, mine, theirs in known if theirs and not mine),
        tuple(pairing for pairing, mine, theirs in known if mine and not theirs),
    )


def folded_names(names: Sequence[str]) -> str:
    """Names that differ in their numbers as one, the first few."""
    return first_few(fold_names(names))


def freezing(names: Sequence[str], *, frozen: bool) -> str:
    """The line that freezes these parameters, or no longer does: an attribute that both frameworks have."""
    return f"requires_grad = {not frozen} for {folded_names(names)}"


def _known(side: ParameterSet, name: str) -> Parameter | None:
    found = side.by_name.get(name)
    return found if found is not None and (found.trainable is not None or found.buffer) else None
