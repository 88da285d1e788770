"""The stages of matching, from the surest to the boldest, over the layers of two sides.

Whole layers, then layers that lack a bias or statistics, then layers that one side names and the other numbers, and
what these teach of the rest; then other forms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align.core.name_map import SURE
from align.names.layers.read_layers import cut_alike, read_layers, remaining, without_optional_roles
from align.names.matching.crossed_matrices import settle_crossed_matrices
from align.names.matching.file_matrices import UNTOLD, settle_file_matrices
from align.names.matching.match_layers import match_layers
from align.names.matching.numbered_projections import match_numbered_projections
from align.names.matching.other_forms import match_other_forms, plain_layer
from align.names.matching.reserve_fused import reserve_fused
from align.names.matching.shifted_names import note_shifted
from align.names.matching.square_matrices import settle_square_matrices

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.core.name_map import Ambiguity, Pairing
    from align.core.parameters import ParameterSet
    from align.names.layers.read_layers import Layer, Pair

Sure = tuple["Pair", float]
Names = tuple[set[str], set[str]]


@dataclass
class Matching:
    """Pairs of layers with their confidence, those of `other forms` apart, pairings of fused layers, what is open.

    `notes` say, by the name of the source, why a pair of weights is not sure.
    """

    pairs: list[Sure]
    other_forms: list[Sure] = field(default_factory=list)
    fused: list[Pairing] = field(default_factory=list)
    ambiguous: list[Ambiguity] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def known(self) -> list[Pair]:
        """The pairs that are sure enough to teach, without those of other forms."""
        return [pair for pair, sure in self.pairs if sure >= SURE]

    def names(self) -> Names:
        """Names on each side whose layers are paired, or that are ambiguous."""
        names: Names = (set(), set())
        for pair, _ in self.pairs:
            for known, layer in zip(names, pair, strict=True):
                known.update(p.name for p in layer.roles.values())
        for group in self.ambiguous:
            names[0].update(group.sources)
            names[1].update(group.targets)
        return names


def match_in_stages(
    sides: tuple[ParameterSet, ParameterSet], spoken: Names, taught: Sequence[Pair], ordered: bool
) -> Matching:
    """Match what the rules do not speak of; pairs that they `taught` are sure.

    `ordered` says that both sides stand in the order of execution, which then is evidence.
    """
    free = _Free(sides, spoken)
    found = Matching([(pair, 1.0) for pair in taught])
    reserved = reserve_fused(*([plain_layer(layer) for layer in side] for side in free.whole(found.names())))
    _match_plain(found, free, reserved, ordered)
    open_layers = free.whole(_joined(Matching(found.pairs).names(), reserved))
    if triples := match_numbered_projections(*open_layers, found.known):
        found = Matching([*found.pairs, *triples])
        _match_plain(found, free, reserved, ordered)
    other = match_other_forms(*free.whole(found.names()), found.known, ordered)
    crossed = settle_crossed_matrices([*found.pairs, *other.pairs], sides, spoken[0])
    settled, doubtful = settle_square_matrices(crossed.pairs, sides, crossed.open_paths)
    matrices = settle_file_matrices(settled, sides, spoken[0], crossed.open_paths)
    count = len(found.pairs)
    ambiguous = [*found.ambiguous, *other.ambiguous, *crossed.ambiguous, *doubtful, *matrices.ambiguous]
    joined = [pair for pair, _ in crossed.pairs]
    notes = note_shifted(joined, free.whole(Matching(crossed.pairs).names()))
    notes |= crossed.notes | dict.fromkeys(matrices.untold, UNTOLD)
    return Matching(matrices.pairs[:count], matrices.pairs[count:], other.pairings, ambiguous, notes)


def _match_plain(found: Matching, free: _Free, reserved: Names, ordered: bool) -> None:
    for layers in (free.whole, free.loose):
        layered = match_layers(*layers(_joined(found.names(), reserved)), found.known, ordered)
        found.pairs += layered.pairs
        found.ambiguous += layered.ambiguous


def _joined(one: Names, other: Names) -> Names:
    return one[0] | other[0], one[1] | other[1]


class _Free:
    """The layers of both sides that no rule speaks of, read once."""

    def __init__(self, sides: tuple[ParameterSet, ParameterSet], spoken: Names) -> None:
        tied = [{p.name for p in side.parameters if p.tied_to} for side in sides]
        self._loose = cut_alike(*(read_layers(side, names) for side, names in zip(sides, spoken, strict=True)))
        self._whole = [remaining(layers, ties) for layers, ties in zip(self._loose, tied, strict=True)]

    def whole(self, gone: Names) -> tuple[list[Layer], list[Layer]]:
        """The layers without the names that are gone; a tied tensor stands under its first name."""
        return _pair_of(remaining(layers, names) for layers, names in zip(self._whole, gone, strict=True))

    def loose(self, gone: Names) -> tuple[list[Layer], list[Layer]]:
        """The layers as what they hold beside biases and statistics."""
        return _pair_of(
            without_optional_roles(remaining(layers, names)) for layers, names in zip(self._loose, gone, strict=True)
        )


def _pair_of(sides: Iterable[list[Layer]]) -> tuple[list[Layer], list[Layer]]:
    left, right = sides
    return left, right
