"""Which choice of partners the values tell: by what layers are given, and by what comes of each choice.

The open is settled, what the run contradicts reopened, what was unsure confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from align.core.name_map import Ambiguity
from align.names.equal_values import agree, module_of
from align.names.thresholds import MOST_CONFIRMED_LAYERS, MOST_FOLLOWED_STEPS, MOST_SIBLING_GROUPS
from align.names.trial_runs import choice_matters, components, open_groups, rivals, uncertain_piece_orders
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

    from align.core.name_map import Pairing
    from align.names.read_layers import Layer, Signature
    from align.names.trial_runs import Alternative, ComparedValue, Edges, PairedRuns, TrialGroup, TrialRuns

    Layers = Sequence[Mapping[str, Layer]]


BLIND = sentence("trial_reason.blind")
ALIKE = sentence("trial_reason.same_outputs")
UNLIKE = sentence("trial_reason.no_choice_fits")
TOO_MANY = sentence("trial_reason.too_many")


@dataclass(frozen=True)
class SettledGroups:
    """New pairings, the reasons of source names that stay open, and the groups that the run reopened."""

    pairings: list[Pairing]
    reasons: dict[str, str]
    reopened: list[Ambiguity] = field(default_factory=list)


def settle_groups(
    groups: Sequence[TrialGroup],
    pairings: Sequence[Pairing],
    trial: TrialRuns,
    orders: Sequence[list[Alternative]],
) -> SettledGroups:
    """Settle what can be settled, reopen what the run contradicts, confirm or correct what was not sure.

    `orders` are those in which open fused layers may be their pieces.
    """
    choice = PartnerChoice(list(groups), list(pairings), trial)
    choice.question(orders)
    choice.settle()
    reopened = _reopened(choice)
    choice.question(sibling_orders(choice.settled(), trial.observe(choice.settled()), trial.layer_of))
    choice.settle()
    sure = _confirmed(choice)  # of one source there may be several: the pieces of a fused tensor
    new = [*choice.new, *sure, *_corrected(choice, {(p.source, p.target): p for p in sure})]
    return SettledGroups(new, choice.reasons, reopened)


def _reopened(choice: PartnerChoice) -> list[Ambiguity]:
    """Open pairs again that the run contradicts, and settle them, until it contradicts none; return the groups.

    Exchanged layers put what stands behind them out of place too: such pairs are given back where nothing settles
    them otherwise.
    """
    reopened: list[Ambiguity] = []
    before, crossed = list(choice.pairings), set[str]()
    trial = choice.trial
    while contradiction := contradicted_pairs(
        choice.pairings, trial.observe(choice.settled()), trial.layer_of, choice.free()
    ):
        names = {name for group in contradiction.groups for name in group.sources}
        crossed |= contradiction.crossed
        reopened = [group for group in reopened if names.isdisjoint(group.sources)] + contradiction.groups
        choice.reopen(contradiction.groups)
        choice.settle()
    taken = {p.source for p in choice.settled()}, {p.target for p in choice.settled()}
    left = [p for p in before if p.source not in taken[0] and p.target not in taken[1] and p.source not in crossed]
    choice.give_back(left)
    return [one for group in reopened if (one := _without(group, left)).sources]


def _confirmed(choice: PartnerChoice) -> list[Pairing]:
    """Pairs that were not sure, and with which all is right: the whole model, else all that changes without them.

    None of them returns what the source's did: two branches that were exchanged as a whole would agree up to where
    they meet.
    """
    unsure = [p for p in choice.pairings if p.confidence < 1 and p.evidence != "user"]
    sure = [pairing for pairing in choice.settled() if pairing not in unsure]
    if not unsure:
        return []
    whole = choice.trial.observe(sure, unsure)
    if whole.all_agree():
        return [_as_trial(pairing) for pairing in unsure]
    owners: dict[str, list[Pairing]] = {}
    for pairing in unsure:
        owners.setdefault(module_of(choice.trial.layer_of[0][pairing.source]), []).append(pairing)
    if len(owners) > MOST_CONFIRMED_LAYERS:
        return []
    right = whole.agreeing()
    confirmed: list[Pairing] = []
    for own, pairings in owners.items():
        without = choice.trial.observe(sure, [p for p in unsure if p not in pairings])
        touched = {compared for compared in whole.changed(without) if compared[0] != own}
        if touched and touched <= right:
            confirmed += [_as_trial(pairing) for pairing in pairings]
    return confirmed


def _as_trial(pairing: Pairing) -> Pairing:
    return replace(pairing, evidence="trial", confidence=1.0, note="")


def _corrected(choice: PartnerChoice, sure: Mapping[tuple[str, str], Pairing]) -> list[Pairing]:
    """Pairs that were not sure, exchanged among layers of one shape if the values then settle each of them."""
    settled = [sure.get((pairing.source, pairing.target), pairing) for pairing in choice.settled()]
    layer_of = choice.trial.layer_of
    ambiguous = rivals([p for p in settled if p.confidence < 1 and p.evidence != "user"], layer_of[0])
    if not ambiguous or len({module_of(layer) for layer in layer_of[0].values()}) > MOST_CONFIRMED_LAYERS:
        return []
    groups = open_groups(ambiguous, *layer_of)
    members = [{name for path in group.sources for name in group.names(path)} for group in groups]
    names_in_question = set().union(*members)
    second = PartnerChoice(
        groups, [pairing for pairing in settled if pairing.source not in names_in_question], choice.trial
    )
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


class PartnerChoice:
    """Pairs and open groups of a trial, and what runs settle of them."""

    def __init__(self, groups: list[TrialGroup], pairings: list[Pairing], trial: TrialRuns) -> None:
        self._groups, self.pairings, self.trial = groups, pairings, trial
        self.new: list[Pairing] = []
        self._assumed: list[Pairing] = []
        self.reasons: dict[str, str] = {}
        self._asked: dict[tuple[str, ...], int] = {}
        self._questioned = uncertain_piece_orders(pairings)

    def settle(self) -> None:
        """Settle whatever can be settled."""
        while self.by_place() or self.by_outcome() or self.by_order():
            pass

    def reopen(self, groups: Sequence[Ambiguity]) -> None:
        """Open pairs again, together with what is open of their kind."""
        names = {name for group in groups for name in group.sources}
        self.pairings = [pairing for pairing in self.pairings if pairing.source not in names]
        for group in self._groups:
            group.leave(groups)
        self._groups += open_groups(groups, *self.trial.layer_of)

    def give_back(self, pairings: Sequence[Pairing]) -> None:
        """Make pairs again as they were."""
        self.pairings += pairings
        for group in self._groups:
            group.close(pairings)

    def free(self) -> tuple[list[Layer], list[Layer]]:
        """The layers of both sides that are still open."""
        sides = (
            ([*group.sources.values()] for group in self._groups),
            ([*group.targets.values()] for group in self._groups),
        )
        left, right = ([layer for layers in side for layer in layers] for side in sides)
        return left, right

    def question(self, orders: Sequence[list[Alternative]]) -> None:
        """Put these in question; of pairs that are made already the present order comes first."""
        self._questioned += orders

    def by_place(self) -> bool:
        """Settle layers that alone are given the same tensors; tell whether there were any."""
        return self._round(lambda place: place is True, again=False)

    def by_outcome(self) -> bool:
        """Settle layers of which neither the place nor the input tells, and those that did not settle before."""
        return self._round(bool, again=True) or self._round(lambda place: place is not False, again=True)

    def by_order(self) -> bool:
        """Put the pieces of fused tensors in question whose order is not sure; tell whether any was settled."""
        before = len(self.new)
        for orders in list(self._questioned):
            others = self.pairings
            self.pairings = [pairing for pairing in others if pairing not in orders[0]]
            best, reason = self._try(orders, set(), set())
            self._reason(orders, reason)
            if len(best) == 1:
                self._questioned.remove(orders)
                self.new += [replace(pairing, evidence="trial", confidence=1.0, note="") for pairing in best[0]]
            else:
                self.pairings = others
        return len(self.new) > before

    def _round(self, fits: Callable[[bool | None], bool], *, again: bool) -> bool:
        before = len(self.new)
        if not any(group.sources for group in self._groups):
            return False
        calls = self.trial.observe(self.settled())
        for group in self._groups:
            placed, called = not fits(None), calls.all_called(group)
            if placed and not called:  # one that is used past its module may be what stands there
                continue
            edges = group.edges(partial(_fits, calls, fits) if called else lambda *_: True)
            for sources, targets in components(edges):
                if placed and self._by_input(group, sources, targets):
                    continue
                key = (*sources, "", *targets)
                if key not in self._asked or (again and self._asked[key] < len(self.new)):
                    self._asked[key] = len(self.new)
                    self._ask(group, sources, targets, edges, hidden=not called)
        return len(self.new) > before

    def _by_input(self, group: TrialGroup, sources: list[str], targets: list[str]) -> bool:
        """Settle two layers of one kind that alone are given the same tensors."""
        pairings = _certain(group, sources, targets)
        self._take(group, pairings)
        return bool(pairings)

    def _ask(self, group: TrialGroup, sources: list[str], targets: list[str], edges: Edges, *, hidden: bool) -> None:
        """Try every choice; what layers themselves return counts nothing where some of them are never called."""
        alternatives = group.alternatives(sources, targets, edges)
        if not alternatives:
            self._leave(group, sources, TOO_MANY if alternatives is None else UNLIKE)
            return
        modules = {module_of(group.sources[path]) for path in sources}
        own = {module_of(group.targets[path]) for path in targets}
        best, reason = self._try(alternatives, modules, own, modules if hidden else set())
        if hidden and len(alternatives) == 1 and not self._mended(alternatives[0], modules):
            best, reason = [], BLIND
        common = set(best[0]).intersection(*best) if best else set()
        whole = [path for path in sources if group.names(path) <= {p.source for p in common}]
        names = {name for path in whole for name in group.names(path)}
        self._leave(group, [path for path in sources if path not in whole], reason)
        self._take(group, tuple(p for p in (best or alternatives)[0] if p.source in names))
        if reason == BLIND:  # any choice will do for what comes behind them
            self._assumed += alternatives[0]
            group.close(alternatives[0])

    def _try(
        self, alternatives: list[Alternative], modules: set[str], paths: set[str], hidden: Set[str] = frozenset()
    ) -> tuple[list[Alternative], str]:
        """Return the alternatives that fit best, and why if there are several or none.

        Where several fit alike, each is followed by what it would settle next: two branches may only meet later.
        """
        tried = dict(enumerate(alternatives))
        distinguished, reason = False, ""
        for _ in range(MOST_FOLLOWED_STEPS):
            runs = {n: self.trial.observe(self.settled(), tried[n]) for n in tried}
            compared = (runs[n].agreeing() | self._placed(runs[n]) for n in tried)
            seen = [frozenset(value for value in values if value[0] not in hidden) for values in compared]
            reason = reason or (UNLIKE if choice_matters(list(runs.values()), paths) else BLIND)
            best = _best(list(tried), seen, modules - hidden)
            if not best:
                return [], reason
            distinguished = distinguished or len(best) < len(alternatives)
            follow = {n: self._follow(runs[n], tried[n]) for n in best}
            if len(best) == 1 or not any(follow.values()):
                break
            tried = {n: (*tried[n], *follow[n]) for n in best}
        if not distinguished and len(alternatives) > 1:
            return [], ALIKE if reason == UNLIKE else reason
        return [alternatives[n] for n in best], ALIKE

    def _mended(self, alternative: Alternative, modules: set[str]) -> bool:
        """Tell whether more agrees with an alternative than without, beside the layers themselves."""
        runs = self.trial.observe(self.settled()), self.trial.observe(self.settled(), alternative)
        without, with_it = ({value for value in run.agreeing() if value[0] not in modules} for run in runs)
        return with_it > without

    def _placed(self, calls: PairedRuns) -> frozenset[ComparedValue]:
        """Open layers of the source that some open layer of the target is given the inputs of."""
        fits = partial(_fits, calls, bool)
        return frozenset(
            (path, 0, "place") for group in self._groups for path, found in group.edges(fits).items() if found
        )

    def _follow(self, calls: PairedRuns, alternative: Alternative) -> Alternative:
        """What would be settled next by the places of layers, if an alternative were right."""
        known = {p.source for p in alternative}
        followed: list[Pairing] = []
        for group in self._groups:
            for sources, targets in components(group.edges(partial(_fits, calls, bool))):
                pairings = _certain(group, sources, targets)
                followed += () if known & {p.source for p in pairings} else pairings
        return tuple(followed)

    def _take(self, group: TrialGroup, pairings: Alternative) -> None:
        self.new += pairings
        group.close(pairings)
        for pairing in pairings:
            self.reasons.pop(pairing.source, None)

    def _reason(self, orders: Sequence[Alternative], reason: str) -> None:
        self.reasons |= {name: reason for pairing in orders[0] for name in (pairing.source, pairing.target)}

    def _leave(self, group: TrialGroup, sources: Iterable[str], reason: str) -> None:
        self.reasons |= {name: reason for path in sources for name in group.names(path)}

    def settled(self) -> list[Pairing]:
        """All pairings, the new ones and those of which nothing depends on the choice last."""
        return [*self.pairings, *self.new, *self._assumed]


def _fits(calls: PairedRuns, fits: Callable[[bool | None], bool], a: Layer, b: Layer) -> bool:
    return fits(calls.same_place(module_of(a), module_of(b)))


def _certain(group: TrialGroup, sources: Sequence[str], targets: Sequence[str]) -> Alternative:
    """The pairings of two layers of one known kind, if they are the only ones and can be joined in one form only."""
    if not len(sources) == len(targets) == 1:
        return ()
    a, b = group.sources[sources[0]], group.targets[targets[0]]
    forms = group.forms(a.path, b.path)
    return forms[0] if len(forms) == 1 and a.kind and a.kind == b.kind else ()


def _best(tried: Sequence[int], seen: Sequence[frozenset[ComparedValue]], modules: set[str]) -> list[int]:
    """Those that make agree whatever any of them does; in one of them at least, the layers themselves have to."""
    most: frozenset[ComparedValue] = frozenset().union(*seen)
    if not modules <= {path for path, _, what in most if what == "out"} and len(tried) == 1:
        return []
    return [number for number, agreeing in zip(tried, seen, strict=True) if agreeing == most]


# Pairs that names make sure and a run contradicts: layers that are given what another of their kind is given.
#
# Names cannot know that a port calls `norm1` where the original calls `norm2`. The values are right, so the run
# decides, and what it does not decide is open. Layers that are given the same tensors (query, key and value) show it
# one layer later, where what they return meets; their exchange is tried where that place is given something else.

CROSSED = sentence("pair_note.crossed_in_run")
# What names and shapes say may be doubted; what the user, equal values or a run say may not.
_CERTAIN = ("user", "values", "trial", "dataflow")


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Groups of pairs, by role, in which layers stand in another's place, and the names of those that surely do."""

    groups: list[Ambiguity]
    crossed: set[str]

    def __bool__(self) -> bool:
        return bool(self.groups)


def contradicted_pairs(
    pairings: Sequence[Pairing], calls: PairedRuns, layer_of: Layers, free: tuple[Sequence[Layer], Sequence[Layer]]
) -> Contradiction:
    """What a run with all pairs contradicts: a layer is given what the counterpart of another one is given.

    Its rivals that are given anything else than their counterparts are in question with it, and those that are `free`.
    """
    joined = _layers(pairings, layer_of)
    off = {a: b for a, b in calls.modules.items() if a in joined and calls.same_place(a, b) is False}
    sources = [*(joined[a][0] for a in off), *free[0]]
    targets = [*(joined[a][1] for a in off), *free[1]]
    crossed = {a for a in off if any(_stands(calls, joined[a][0], b) for b in targets)}
    crossed |= {a for a in off if any(_stands(calls, one, joined[a][1]) for one in sources)}
    groups = []
    for form in dict.fromkeys(_form(joined[a][0]) for a in off if a in crossed):
        sides = (
            [layer for layer in sources if _form(layer) == form],
            [layer for layer in targets if _form(layer) == form],
        )
        groups += [_group(role, *sides) for role in sides[0][0].roles]
    return Contradiction(groups, {p.source for a in crossed for p in joined[a][2]})


def _form(layer: Layer) -> tuple[str, Signature]:
    return layer.kind, layer.signature


def _stands(calls: PairedRuns, a: Layer, b: Layer) -> bool:
    return _form(a) == _form(b) and bool(calls.same_place(module_of(a), module_of(b)))


def _group(role: str, sources: Sequence[Layer], targets: Sequence[Layer]) -> Ambiguity:
    left, right = ([one.roles[role].name for one in side if role in one.roles] for side in (sources, targets))
    return Ambiguity(tuple(left), tuple(right), CROSSED)


def sibling_orders(pairings: Sequence[Pairing], calls: PairedRuns, layer_of: Layers) -> list[list[Alternative]]:
    """Every order of siblings before a layer that is given something else than its counterpart; the present one first.

    Siblings are paired layers of one kind and shape that are given the same tensors.
    """
    joined = {path: both for path, both in _layers(pairings, layer_of).items() if path in calls.modules}
    order = [path for path, call in calls.source.outputs if not call and path in joined]
    off = {path for path in order if calls.same_place(path, calls.modules[path]) is False}
    if not off:
        return []
    groups: dict[str, list[str]] = {}
    doubted: dict[tuple[str, ...], list[Alternative]] = {}
    for path in order:
        if path in off:
            nearest = [tuple(group) for group in reversed(groups.values()) if len(group) > 1][:1]
            doubted |= {group: _orders(group, joined, layer_of) for group in nearest if group not in doubted}
        first = next((one for one in groups if _siblings(calls, joined, one, path)), path)
        members = groups.pop(first, [])
        groups[first] = [*members, path]
    return [orders for orders in doubted.values() if len(orders) > 1][:MOST_SIBLING_GROUPS]


def _layers(pairings: Sequence[Pairing], layer_of: Layers) -> dict[str, tuple[Layer, Layer, list[Pairing]]]:
    """The two layers and the pairings of each module of the source that may be doubted."""
    by_path: dict[str, tuple[Layer, Layer, list[Pairing]]] = {}
    for pairing in pairings:
        a, b = layer_of[0].get(pairing.source), layer_of[1].get(pairing.target)
        if a and b and pairing.evidence not in _CERTAIN:
            by_path.setdefault(a.path, (a, b, []))[2].append(pairing)
    return by_path


def _alike(layer: Layer, joined: Mapping[str, tuple[Layer, Layer, list[Pairing]]], target: str) -> bool:
    return any(
        b.path == target and (a.kind, a.signature) == (layer.kind, layer.signature) for a, b, _ in joined.values()
    )


def _by_role(pairings: Sequence[Pairing], layer_of: Mapping[str, Layer]) -> Iterator[Ambiguity]:
    roles: dict[str, list[Pairing]] = {}
    for pairing in pairings:
        own = layer_of[pairing.source].roles
        roles.setdefault(next(role for role, p in own.items() if p.name == pairing.source), []).append(pairing)
    for group in roles.values():
        yield Ambiguity(tuple(p.source for p in group), tuple(p.target for p in group), CROSSED)


def _siblings(
    calls: PairedRuns, joined: Mapping[str, tuple[Layer, Layer, list[Pairing]]], path: str, other: str
) -> bool:
    a, b = joined[path][0], joined[other][0]
    if (a.kind, a.signature) != (b.kind, b.signature) or calls.source.calls(path) != calls.source.calls(other):
        return False
    given = calls.source.inputs
    return all(agree(given.get((path, n), ()), given.get((other, n), ())) for n in range(calls.source.calls(path)))


def _orders(
    group: Sequence[str], joined: Mapping[str, tuple[Layer, Layer, list[Pairing]]], layer_of: Layers
) -> list[Alternative]:
    present = tuple(p for path in group for p in joined[path][2])
    groups = open_groups(list(_by_role(present, layer_of[0])), *layer_of)
    if len(groups) != 1:
        return []
    edges = groups[0].edges(lambda *_: True)
    others = groups[0].alternatives(list(groups[0].sources), list(groups[0].targets), edges) or []
    same = {(p.source, p.target) for p in present}
    return [present, *(one for one in others if {(p.source, p.target) for p in one} != same)]
