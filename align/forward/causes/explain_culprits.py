"""The causes that are confirmed by trying the change in the port: weights, settings, layers without counterpart.

One run tries a change of every open fault, since each is seen alone: what answers in the place of a layer is the layer
rebuilt with the changed setting, and weights that differ are the reference's for the time of the trials. Of the layers
that have no counterpart nobody knows whether they are at fault: so theirs are tried only where something behind them
is, and reported only if they mend it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from align.core.protocols import LayerRebuilder, SettingsReader
from align.forward.causes.compare_live_weights import Owner
from align.forward.causes.rebuild_layer import changes_for, nothing_for, planned_kind, rebuilt_layer, same_windows
from align.forward.causes.settings_to_try import (
    count_changed_settings,
    findings_around,
    findings_of,
    findings_of_unpaired,
    keeping_size,
    other_kind,
)
from align.forward.causes.suspects import (
    WEIGHTS,
    at_layer,
    is_worse,
    suspects_of,
    with_findings,
    with_layer,
    with_weights,
)
from align.forward.isolation.locate_faults import ProducerLayer, unpaired_before
from align.forward.thresholds import MOST_LEFT_OUT, MOST_UNPAIRED_TRIALS
from align.models.open_side import fill_in_order
from align.models.rebuild_from_settings import with_attributes
from align.models.restore_state import restored_attributes
from align.models.source_lines import layer_at
from align.rules.pitfalls import pitfalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

    from align.core.layer_settings import LayerSettings, Setting
    from align.core.protocols import Model
    from align.forward.causes.compare_live_weights import Weights
    from align.forward.causes.rebuild_layer import LayerPlan
    from align.forward.causes.settings_to_try import BothSettings
    from align.forward.causes.suspects import Suspect
    from align.forward.forward_result import Culprit
    from align.forward.isolation.bench import Bench
    from align.forward.isolation.isolate_layers import IsolatedLayers
    from align.forward.isolation.isolated_calls import IsolatedCall
    from align.lint.lint_result import SettingFinding
    from align.models.open_side import Side
    from align.traces.module_calls import CallKey


def explain_culprits(
    reference: Side, bench: Bench, alone: IsolatedLayers, weights: Weights, settings: BothSettings
) -> tuple[Suspect, ...]:
    """Name the causes of faults that a trial confirms; what no trial explains keeps no cause.

    Each step tries only what those before left open. What weights alone explain that were never given is left out.
    """
    trials = Trials(reference, bench, alone, weights, settings)
    suspects = suspects_of(alone.faults)
    with right_weights(bench.side, weights):
        suspects = _explained(suspects, try_weights(trials, suspects))
        suspects = _explained(suspects, try_settings(trials, _open(suspects)))
        suspects = _explained(suspects, try_around(trials, _open(suspects)))
        suspects = _explained(suspects, try_unpaired(trials, _open(suspects)))
    return tuple(_once(one for one in suspects if not (weights.never_given and one.culprit.cause == WEIGHTS)))


def _once(suspects: Iterable[Suspect]) -> Iterator[Suspect]:
    """Leave out what one change of one layer ends that shows in several places, but for the first."""
    seen: list[tuple[object, ...]] = []
    for suspect in suspects:
        culprit = suspect.culprit
        change = culprit.candidate, culprit.part, culprit.cause, culprit.layer, culprit.arguments
        if culprit.sureness != "confirmed" or not (culprit.layer or culprit.arguments) or change not in seen:
            yield suspect
        seen.append(change)


def _open(suspects: Sequence[Suspect]) -> list[Suspect]:
    """Those that no step has explained yet."""
    return [one for one in suspects if not one.is_explained]


def _explained(suspects: Sequence[Suspect], found: Iterable[Suspect]) -> tuple[Suspect, ...]:
    """All suspects, with the causes that one step found."""
    explained = {one.key: one for one in found}
    return tuple(explained.get(one.key, one) for one in suspects)


@contextmanager
def right_weights(side: Side, weights: Weights) -> Iterator[None]:
    """Give the candidate the values that it should hold for a while."""
    if weights.meant:
        fill_in_order(side, {**weights.held, **weights.meant})
    try:
        yield
    finally:
        if weights.meant:
            fill_in_order(side, weights.held)


NOBODY = Owner("")


@dataclass(frozen=True, slots=True)
class Trials:
    """All that a trial reads: both sides, the port's layers alone, its weights, and the settings of layers by path."""

    reference: Side
    bench: Bench
    alone: IsolatedLayers
    weights: Weights
    settings: BothSettings

    def run(self, layers: Mapping[str, Model] | None = None) -> Mapping[CallKey, IsolatedCall]:
        """Run the port once more, its layers alone, with other ones in the place of some of them."""
        return self.bench.run(self.alone.way, layers).calls

    def owner(self, path: str) -> Owner:
        """The layer of the reference that holds the parameters of one of the port's."""
        return self.weights.owners.get(path, NOBODY)


def try_weights(trials: Trials, suspects: Sequence[Suspect]) -> Iterator[Suspect]:
    """Run the port with the reference's weights, where its own differ; yields those that this mends."""
    weights = trials.weights
    calls = trials.run() if weights.meant else {}
    for suspect in suspects:
        if suspect.is_mended(calls):
            owner = _latest_filled(suspect, calls, weights)
            yield replace(suspect, culprit=with_weights(suspect.culprit, owner, weights.causes))


def _latest_filled(suspect: Suspect, calls: Mapping[CallKey, IsolatedCall], weights: Weights) -> ProducerLayer | None:
    """The latest layer without counterpart that holds other values and was called before a fault shows."""
    fault = suspect.fault
    if fault.pair.candidate.module in weights.modules:
        return None
    shows = calls[fault.key].begun if fault.part == "inputs" else calls[fault.key].ended
    before = [(key, call) for key, call in calls.items() if call.samples and call.ended <= shows]
    owners = [(call.ended, ProducerLayer(key[0], call.class_name)) for key, call in before if key[0] in weights.modules]
    return max(owners, key=lambda one: one[0])[1] if owners else None


@dataclass(frozen=True, slots=True)
class Change:
    """Findings of one layer that a change ends, and how the layer is built that has it; None where it cannot be.

    It is `guessed` where nothing says that the layer is at fault. `plan` is what stands in its place, if that is known
    before.
    """

    findings: tuple[SettingFinding, ...]
    build: Callable[[], Model | None]
    guessed: bool = False
    plan: LayerPlan | None = None

    @property
    def path(self) -> str:
        """The layer of the port."""
        return self.findings[0].candidate

    @property
    def arguments(self) -> dict[str, Setting]:
        """The arguments of its constructor that change; none for a layer of another class."""
        return changes_for(*self.findings)

    def fits(self, layer: Model) -> bool:
        """Tell whether a live layer keeps its arguments as attributes of their names."""
        return bool(self.arguments) and self.arguments.keys() <= vars(layer).keys()

    @property
    def would_explain(self) -> bool:
        """Tell whether it is a cause though nobody tried it."""
        return not self.guessed and len(self.findings) == 1 and self.findings[0].severity == "error"


Waiting = list[tuple["Suspect", list[Change]]]
Tried = tuple["Suspect", Change, bool]  # what it mends, and whether it was tried


def try_settings(trials: Trials, suspects: Sequence[Suspect]) -> Iterator[Suspect]:
    """Try what the settings suggest for each layer: each finding alone, then all together, then a rival.

    Yields what a change mends, and what one explains that could not be tried.
    """
    owners = {path: one.path for path, one in trials.weights.owners.items()}
    found = findings_of([one.fault for one in suspects], trials.settings, pitfalls(), owners)
    waiting: Waiting = []
    for suspect in suspects:
        path = suspect.fault.path
        changes = _changes(trials, path, found.get(path, ()))
        if suspect.fault.made_by:
            changes.sort(key=partial(_count_moved, trials))
        waiting.append((suspect, [*changes, *_rivals(trials, path)]))
    for suspect, change, confirmed in _in_turns(trials, waiting):
        culprit = with_findings(suspect.culprit, change.findings, confirmed=confirmed)
        culprit = _with_plan(trials, culprit, change) if confirmed else culprit
        also = confirmed and suspect.fault.path in trials.weights.modules  # it was tried with the reference's weights
        yield replace(suspect, culprit=replace(culprit, cause=f"{culprit.cause} + {WEIGHTS}") if also else culprit)


def try_around(trials: Trials, suspects: Sequence[Suspect]) -> Iterator[Suspect]:
    """Try the settings that differ by name in the modules around what is wrong between layers, on the live modules."""
    for suspect in suspects:
        findings = () if suspect.fault.part == "layer" else findings_around(suspect.fault, trials.settings)
        for finding in findings:
            module = layer_at(trials.bench.side.model, finding.candidate)
            with restored_attributes([module]):
                with_attributes(module, finding.arguments)
                calls = trials.run()
            if suspect.is_mended(calls) and not is_worse(calls, trials.alone.calls):
                yield replace(suspect, culprit=with_findings(suspect.culprit, [finding], confirmed=True))
                break


def try_unpaired(trials: Trials, suspects: Sequence[Suspect]) -> Iterator[Suspect]:
    """Try layers without counterpart that were called before a fault shows; yields what one of them mends."""
    waiting: Waiting = []
    for suspect in suspects:
        changes: list[Change] = []
        left_out: list[Change] = []
        for path in unpaired_before(suspect.fault, trials.alone.calls):
            found = findings_of_unpaired((trials.owner(path).path, path), trials.settings, pitfalls())
            changes += [*_changes(trials, path, found)[: len(found)], *_rivals(trials, path)]
            left_out += _left_out(trials, path)
        tried = [*changes[:MOST_UNPAIRED_TRIALS], *left_out[:MOST_LEFT_OUT]]
        waiting.append((suspect, [replace(one, guessed=True) for one in tried]))
    for suspect, change, _ in _in_turns(trials, waiting):
        calls = _run_with(trials, [change])[2]  # by itself, not with others as in that run
        if suspect.is_mended(calls) and not is_worse(calls, trials.alone.calls):
            layer = ProducerLayer(change.path, change.findings[0].candidate_class)
            culprit = with_findings(at_layer(suspect.culprit, layer), change.findings, confirmed=True)
            culprit = _with_plan(trials, culprit, change)
            yield replace(suspect, culprit=culprit)


def _with_plan(trials: Trials, culprit: Culprit, change: Change) -> Culprit:
    """Name the layer of another class that was tried, with its arguments."""
    if change.arguments:
        return culprit
    plan = change.plan or planned_kind(trials.reference, change.findings[0].reference, trials.bench.side)
    return culprit if plan is None else with_layer(culprit, plan)


def _in_turns(trials: Trials, waiting: Waiting) -> Iterator[Tried]:
    """Try one change of every suspect a run, and of a layer that several wait for, one a run."""
    while any(changes for _, changes in waiting):
        asked: dict[str, tuple[Suspect, Change]] = {}
        for suspect, changes in waiting:
            if changes and (path := changes[0].path) not in asked:
                asked[path] = suspect, changes.pop(0)
        built, live, calls = _run_with(trials, [change for _, change in asked.values()])
        for suspect, change in asked.values():
            mended = change.path in built | live and suspect.is_mended(calls)
            if mended or (change.path not in built and change.would_explain):
                yield suspect, change, mended
                waiting = [(other, own) for other, own in waiting if other is not suspect]


def _run_with(trials: Trials, changes: Sequence[Change]) -> tuple[Set[str], Set[str], Mapping[CallKey, IsolatedCall]]:
    """Run the port with changes: the layers that were built for it, those that were set, and what was seen."""
    layers = {one.path: one.build() for one in changes}
    built = {path: layer for path, layer in layers.items() if layer is not None}
    with _set_on_live_layers(trials.bench.side, [one for one in changes if one.path not in built]) as live:
        return built.keys(), live, trials.run(built) if built or live else {}


@contextmanager
def _set_on_live_layers(side: Side, changes: Sequence[Change]) -> Iterator[set[str]]:
    """Set what changes ask for as attributes where a layer has such, and yield the paths; a run shows if it counts."""
    layers = {one.path: layer_at(side.model, one.path) for one in changes if isinstance(side.reader, LayerRebuilder)}
    with restored_attributes([*layers.values()]):
        fitting = [one for one in changes if one.path in layers and one.fits(layers[one.path])]
        for one in fitting:
            with_attributes(layers[one.path], one.arguments)
        yield {one.path for one in fitting}


def _changes(trials: Trials, path: str, findings: Sequence[SettingFinding]) -> list[Change]:
    """What ends each finding of a layer alone, and what ends all."""
    sides, piece = (trials.reference, trials.bench.side), trials.owner(path).piece
    layer = trials.settings[1].get(path)
    sized = keeping_size(findings, layer) if layer is not None else None
    together = [(one,) for one in (*findings, *filter(None, [sized]))] + (
        [tuple(findings)] if len(findings) > 1 else []
    )
    return [Change(one, partial(rebuilt_layer, *sides, *one, piece=piece)) for one in together]


def _rivals(trials: Trials, path: str) -> list[Change]:
    """Layers that work on the same windows, but to another end."""
    layer = trials.settings[1].get(path)
    return [] if layer is None else list(_others(trials, layer, same_windows(layer)))


def _left_out(trials: Trials, path: str) -> list[Change]:
    """The layer left out: one in its place that returns what it is given."""
    layer = trials.settings[1].get(path)
    plan = nothing_for(layer) if layer is not None else None
    return [] if layer is None or plan is None else list(_others(trials, layer, [plan]))


def _others(trials: Trials, layer: LayerSettings, plans: Iterable[LayerPlan]) -> Iterator[Change]:
    """Layers of other classes in the place of one."""
    reader = trials.bench.side.reader
    if isinstance(reader, LayerRebuilder):
        for plan in plans:
            build = partial(reader.built, plan.class_name, plan.arguments)
            yield Change((other_kind(layer, plan.class_name),), build, plan=plan)


def _count_moved(trials: Trials, change: Change) -> int:
    """How many settings of a layer a change moves: the one that moves fewest says most."""
    layer, reader = change.build(), trials.bench.side.reader
    if layer is None or not isinstance(reader, SettingsReader):
        return len(trials.settings[1])
    return count_changed_settings(trials.settings[1][change.path], reader.read_settings(layer)[0], pitfalls())
