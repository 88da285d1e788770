"""What a trial makes of a map: the open is settled, what the run contradicts reopened, what was unsure confirmed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from align.names.by_value.choose_partners import PartnerChoice
from align.names.by_value.contradicted_pairs import contradicted_pairs, sibling_orders
from align.names.by_value.paired_runs import module_of
from align.names.by_value.trial_groups import open_groups, rivals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.name_map import Ambiguity, Pairing
    from align.names.by_value.choose_partners import AssignmentRunner
    from align.names.by_value.trial_groups import Alternative, TrialGroup
    from align.names.layers.read_layers import Layer

    Layers = Sequence[Mapping[str, Layer]]

_MOST_CONFIRMED = 200  # layers: each takes a run


@dataclass(frozen=True)
class SettledGroups:
    """New pairings, the reasons of source names that stay open, and the groups that the run reopened."""

    pairings: list[Pairing]
    reasons: dict[str, str]
    reopened: list[Ambiguity] = field(default_factory=list)


def settle_groups(
    groups: Sequence[TrialGroup],
    pairings: Sequence[Pairing],
    runner: AssignmentRunner,
    layer_of: Layers,
    orders: Sequence[list[Alternative]] = (),
) -> SettledGroups:
    """Settle what can be settled, reopen what the run contradicts, confirm or correct what was not sure.

    `orders` are those in which open fused layers may be their pieces.
    """
    choice = PartnerChoice(list(groups), list(pairings), runner)
    choice.question(orders)
    choice.settle()
    reopened = _reopened(choice, runner, layer_of)
    choice.question(sibling_orders(choice.settled(), runner.observe(choice.settled()), layer_of))
    choice.settle()
    sure = {p.source: p for p in _confirmed(choice, runner, layer_of)}
    new = [*choice.new, *sure.values(), *_corrected(choice, sure, runner, layer_of)]
    return SettledGroups(new, choice.reasons, reopened)


def _reopened(choice: PartnerChoice, runner: AssignmentRunner, layer_of: Layers) -> list[Ambiguity]:
    """Open pairs again that the run contradicts, and settle them, until it contradicts none; return the groups.

    Exchanged layers put what stands behind them out of place too: such pairs are given back where nothing settles
    them otherwise.
    """
    reopened: list[Ambiguity] = []
    before, crossed = list(choice.pairings), set[str]()
    while found := contradicted_pairs(choice.pairings, runner.observe(choice.settled()), layer_of, choice.free()):
        names = {name for group in found.groups for name in group.sources}
        crossed |= found.crossed
        reopened = [group for group in reopened if names.isdisjoint(group.sources)] + found.groups
        choice.reopen(found.groups, layer_of)
        choice.settle()
    taken = {p.source for p in choice.settled()}, {p.target for p in choice.settled()}
    left = [p for p in before if p.source not in taken[0] and p.target not in taken[1] and p.source not in crossed]
    choice.give_back(left)
    return [one for group in reopened if (one := _without(group, left)).sources]


def _confirmed(choice: PartnerChoice, runner: AssignmentRunner, layer_of: Layers) -> list[Pairing]:
    """Pairs that were not sure, and with which all is right: the whole model, else all that changes without them.

    None of them returns what the source's did: two branches that were exchanged as a whole would agree up to where
    they meet.
    """
    unsure = [p for p in choice.pairings if p.confidence < 1 and p.evidence != "user"]
    sure = [pairing for pairing in choice.settled() if pairing not in unsure]
    if not unsure:
        return []
    whole = runner.observe(sure, unsure)
    if whole.all_agree():
        return [_as_trial(pairing) for pairing in unsure]
    owners: dict[str, list[Pairing]] = {}
    for pairing in unsure:
        owners.setdefault(module_of(layer_of[0][pairing.source]), []).append(pairing)
    if len(owners) > _MOST_CONFIRMED:
        return []
    right = whole.agreeing()
    found: list[Pairing] = []
    for own, pairings in owners.items():
        without = runner.observe(sure, [p for p in unsure if p not in pairings])
        touched = {compared for compared in whole.changed(without) if compared[0] != own}
        if touched and touched <= right:
            found += [_as_trial(pairing) for pairing in pairings]
    return found


def _as_trial(pairing: Pairing) -> Pairing:
    return replace(pairing, evidence="trial", confidence=1.0, note="")


def _corrected(
    choice: PartnerChoice, sure: Mapping[str, Pairing], runner: AssignmentRunner, layer_of: Layers
) -> list[Pairing]:
    """Pairs that were not sure, exchanged among layers of one shape if the values then settle each of them."""
    settled = [sure.get(pairing.source, pairing) for pairing in choice.settled()]
    ambiguous = rivals([p for p in settled if p.confidence < 1 and p.evidence != "user"], layer_of[0])
    if not ambiguous or len({module_of(layer) for layer in layer_of[0].values()}) > _MOST_CONFIRMED:
        return []
    groups = open_groups(ambiguous, *layer_of)
    members = [{name for path in group.sources for name in group.names(path)} for group in groups]
    names_in_question = set().union(*members)
    second = PartnerChoice(groups, [pairing for pairing in settled if pairing.source not in names_in_question], runner)
    second.settle()
    closed = set().union(*(names for group, names in zip(groups, members, strict=True) if not group.sources))
    return [pairing for pairing in second.new if pairing.source in closed]


def _without(group: Ambiguity, pairings: Sequence[Pairing]) -> Ambiguity:
    gone = {p.source for p in pairings}, {p.target for p in pairings}
    sources, targets = (
        tuple(name for name in side if name not in names)
        for side, names in zip((group.sources, group.targets), gone, strict=True)
    )
    return replace(group, sources=sources, targets=targets)
