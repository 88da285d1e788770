"""Which parameter of the source is which of the target: by the user's rules, by layer class, by structure.

Layers are aligned as sequences by class, role and shape; what the sequence cannot place is assigned by class and
shape; then every pair is tested against its rivals (`exchange`). What the tests do not settle is AMBIGUOUS and stays
unpaired: a wrong pair is worse than ten open ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.names import NameMap, Pairing
from align.core.transforms import IDENTITY, Reshape
from align.steps.ambiguity import group_links
from align.steps.apply_rules import apply_rules_to_sides
from align.steps.evidence import SETTLED
from align.steps.exchange import may_pair, settle
from align.steps.layers import read_layers
from align.steps.remainder import explain_remainder
from align.steps.sequences import align_sequences, equality_scores

if TYPE_CHECKING:
    from align.core.names import Ambiguity, Evidence
    from align.core.parameters import Parameter, ParameterSet
    from align.core.rename import NameRules
    from align.core.transforms import Transform
    from align.steps.evidence import Pair
    from align.steps.exchange import Settlement
    from align.steps.layers import Layer


def match_names(source: ParameterSet, target: ParameterSet, rules: NameRules) -> NameMap:
    """Return the name map of two sides, complete or not.

    Raises MapError if the rules contradict each other or the shapes. Order is taken as evidence only where both sides
    stand in execution order.
    """
    ruled = apply_rules_to_sides(rules, source, target)
    spoken = {pairing.source for pairing in ruled.pairings} | {d.name for d in ruled.dropped if d.side == "source"}
    taken = {pairing.target for pairing in ruled.pairings} | {d.name for d in ruled.dropped if d.side == "target"}
    ties = {p.name for p in source.parameters if p.tied_to}
    left = read_layers(source, spoken | ties)
    right = read_layers(target, taken)
    ordered = source.order == target.order == "execution"
    matched, ambiguous = _judge(settle(place_layers(left, right), left, right, ordered))
    pairings = [*ruled.pairings, *matched]
    dropped, unmatched = explain_remainder((source, target), (left, right), ruled, pairings, ambiguous)
    place = {name: index for index, name in enumerate(source.names)}
    return NameMap(
        source=source.label,
        target=target.label,
        pairings=tuple(sorted(pairings, key=lambda pairing: place[pairing.source])),
        dropped=tuple(dropped),
        ambiguous=tuple(ambiguous),
        unmatched=tuple(unmatched),
        unused_rules=ruled.unused_rules,
    )


def place_layers(left: list[Layer], right: list[Layer]) -> list[Pair]:
    """Pair layers of equal class and shape: first keeping the order of both sides, then whatever is left over."""
    scores = equality_scores([layer.signature for layer in left], [layer.signature for layer in right])
    kinds = equality_scores([layer.kind for layer in left], [layer.kind for layer in right])
    open_left = np.array([not layer.kind for layer in left], dtype=bool)
    open_right = np.array([not layer.kind for layer in right], dtype=bool)
    compatible = np.maximum(kinds, open_left[:, None] | open_right[None, :]) if len(left) and len(right) else kinds
    placed = align_sequences(scores * compatible)
    pairs = [(left[i], right[j]) for i, j in placed]
    used_left, used_right = {i for i, _ in placed}, {j for _, j in placed}
    rest_right = [layer for j, layer in enumerate(right) if j not in used_right]
    for i, layer in enumerate(left):
        if i not in used_left:
            other = next((candidate for candidate in rest_right if may_pair(layer, candidate)), None)
            if other is not None:
                rest_right.remove(other)
                pairs.append((layer, other))
    return pairs


def _judge(settlement: Settlement) -> tuple[list[Pairing], list[Ambiguity]]:
    ambiguous = group_links(settlement.links)
    open_sources = {name for group in ambiguous for name in group.sources}
    pairings = []
    for pair, weak in zip(settlement.pairs, settlement.weakest, strict=True):
        if weak >= SETTLED:
            pairings += _pair_roles(*pair, 0.5 + min(weak, 1.0) / 2)
    return [pairing for pairing in pairings if pairing.source not in open_sources], ambiguous


def _pair_roles(a: Layer, b: Layer, confidence: float) -> list[Pairing]:
    shared = [(mine, b.roles[role]) for role, mine in a.roles.items() if role in b.roles]
    return [Pairing(x.name, y.name, _evidence(x, y), confidence, _transform(x, y)) for x, y in shared]


def _evidence(a: Parameter, b: Parameter) -> Evidence:
    if a.name == b.name:
        return "name"
    return "rule" if a.module == b.module else "structure"


def _transform(a: Parameter, b: Parameter) -> Transform:
    return IDENTITY if a.shape == b.shape else Reshape(b.shape)
