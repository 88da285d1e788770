"""What a trial keeps of a run: samples of the inputs and outputs of every call, enough to tell equal from unlike.

Full outputs are kept only of the source's run: they are put into the place of the target's, so that a layer that is not
settled yet, or that the port computes differently, spoils nothing but what hangs on it directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.measure.sampled_values import relative_rms_distance, sample_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.traces import Capture

CallKey = tuple[str, int]  # module path, number of the call

# Values of two layers that are not the same differ by as much as they are large; rounding, also of another kernel after
# one layer, stays below 1e-4, and so does an epsilon that differs. So anything between settles it.
AGREES = 1e-3
_DEAD = 1e-9


class CallSampler:
    """An Intervention that samples every call, and lets those modules return what they are `told`."""

    def __init__(self, told: Mapping[CallKey, Array] | None = None, *, keep: bool = False) -> None:
        self._told = told or {}
        self._keep = keep
        self.inputs: dict[CallKey, tuple[NDArray[np.float64], ...]] = {}
        self.outputs: dict[CallKey, tuple[NDArray[np.float64], ...]] = {}
        self.kept: dict[CallKey, Array] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Sample what a call is given."""
        self.inputs[module, call] = tuple(sample_values(value) for value in inputs.values())

    def add(self, capture: Capture, value: Array) -> None:
        """Sample what a call returns."""
        key = capture.module, capture.call
        self.outputs[key] = (*self.outputs.get(key, ()), sample_values(value))

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return what the source's counterpart returned, of modules that return a lone tensor."""
        if capture.output:
            return None
        key = capture.module, capture.call
        if self._keep:
            self.kept[key] = np.array(value)
        told = self._told.get(key)
        return None if told is None or told.size != value.size else told.reshape(value.shape)

    def calls(self, module: str) -> int:
        """How often a module was called."""
        number = 0
        while (module, number) in self.outputs:
            number += 1
        return number


def agree(one: Sequence[NDArray[np.float64]], two: Sequence[NDArray[np.float64]]) -> bool:
    """Tell whether the same tensors were seen, up to rounding; tensors that vary nowhere tell nothing, and agree not.

    Where one side is given more tensors than the other (a mask, a cache), the common beginning counts.
    """
    return any(varies(a) or varies(b) for a, b in zip(one, two, strict=False)) and alike(one, two)


def alike(one: Sequence[NDArray[np.float64]], two: Sequence[NDArray[np.float64]]) -> bool:
    """Tell whether all tensors of the common beginning that vary are equal up to rounding."""
    both = [(a, b) for a, b in zip(one, two, strict=False) if varies(a) or varies(b)]
    return all(relative_rms_distance(a, b) < AGREES for a, b in both)


def varies(sample: NDArray[np.float64]) -> bool:
    """Tell whether a tensor has unlike elements."""
    return bool(sample.size) and float(np.ptp(sample)) > _DEAD * float(np.max(np.abs(sample)))
