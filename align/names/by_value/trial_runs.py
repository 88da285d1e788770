"""Runs of the one model seen beside a run of the other: which calls agree, which layers stand at the same place.

Outputs of the source's run are put into the place of the target's, so that a layer that is not settled yet, or that the
port computes differently, spoils nothing but what hangs on it directly.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.core.piece_transforms import apart_from_whole
from align.names.by_value.trial_groups import components
from align.names.thresholds import REORDERED_SUM_DISTANCE, TRIAL_SEED
from align.names.trial_parts.distinct_values import Calibration, distinct_values
from align.names.trial_parts.seen_tensors import agree, alike, varies
from align.names.trial_parts.trial_sides import CallSampler, module_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap, Pairing
    from align.core.progress import Progress
    from align.core.transforms import Transform
    from align.names.by_value.trial_groups import TrialGroup
    from align.names.trial_parts.trial_sides import CallKey, TrialSide


ComparedValue = tuple[str, int, str]  # path of the source's module, number of the call, what of it


class TrialRuns:
    """Runs of the second side with assignments, seen beside one run of the first."""

    def __init__(self, sides: tuple[TrialSide, TrialSide], progress: Progress, draw: int = 0) -> None:
        self.sides = sides
        self.layer_of = sides[0].layer_of, sides[1].layer_of
        self._progress = progress
        self._generator = np.random.default_rng(TRIAL_SEED + draw)
        self._runs = 0
        self._deviating: dict[str, str] = {}

    def prepare(self, name_map: NameMap) -> None:
        """Give the first side its values, calibrate its statistics and run it once."""
        first, second = self.sides
        used = {p.source for p in name_map.pairings} | {n for group in name_map.ambiguous for n in group.sources}
        self._given = first.drawn(used, self._generator)
        first.load(self._given)
        calibration = Calibration(first.layers, self._given, self._generator)
        first.run(calibration)
        self._given |= calibration.statistics
        first.load(self._given)
        self._seen = CallSampler(keep=True)
        first.run(self._seen)
        paired = {p.target for p in name_map.pairings} | {n for group in name_map.ambiguous for n in group.targets}
        self._noise = second.drawn(paired, self._generator)
        second.load(self._noise)
        other = CallSampler()
        second.run(other)
        self._past = self._used_past(first, self._given, self._seen), self._used_past(second, self._noise, other)

    def _used_past(self, side: TrialSide, values: Mapping[str, Array], seen: CallSampler) -> bool:
        """Tell whether an output depends on layers that are never called: their weights are used past them."""
        layers = [layer for layer in side.layers if not seen.calls(module_of(layer))]
        names = {p.name for layer in layers for p in layer.roles.values()}
        if not names:
            return False
        side.load({**values, **distinct_values(layers, names, self._generator)})
        again = CallSampler()
        side.run(again)
        return not alike(seen.outputs.get(("", 0), ()), again.outputs.get(("", 0), ()))

    def observe(self, forced: Sequence[Pairing], loaded: Sequence[Pairing] = ()) -> PairedRuns:
        """Run the second side with both kinds loaded; layers of the first return what the first side's did."""
        first, second = self.sides
        values = dict(self._noise)
        for pairing in (*forced, *loaded):
            own = self._given.get(first.tensor(pairing.source), first.own.get(pairing.source))
            if own is not None:
                _put(values, second.tensor(pairing.target), pairing.transform, own)
        second.load(values)
        modules = self._modules(forced) | self._deviating
        stand_ins = {
            (modules[path], call): output
            for (path, call), output in self._seen.kept.items()
            if path in modules and first.is_leaf(path) and second.is_leaf(modules[path])
        }
        seen = CallSampler(stand_ins)
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
        mine, theirs = self.layer_of
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


@dataclass(frozen=True)
class PairedRuns:
    """A run of the target beside that of the source.

    `modules` are the paths of paired ones; `free` gives the kinds of those without parameters, by path, on each side;
    `past` says of each side whether layers that are never called have an effect.
    """

    source: CallSampler
    target: CallSampler
    modules: dict[str, str]
    free: tuple[dict[str, str], dict[str, str]]
    past: tuple[bool, bool] = (False, False)

    def agreeing(self) -> frozenset[ComparedValue]:
        """Inputs and outputs of paired modules, and the model's outputs, that are the source's."""
        found = []
        for path, other in (*self.modules.items(), ("", "")):
            for call in range(self.source.calls(path)):
                found += [(path, call, "in")] * self._equal("inputs", (path, call), (other, call))
                found += [(path, call, "out")] * self._equal("outputs", (path, call), (other, call))
        return frozenset(found)

    def all_agree(self) -> bool:
        """Tell whether the model's output is the source's, and all that paired modules are given and return.

        Tensors that vary nowhere tell nothing, but must be alike as well.
        """
        return ("", 0, "out") in self.agreeing() and all(
            alike(getattr(self.source, what).get((a, call), ()), getattr(self.target, what).get((b, call), ()))
            for a, b in (*self.modules.items(), ("", ""))
            for call in range(self.source.calls(a))
            for what in ("inputs", "outputs")
        )

    def changed(self, other: PairedRuns) -> frozenset[ComparedValue]:
        """Sights, as those of `agreeing`, in which the target gives other values than in another run."""
        found = []
        for path, theirs in (*self.modules.items(), ("", "")):
            for call in range(self.source.calls(path)):
                for what, tensors in (("in", "inputs"), ("out", "outputs")):
                    mine, others = (getattr(run.target, tensors).get((theirs, call), ()) for run in (self, other))
                    if len(mine) != len(others) or any(a.distance(b) > 0 for a, b in zip(mine, others, strict=True)):
                        found.append((path, call, what))
        return frozenset(found)

    def same_place(self, a: str, b: str) -> bool | None:
        """Tell whether two modules are called as often, and given the same tensors at first; None if that is not known.

        What they are given later may hang on layers that are still open.
        """
        calls = self.source.calls(a), self.target.calls(b)
        if calls[0] != calls[1] and (all(calls) or not any(self.past)):
            return False
        if not all(calls):
            return None
        given = self.source.inputs.get((a, 0), ()), self.target.inputs.get((b, 0), ())
        if not all(any(varies(sample) for sample in samples) for samples in given):
            return None
        return agree(*given)

    def all_called(self, group: TrialGroup) -> bool:
        """Tell whether all layers of a group that have an effect are called, so that none is used past its module."""
        sides = (group.sources, self.source, self.past[0]), (group.targets, self.target, self.past[1])
        return all(
            not past or all(seen.calls(module_of(one)) for one in layers.values()) for layers, seen, past in sides
        )

    def deviating(self) -> dict[str, str]:
        """Modules without parameters that alone are given the same tensors and return others: another setting."""
        mine, theirs = self.free
        edges = {
            a: {b for b, other in theirs.items() if other == kind and self.same_place(a, b)} for a, kind in mine.items()
        }
        single = [(a[0], b[0]) for a, b in components(edges) if len(a) == len(b) == 1]
        return {a: b for a, b in single if not self.same_outputs(a, b)}

    def same_outputs(self, a: str, b: str) -> bool:
        """Tell whether two modules return the same tensors at every call."""
        return all(self._equal("outputs", (a, call), (b, call)) for call in range(self.source.calls(a)))

    def _equal(self, what: str, one: CallKey, two: CallKey) -> bool:
        return agree(getattr(self.source, what).get(one, ()), getattr(self.target, what).get(two, ()))


def choice_matters(runs: Sequence[PairedRuns], own: set[str]) -> bool:
    """Tell whether anything but the layers themselves gives other values for another choice."""
    return any(_unlike(runs[0].target, run.target, own) for run in runs[1:])


def _unlike(one: CallSampler, two: CallSampler, own: set[str]) -> bool:
    """Tell whether two runs of the target differ elsewhere than in the modules that were filled differently."""
    return any(
        a.distance(b) > REORDERED_SUM_DISTANCE
        for key, samples in one.outputs.items()
        if key[0] not in own
        for a, b in zip(samples, two.outputs.get(key, ()), strict=False)
    )
