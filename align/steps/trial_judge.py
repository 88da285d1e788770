"""Which choice of partners the values tell: by what layers are given, and by what comes of each choice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from align.steps.trial_groups import components
from align.steps.trial_sinks import agree, distance, varies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from align.core.names import Pairing
    from align.steps.layers import Layer
    from align.steps.trial_groups import Alternative, Edges, OpenGroup
    from align.steps.trial_sinks import CallKey, Watch

Sight = tuple[str, int, str]

BLIND = "blind: nothing that the run captured depends on which is which"
ALIKE = "the trial gives the same outputs for several choices"
UNLIKE = "the trial gives the source's values for none of the choices: something else differs around them"
TOO_MANY = "too many choices for a trial"


class Bench(Protocol):
    """Runs the target with an assignment."""

    def observe(self, forced: Iterable[Pairing], loaded: Iterable[Pairing] = ()) -> Calls:
        """Load both kinds of pairings and run; layers of the first kind return what the source's returned."""
        ...


@dataclass(frozen=True)
class Calls:
    """A run of the target beside that of the source; `modules` are the paths of paired ones."""

    source: Watch
    target: Watch
    modules: dict[str, str]

    def agreeing(self) -> frozenset[Sight]:
        """Inputs and outputs of paired modules, and the model's outputs, that are the source's."""
        found = []
        for path, other in (*self.modules.items(), ("", "")):
            for call in range(self.source.calls(path)):
                found += [(path, call, "in")] * self._equal("inputs", (path, call), (other, call))
                found += [(path, call, "out")] * self._equal("outputs", (path, call), (other, call))
        return frozenset(found)

    def same_place(self, a: str, b: str) -> bool | None:
        """Tell whether two modules are given the same tensors at every call; None if one's are not known."""
        calls = self.source.calls(a)
        if not calls or not self.target.calls(b):
            return None
        pairs = [(self.source.inputs.get((a, n), ()), self.target.inputs.get((b, n), ())) for n in range(calls)]
        if not all(any(varies(sample) for sample in samples) for pair in pairs for samples in pair):
            return None
        return calls == self.target.calls(b) and all(agree(*pair) for pair in pairs)

    def _equal(self, what: str, one: CallKey, two: CallKey) -> bool:
        return agree(getattr(self.source, what).get(one, ()), getattr(self.target, what).get(two, ()))


def settle_groups(
    groups: Sequence[OpenGroup], pairings: Sequence[Pairing], bench: Bench
) -> tuple[list[Pairing], dict[str, str]]:
    """New pairings of open groups, and the reason why each source name stays open that does."""
    jury = _Jury(list(groups), list(pairings), bench)
    while jury.by_place() or jury.by_outcome():
        pass
    return jury.new, jury.reasons


class _Jury:
    def __init__(self, groups: list[OpenGroup], pairings: list[Pairing], bench: Bench) -> None:
        self._groups, self._pairings, self._bench = groups, pairings, bench
        self.new: list[Pairing] = []
        self.reasons: dict[str, str] = {}
        self._asked: dict[tuple[str, ...], int] = {}

    def by_place(self) -> bool:
        """Settle layers that alone are given the same tensors; tell whether there were any."""
        return self._round(lambda place: place is True, again=False)

    def by_outcome(self) -> bool:
        """Settle layers of which neither the place nor the input tells, and those that did not settle before."""
        return self._round(lambda place: place is None, again=True) or self._round(bool, again=True)

    def _round(self, fits: Callable[[bool | None], bool], *, again: bool) -> bool:
        before = len(self.new)
        calls = self._bench.observe(self._settled()) if any(group.sources for group in self._groups) else None
        for group in self._groups if calls else ():
            edges = group.edges(partial(_fits, calls, fits))
            for sources, targets in components(edges):
                if self._by_input(group, sources, targets):
                    continue
                key = (*sources, "", *targets)
                if key not in self._asked or (again and self._asked[key] < len(self.new)):
                    self._asked[key] = len(self.new)
                    self._ask(group, sources, targets, edges)
        return len(self.new) > before

    def _by_input(self, group: OpenGroup, sources: list[str], targets: list[str]) -> bool:
        """Settle two layers of one kind that alone are given the same tensors."""
        if not len(sources) == len(targets) == 1:
            return False
        a, b = group.sources[sources[0]], group.targets[targets[0]]
        forms = group.forms(a.path, b.path)
        if not (len(forms) == 1 and a.kind and a.kind == b.kind):
            return False
        self._take(group, forms[0])
        return True

    def _ask(self, group: OpenGroup, sources: list[str], targets: list[str], edges: Edges) -> None:
        alternatives = group.alternatives(sources, targets, edges)
        if not alternatives:
            self._leave(group, sources, TOO_MANY if alternatives is None else UNLIKE)
            return
        runs = [self._bench.observe(self._settled(), alternative) for alternative in alternatives]
        best = _best(alternatives, [run.agreeing() for run in runs], {_module(group.sources[s]) for s in sources})
        common = set(best[0]).intersection(*best) if best else set()
        whole = [path for path in sources if group.names(path) <= {p.source for p in common}]
        names = {name for path in whole for name in group.names(path)}
        own = {_module(group.targets[path]) for path in targets}
        self._leave(group, [path for path in sources if path not in whole], _reason(runs, own, bool(best)))
        self._take(group, tuple(p for p in (best or alternatives)[0] if p.source in names))

    def _take(self, group: OpenGroup, pairings: Alternative) -> None:
        self.new += pairings
        group.close(pairings)
        for pairing in pairings:
            self.reasons.pop(pairing.source, None)

    def _leave(self, group: OpenGroup, sources: Iterable[str], reason: str) -> None:
        self.reasons |= {name: reason for path in sources for name in group.names(path)}

    def _settled(self) -> list[Pairing]:
        return [*self._pairings, *self.new]


def _fits(calls: Calls, fits: Callable[[bool | None], bool], a: Layer, b: Layer) -> bool:
    return fits(calls.same_place(_module(a), _module(b)))


def _module(layer: Layer) -> str:
    return next(iter(layer.roles.values())).module


def _best(
    alternatives: Sequence[Alternative], agreeing: Sequence[frozenset[Sight]], modules: set[str]
) -> list[Alternative]:
    """Those alternatives that make agree whatever any of them does, where others do not.

    A lone alternative has to show in the outputs of its own modules.
    """
    if len(alternatives) == 1:
        shown = {path for path, _, what in agreeing[0] if what == "out"}
        return list(alternatives) if modules <= shown else []
    most = frozenset[Sight]().union(*agreeing)
    best = [one for one, seen in zip(alternatives, agreeing, strict=True) if seen == most]
    return best if len(best) < len(alternatives) else []


def _reason(runs: Sequence[Calls], own: set[str], told: bool) -> str:
    if not any(_unlike(runs[0].target, run.target, own) for run in runs[1:]):
        return BLIND
    return ALIKE if told else UNLIKE


def _unlike(one: Watch, two: Watch, own: set[str]) -> bool:
    """Tell whether two runs of the target differ elsewhere than in the modules that were filled differently."""
    return any(
        distance(a, b) > 0
        for key, samples in one.outputs.items()
        if key[0] not in own
        for a, b in zip(samples, two.outputs.get(key, ()), strict=False)
    )
