"""Changes of layers tried in the port: what answers in the place of a layer is the layer with the change.

One run tries a change of every open fault, since each is seen alone. Of the layers that have no counterpart nobody
knows whether they are at fault: so theirs are tried only where something behind them is, and told only if they mend it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from align.core.protocols import LayerRebuilder, SettingsReader
from align.forward.causes.changes_to_try import changes_for, same_windows
from align.forward.causes.culprits import findings_of, findings_of_unpaired, is_mended
from align.forward.causes.rebuild_layer import Owner, rebuilt_layer
from align.forward.causes.settings_without_rules import count_changed_settings, other_kind
from align.forward.isolation.locate_faults import unpaired_before
from align.models.rebuild_from_settings import with_attributes
from align.models.restore_state import restored_attributes
from align.rules.pitfalls import pitfalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence, Set

    from align.core.layer_settings import LayerSettings, Setting
    from align.core.protocols import Model
    from align.core.transforms import Transform
    from align.forward.isolation.isolate_layers import Bench, IsolatedLayers
    from align.forward.isolation.isolated_calls import IsolatedCall
    from align.forward.isolation.locate_faults import Fault
    from align.lint.lint_result import SettingFinding
    from align.models.open_side import Side
    from align.traces.pair_inputs import CallKey

MOST_TRIALS = 8  # changes of layers without counterpart, for each fault
NOBODY = Owner("")

Settings = tuple["Mapping[str, LayerSettings]", "Mapping[str, LayerSettings]"]


@dataclass(frozen=True, slots=True)
class Change:
    """Findings of one layer that a change ends, and how the layer is built that has it; None where it cannot be.

    It is `guessed` where nothing says that the layer is at fault.
    """

    findings: tuple[SettingFinding, ...]
    build: Callable[[], Model | None]
    guessed: bool = False

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


Tried = tuple["list[Fault]", Change, bool]  # what it mends, and whether it was tried


def try_settings(
    reference: Side, bench: Bench, groups: Sequence[list[Fault]], alone: IsolatedLayers, owners: Mapping[str, Owner]
) -> Iterator[Tried]:
    """Try what the settings suggest for each layer: each finding alone, then all together, then a rival.

    `owners` are the layers of the reference that hold the parameters of a layer of the port. Yields the changes that
    mend a layer, and those that could not be tried.
    """
    settings = settings_of(reference), settings_of(bench.side)
    found = findings_of(
        [group[0] for group in groups], settings, pitfalls(), {path: one.path for path, one in owners.items()}
    )
    waiting = []
    for group in groups:
        path = group[0].path
        changes = _changes(reference, bench.side, found.get(path, ()), owners.get(path, NOBODY).piece)
        if group[0].made_by:
            changes.sort(key=partial(_moved, bench.side, settings[1]))
        waiting.append((group, [*changes, *_rivals(bench.side, settings[1].get(path))]))
    yield from _in_turns(bench, alone, waiting)


def try_unpaired(
    reference: Side, bench: Bench, groups: Sequence[list[Fault]], alone: IsolatedLayers, owners: Mapping[str, Owner]
) -> Iterator[Tried]:
    """Try layers without counterpart that were called before a fault shows; yields those that mend it."""
    settings = settings_of(reference), settings_of(bench.side)
    waiting = []
    for group in groups:
        changes: list[Change] = []
        for path in unpaired_before(group[0], alone.calls):
            owner = owners.get(path, NOBODY)
            found = findings_of_unpaired((owner.path, path), settings, pitfalls())
            changes += _changes(reference, bench.side, found, owner.piece)[: len(found)]
            changes += _rivals(bench.side, settings[1].get(path))
        waiting.append((group, [replace(one, guessed=True) for one in changes[:MOST_TRIALS]]))
    for group, change, tried in _in_turns(bench, alone, waiting):
        if is_mended(group, _run_with(bench, alone, [change])[2]):  # by itself, not by another one of that run
            yield group, change, tried


def settings_of(side: Side) -> dict[str, LayerSettings]:
    """Settings of all layers of a side by path, none where its framework's are not read."""
    if not isinstance(side.reader, SettingsReader):
        return {}
    return {layer.path: layer for layer in side.reader.read_settings(side.model)}


def module_at(model: Model, path: str) -> Any:
    """The live module at a path."""
    return reduce(getattr, path.split(".") if path else [], model)


def _in_turns(
    bench: Bench, alone: IsolatedLayers, waiting: Sequence[tuple[list[Fault], list[Change]]]
) -> Iterator[Tried]:
    """Try one change of every group a run, and of a layer that several wait for, one a run."""
    while any(changes for _, changes in waiting):
        asked: dict[str, tuple[list[Fault], Change]] = {}
        for group, changes in waiting:
            if changes and (path := changes[0].path) not in asked:
                asked[path] = group, changes.pop(0)
        built, live, calls = _run_with(bench, alone, [change for _, change in asked.values()])
        for group, change in asked.values():
            mended = change.path in built | live and is_mended(group, calls)
            if mended or (change.path not in built and change.would_explain):
                yield group, change, mended
                waiting = [(other, own) for other, own in waiting if other is not group]


def _run_with(
    bench: Bench, alone: IsolatedLayers, changes: Sequence[Change]
) -> tuple[Set[str], Set[str], Mapping[CallKey, IsolatedCall]]:
    """Run the port with changes: the layers that were built for it, those that were set, and what was seen."""
    layers = {one.path: one.build() for one in changes}
    built = {path: layer for path, layer in layers.items() if layer is not None}
    with _set_on_live_layers(bench.side, [one for one in changes if one.path not in built]) as live:
        return built.keys(), live, bench.run(alone.way, built).calls if built or live else {}


@contextmanager
def _set_on_live_layers(side: Side, changes: Sequence[Change]) -> Iterator[set[str]]:
    """Set what changes ask for as attributes where a layer has such, and yield the paths; a run tells if it counts."""
    layers = {one.path: module_at(side.model, one.path) for one in changes if isinstance(side.reader, LayerRebuilder)}
    with restored_attributes([*layers.values()]):
        fitting = [one for one in changes if one.path in layers and one.fits(layers[one.path])]
        for one in fitting:
            with_attributes(layers[one.path], one.arguments)
        yield {one.path for one in fitting}


def _changes(reference: Side, side: Side, findings: Sequence[SettingFinding], piece: Transform) -> list[Change]:
    """What ends each finding of a layer alone, and what ends all."""
    together = [(one,) for one in findings] + ([tuple(findings)] if len(findings) > 1 else [])
    return [Change(one, partial(rebuilt_layer, reference, side, *one, piece=piece)) for one in together]


def _rivals(side: Side, layer: LayerSettings | None) -> list[Change]:
    """Layers that work on the same windows, but to another end."""
    reader = side.reader
    if layer is None or not isinstance(reader, LayerRebuilder):
        return []
    return [
        Change((other_kind(layer, plan.class_name),), partial(reader.built, plan.class_name, plan.arguments))
        for plan in same_windows(layer)
    ]


def _moved(side: Side, settings: Mapping[str, LayerSettings], change: Change) -> int:
    """How many settings of a layer a change moves: the one that moves fewest says most."""
    layer = change.build()
    if layer is None or not isinstance(side.reader, SettingsReader):
        return len(settings)
    return count_changed_settings(settings[change.path], side.reader.read_settings(layer)[0], pitfalls())
