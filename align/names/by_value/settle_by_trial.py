"""What names and shapes leave open is settled by values: both models run on random ones, and the data flow tells.

Every layer that is paired already returns what its counterpart returned, so each open layer is seen where it stands,
as if all around it were right. Layers that are given the same tensors are the same layer; where several are (query, key
and value), each choice is loaded, and what comes behind them tells.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.core.piece_transforms import apart_from_whole
from align.core.progress import silent
from align.models.batches import batches_of
from align.models.fit_inputs import run_fitted
from align.names.by_value.blind_parameters import blind_parameters
from align.names.by_value.call_samples import CallSampler, alike
from align.names.by_value.distinct_values import Calibration, distinct_values, neutral_values
from align.names.by_value.fused_piece_orders import fused_piece_orders
from align.names.by_value.map_with_trial import inverted_map, inverted_pairings, with_blind, with_trial
from align.names.by_value.paired_runs import PairedRuns, module_of
from align.names.by_value.settle_by_equality import settle_by_equality
from align.names.by_value.settle_groups import settle_groups
from align.names.by_value.trial_groups import open_groups
from align.names.layers.read_layers import read_layers
from align.rules.layer_rules import rule_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Set

    from align.core.dtypes import Array
    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import ParameterSet
    from align.core.progress import Progress
    from align.core.traces import CaptureSink
    from align.core.transforms import Transform
    from align.models.open_side import Side

SEED = 0


def settle_by_trial(
    source: Side, target: Side, name_map: NameMap, inputs: Mapping[str, Array], progress: Progress = silent
) -> NameMap:
    """Return the map with those ambiguous groups settled that a run with distinct values tells apart.

    Both models get random values for the time of the trial and have their own back afterwards, also after a failure.
    Pairs that the user gave stay; others are settled anew where the run contradicts them. What shows in no output is
    said to be blind.
    """
    sides = source, target
    parameters = [side.reader.read_parameters(side.model, side.label) for side in sides]  # before a run renames any
    values = _Values(source, parameters[0]), _Values(target, parameters[1])
    order = parameters[0].names
    with values[0].restored(), values[1].restored():
        runs = [_timed(side, inputs) for side in sides]
        backwards = runs[1].seconds > runs[0].seconds
        if backwards:  # the slower one runs once, the faster one for every choice
            sides, parameters, values, runs = sides[::-1], parameters[::-1], values[::-1], runs[::-1]
        asked = inverted_map(name_map, *parameters) if backwards else name_map
        runner = _AssignmentRunner(
            [_TrialSide(*opened) for opened in zip(sides, parameters, values, runs, strict=True)], progress
        )
        runner.prepare(asked)
        layer_of = [own.layer_of for own in runner.sides]
        groups = open_groups(asked.ambiguous, *layer_of)
        equal = settle_by_equality(groups, (values[0].own, values[1].own))
        orders = fused_piece_orders(asked.ambiguous, *layer_of)
        found = settle_groups(groups, (*asked.pairings, *equal), runner, layer_of, orders)
        found = replace(found, pairings=[*equal, *found.pairings])
        runner.observe((), with_trial(asked, found, parameters[0].names).pairings)
        one, other = (blind_parameters(own.side, own.layers, own.inputs) for own in runner.sides)
    if backwards:
        reopened = [replace(one, sources=one.targets, targets=one.sources) for one in found.reopened]
        found = replace(found, pairings=inverted_pairings(found.pairings, parameters[0]), reopened=reopened)
    blind = (other, one) if backwards else (one, other)
    return with_blind(with_trial(name_map, found, order), blind, name_map)


class _TimedRun(NamedTuple):
    """The inputs in the dtypes that a side takes, and how long it ran."""

    inputs: Mapping[str, Array]
    seconds: float


def _timed(side: Side, inputs: Mapping[str, Array]) -> _TimedRun:
    start = time.perf_counter()
    taken = run_fitted(side, inputs, lambda given: side.runner.run(side.model, given, CallSampler()))
    return _TimedRun(dict(batches_of(taken)[0]), time.perf_counter() - start)


class _Values:
    """The values of a live model by the names that it had at first: a run may rename a MindSpore parameter."""

    def __init__(self, side: Side, parameters: ParameterSet) -> None:
        self._side = side
        self._tied = {p.name: p.tied_to for p in parameters.parameters if p.tied_to}
        self.own = side.reader.read_values(side.model)

    def tensor(self, name: str) -> str:
        """The first name of the tensor that bears this one."""
        return self._tied.get(name, name)

    def load(self, values: Mapping[str, Array]) -> None:
        """Fill the model, with its own values where none are given."""
        names = self._side.reader.read_values(self._side.model)
        new = (values.get(self.tensor(name), own) for name, own in self.own.items())
        self._side.reader.load_values(self._side.model, dict(zip(names, new, strict=True)))

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Give the model its own values back at the end."""
        try:
            yield
        finally:
            self.load({})


class _TrialSide:
    """One side under trial."""

    def __init__(self, side: Side, parameters: ParameterSet, values: _Values, run: _TimedRun) -> None:
        self.side, self.values, self.inputs = side, values, run.inputs
        self.layers = read_layers(parameters)
        self.layer_of = {parameter.name: layer for layer in self.layers for parameter in layer.roles.values()}
        self.modules = {module_of(layer) for layer in self.layers}
        free = ((module.path, rule_for(module.classes)) for module in parameters.modules if not module.parameters)
        self.free = {path: rule[0].kind for path, rule in free if rule}

    def run(self, sink: CaptureSink) -> None:
        """Run the model."""
        self.side.runner.run(self.side.model, self.inputs, sink)

    def drawn(self, used: Set[str], generator: np.random.Generator) -> dict[str, Array]:
        """Random values for parameters that may have a counterpart, values without effect for the others."""
        apart = neutral_values(self.layers, self.layer_of.keys() - used)
        return apart | distinct_values(self.layers, used, generator)

    def is_leaf(self, path: str) -> bool:
        """Tell whether no module with parameters lies inside."""
        return not any(module.startswith(f"{path}.") for module in self.modules)


class _AssignmentRunner:
    """Runs of the second side with assignments, seen beside one run of the first."""

    def __init__(self, sides: Sequence[_TrialSide], progress: Progress) -> None:
        self.sides = sides
        self._progress = progress
        self._generator = np.random.default_rng(SEED)
        self._runs = 0
        self._deviating: dict[str, str] = {}

    def prepare(self, name_map: NameMap) -> None:
        """Give the first side its values, calibrate its statistics and run it once."""
        first, second = self.sides
        used = {p.source for p in name_map.pairings} | {n for group in name_map.ambiguous for n in group.sources}
        self._given = first.drawn(used, self._generator)
        first.values.load(self._given)
        calibration = Calibration(first.layers, self._given, self._generator)
        first.run(calibration)
        self._given |= calibration.statistics
        first.values.load(self._given)
        self._seen = CallSampler(keep=True)
        first.run(self._seen)
        paired = {p.target for p in name_map.pairings} | {n for group in name_map.ambiguous for n in group.targets}
        self._noise = second.drawn(paired, self._generator)
        second.values.load(self._noise)
        other = CallSampler()
        second.run(other)
        self._past = self._used_past(first, self._given, self._seen), self._used_past(second, self._noise, other)

    def _used_past(self, side: _TrialSide, values: Mapping[str, Array], seen: CallSampler) -> bool:
        """Tell whether an output depends on layers that are never called: their weights are used past them."""
        layers = [layer for layer in side.layers if not seen.calls(module_of(layer))]
        names = {p.name for layer in layers for p in layer.roles.values()}
        if not names:
            return False
        side.values.load({**values, **distinct_values(layers, names, self._generator)})
        again = CallSampler()
        side.run(again)
        return not alike(seen.outputs.get(("", 0), ()), again.outputs.get(("", 0), ()))

    def observe(self, forced: Sequence[Pairing], loaded: Sequence[Pairing] = ()) -> PairedRuns:
        """Run the second side with both kinds loaded; layers of the first return what the first side's did."""
        first, second = self.sides
        values = dict(self._noise)
        for pairing in (*forced, *loaded):
            own = self._given.get(first.values.tensor(pairing.source), first.values.own.get(pairing.source))
            if own is not None:
                _put(values, second.values.tensor(pairing.target), pairing.transform, own)
        second.values.load(values)
        modules = self._modules(forced) | self._deviating
        told = {
            (modules[path], call): output
            for (path, call), output in self._seen.kept.items()
            if path in modules and first.is_leaf(path) and second.is_leaf(modules[path])
        }
        seen = CallSampler(told)
        self._runs += 1
        self._progress("trial", self._runs, self._runs + 1)
        second.run(seen)
        calls = PairedRuns(self._seen, seen, self._modules((*forced, *loaded)), (first.free, second.free), self._past)
        if not loaded and (new := calls.deviating().items() - self._deviating.items()):
            self._deviating |= dict(new)
            return self.observe(forced)
        return calls

    def _modules(self, pairings: Sequence[Pairing]) -> dict[str, str]:
        """Modules of the first side by path, with the only one of the second that shares parameters with it."""
        mine, theirs = (side.layer_of for side in self.sides)
        joined = {
            (module_of(mine[p.source]), module_of(theirs[p.target]))
            for p in pairings
            if p.source in mine and p.target in theirs
        }
        sources, targets = Counter(a for a, _ in joined), Counter(b for _, b in joined)
        return {a: b for a, b in joined if a and b and sources[a] == targets[b] == 1}


def _put(values: dict[str, Array], name: str, transform: Transform, own: Array) -> None:
    before, part = apart_from_whole(transform)
    made = before.apply(own)
    if part is None:
        values[name] = made
        return
    whole = values.get(name)
    values[name] = whole = np.zeros(part.shape, own.dtype) if whole is None else np.array(whole)
    whole[part.region] = made
