"""Parameters that no output of a run depends on: of those a trial shows nothing, and the map must say so.

A gradient that vanishes makes one suspect (the key bias of attention, which softmax cancels); it is blind if other
values for it change no output, since a router that only chooses among experts has no gradient either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.protocols import Differentiator
from align.measure.sampled_values import relative_rms_distance
from align.names.by_value.call_samples import CallSampler
from align.names.by_value.distinct_values import distinct_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.traces import Influences
    from align.models.open_side import Side
    from align.names.layers.read_layers import Layer

_SEED = 1


def blind_parameters(side: Side, layers: Sequence[Layer], inputs: Mapping[str, Array]) -> set[str]:
    """Names of the parameters of a model that no output depends on, at the values that it has and on these inputs.

    Only of models that can be differentiated; of others nothing is known, and the set is empty.
    """
    if not isinstance(side.runner, Differentiator):
        return set()
    found = side.runner.influences(side.model, inputs)
    if found is None:
        return set()
    silent = {name for name, share in found.shares.items() if share < found.noise}
    suspects = [group for layer in layers if (group := _suspects(layer, silent, found.shares))]
    return _Perturbed(side, found, layers, inputs).without_effect(suspects) if suspects else set()


def _suspects(layer: Layer, silent: set[str], shares: Mapping[str, float]) -> list[str]:
    """The silent parameters of a layer, with its statistics if all of it that has a gradient is silent."""
    names = {p.name for p in layer.roles.values()}
    told = names & shares.keys()
    return sorted(names if told and told <= silent else names & silent)


class _Perturbed:
    """Runs of a copy of the model in which some parameters have other values."""

    def __init__(self, side: Side, found: Influences, layers: Sequence[Layer], inputs: Mapping[str, Array]) -> None:
        self._side, self._layers, self._inputs = side, layers, inputs
        self._model, self._noise = found.model, found.noise
        self._own = side.reader.read_values(self._model)
        self._tied = {p.name: p.tied_to for layer in layers for p in layer.roles.values() if p.tied_to}
        self._before = self._outputs({})

    def without_effect(self, suspects: Sequence[list[str]]) -> set[str]:
        """All suspects, if they change nothing together, else those of each half."""
        together = {name for names in suspects for name in names}
        if not together or not self._changed(together):
            return together
        if len(suspects) == 1:
            return set()
        half = len(suspects) // 2
        return self.without_effect(suspects[:half]) | self.without_effect(suspects[half:])

    def _changed(self, names: set[str]) -> bool:
        drawn = distinct_values(self._layers, names, np.random.default_rng(_SEED))
        after = self._outputs(drawn)
        return len(after) != len(self._before) or any(
            relative_rms_distance(a, b) > self._noise for a, b in zip(self._before, after, strict=True)
        )

    def _outputs(self, values: Mapping[str, Array]) -> tuple[Array, ...]:
        new = {name: values.get(self._tied.get(name, name), own) for name, own in self._own.items()}
        self._side.reader.load_values(self._model, new)
        seen = CallSampler()
        self._side.runner.run(self._model, self._inputs, seen)
        return seen.outputs.get(("", 0), ())
