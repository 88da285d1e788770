"""What names and shapes leave open is settled by values: both models run on random ones, and the data flow tells.

Every layer that is paired already returns what its counterpart returned, so each open layer is seen where it stands, as
if all around it were right. Layers that are given the same tensors are the same layer; where several are (query, key and
value), each choice is loaded, and what comes behind them tells.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import numpy as np

from align.core.pieces import apart_from_whole
from align.core.progress import silent
from align.steps.layers import read_layers
from align.steps.trial_groups import open_groups
from align.steps.trial_judge import Calls, settle_groups
from align.steps.trial_result import with_trial
from align.steps.trial_sinks import Watch
from align.steps.trial_values import Calibration, distinct_values, neutral_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.names import NameMap, Pairing
    from align.core.progress import Progress
    from align.steps.layers import Layer
    from align.workflows.sides import Side

SEED = 0


def settle_by_trial(
    source: Side, target: Side, name_map: NameMap, inputs: Mapping[str, Array], progress: Progress = silent
) -> NameMap:
    """Return the map with those ambiguous groups settled that a run with distinct values tells apart.

    Both models get random values for the time of the trial and have their own back afterwards, also after a failure.
    Pairs that the user gave, and pairs of confidence 1, stay. What no captured output shows is said to be blind.
    """
    with ExitStack() as stack:
        bench = _Bench(source, target, name_map, inputs, progress)
        stack.enter_context(bench.values[0].restored())
        stack.enter_context(bench.values[1].restored())
        bench.prepare()
        groups = open_groups(name_map.ambiguous, *bench.layer_of)
        settled, reasons = settle_groups(groups, name_map.pairings, bench)
    return with_trial(name_map, settled, reasons, tuple(bench.layer_of[0]))


class _Values:
    """The values of a live model by the names that it had at first: a run may rename a MindSpore parameter."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self.own = side.reader.read_values(side.model)

    def load(self, values: Mapping[str, Array]) -> None:
        """Fill the model, with its own values where none are given."""
        names = self._side.reader.read_values(self._side.model)
        new = (values.get(name, own) for name, own in self.own.items())
        self._side.reader.load_values(self._side.model, dict(zip(names, new, strict=True)))

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Give the model its own values back at the end."""
        try:
            yield
        finally:
            self.load({})


class _Bench:
    """Both models under trial: runs of the target with assignments, seen beside one run of the source."""

    def __init__(
        self, source: Side, target: Side, name_map: NameMap, inputs: Mapping[str, Array], progress: Progress
    ) -> None:
        self._sides = source, target
        self._name_map, self._inputs, self._progress = name_map, inputs, progress
        parameters = [side.reader.read_parameters(side.model, side.label) for side in self._sides]
        self._layers: list[list[Layer]] = [read_layers(side, frozenset()) for side in parameters]
        self.layer_of: tuple[dict[str, Layer], dict[str, Layer]] = (
            _by_name(self._layers[0]),
            _by_name(self._layers[1]),
        )
        self.values = _Values(source), _Values(target)
        self._generator = np.random.default_rng(SEED)
        self._runs = 0

    def prepare(self) -> None:
        """Give the source its values and run it once."""
        name_map = self._name_map
        used = {p.source for p in name_map.pairings} | {n for group in name_map.ambiguous for n in group.sources}
        self._given = self._without_counterpart(0, used) | distinct_values(self._layers[0], used, self._generator)
        self.values[0].load(self._given)
        calibration = Calibration(self._layers[0], self._given, self._generator)
        self._run(0, calibration)
        self._given |= calibration.statistics
        self.values[0].load(self._given)
        self._seen = Watch(keep=True)
        self._run(0, self._seen)
        paired = {p.target for p in name_map.pairings} | {n for group in name_map.ambiguous for n in group.targets}
        noise = distinct_values(self._layers[1], paired, self._generator)
        self._noise = self._without_counterpart(1, paired) | noise

    def observe(self, forced: Iterable[Pairing], loaded: Iterable[Pairing] = ()) -> Calls:
        """Run the target with both kinds of pairings loaded; layers of the first kind return the source's outputs."""
        forced, loaded = tuple(forced), tuple(loaded)
        values = dict(self._noise)
        for pairing in (*forced, *loaded):
            own = self._given.get(pairing.source, self.values[0].own.get(pairing.source))
            if own is not None:
                _put(values, pairing, own)
        self.values[1].load(values)
        modules = self._modules(forced)
        told = {
            (modules[path], call): output
            for (path, call), output in self._seen.kept.items()
            if path in modules and self._is_leaf(path, modules[path])
        }
        seen = Watch(told)
        self._run(1, seen)
        return Calls(self._seen, seen, self._modules((*forced, *loaded)))

    def _run(self, side: int, sink: Watch | Calibration) -> None:
        self._runs += 1
        self._progress("trial", self._runs, self._runs + 1)
        self._sides[side].runner.seed(SEED)
        self._sides[side].runner.run(self._sides[side].model, self._inputs, sink)

    def _without_counterpart(self, side: int, used: set[str]) -> dict[str, Array]:
        return neutral_values(self._layers[side], self.layer_of[side].keys() - used)

    def _modules(self, pairings: Sequence[Pairing]) -> dict[str, str]:
        """Modules of the source by path, with the only one of the target that shares parameters with it."""
        joined = {
            (module_of(self.layer_of[0], p.source), module_of(self.layer_of[1], p.target))
            for p in pairings
            if p.source in self.layer_of[0] and p.target in self.layer_of[1]
        }
        sources, targets = [a for a, _ in joined], [b for _, b in joined]
        return {a: b for a, b in joined if a and b and sources.count(a) == targets.count(b) == 1}

    def _is_leaf(self, *paths: str) -> bool:
        return not any(
            module.startswith(f"{path}.")
            for path, layers in zip(paths, self._layers, strict=True)
            for layer in layers
            for module in (_module(layer),)
        )


def module_of(layer_of: Mapping[str, Layer], name: str) -> str:
    """Path of the module that owns a parameter."""
    return _module(layer_of[name])


def _module(layer: Layer) -> str:
    return next(iter(layer.roles.values())).module


def _by_name(layers: Iterable[Layer]) -> dict[str, Layer]:
    return {parameter.name: layer for layer in layers for parameter in layer.roles.values()}


def _put(values: dict[str, Array], pairing: Pairing, own: Array) -> None:
    before, part = apart_from_whole(pairing.transform)
    made = before.apply(own)
    if part is None:
        values[pairing.target] = made
        return
    whole = values.get(pairing.target)
    values[pairing.target] = whole = np.zeros(part.shape, own.dtype) if whole is None else np.array(whole)
    whole[part.region] = made
