"""A run of the one model seen beside a run of the other: which calls agree, which layers stand at the same place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.measure.sampled_values import relative_rms_distance
from align.names.by_value.call_samples import agree, alike, varies
from align.names.by_value.trial_groups import components

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.names.by_value.call_samples import CallKey, CallSampler
    from align.names.by_value.trial_groups import TrialGroup
    from align.names.layers.read_layers import Layer

# Terms that are added in another order differ by as much.
_ROUNDING = 1e-5

ComparedValue = tuple[str, int, str]  # path of the source's module, number of the call, what of it


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
                    if len(mine) != len(others) or any(
                        relative_rms_distance(a, b) > 0 for a, b in zip(mine, others, strict=True)
                    ):
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


def module_of(layer: Layer) -> str:
    """Path of the module that owns a layer's parameters."""
    return next(iter(layer.roles.values())).module


def choice_matters(runs: Sequence[PairedRuns], own: set[str]) -> bool:
    """Tell whether anything but the layers themselves gives other values for another choice."""
    return any(_unlike(runs[0].target, run.target, own) for run in runs[1:])


def _unlike(one: CallSampler, two: CallSampler, own: set[str]) -> bool:
    """Tell whether two runs of the target differ elsewhere than in the modules that were filled differently."""
    return any(
        relative_rms_distance(a, b) > _ROUNDING
        for key, samples in one.outputs.items()
        if key[0] not in own
        for a, b in zip(samples, two.outputs.get(key, ()), strict=False)
    )
