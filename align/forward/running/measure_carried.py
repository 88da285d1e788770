"""How far the rounding of the candidate's coarser layers comes, where every layer is given right values.

One layer in half precision is no excuse for those behind it that compute in float32. So the reference is run with the
outputs of those layers rounded as the candidate's are: what does not move is judged as if no layer were coarser.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.dtypes import numpy_dtype
from align.errors import UserCodeError
from align.forward.isolation.expected_calls import coarser_outputs
from align.forward.isolation.isolated_calls import NoiseIsolation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Inputs
    from align.core.traces import Capture, Trace
    from align.forward.running.measure_noise import Noise
    from align.models.open_side import Side
    from align.traces.module_calls import CallPair


class _CoarserOutputs(NoiseIsolation):
    """An Intervention for the reference: every call is given what the ordinary run had, some return it rounded."""

    def __init__(self, ordinary: Trace, pairs: Sequence[CallPair], dtypes: Mapping[str, str]) -> None:
        super().__init__(ordinary, "")
        self._certain = {one.key for pair in pairs if pair.certain for one in pair.reference.outputs}
        self._paired = {(pair.reference.module, pair.reference.call) for pair in pairs}
        self._dtypes = dtypes

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Measure the inputs, and give a paired call the ordinary ones."""
        ordinary = super().enter(module, call, inputs)
        return ordinary if (module, call) in self._paired else {}

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return the ordinary output of a call that surely ends where the candidate's does, as the candidate has it."""
        ordinary = super().instead(capture, value) if capture.key in self._certain else None
        if ordinary is None:
            ordinary = value
        dtype = self._dtypes.get(capture.key)
        return ordinary.astype(numpy_dtype(dtype)).astype(ordinary.dtype) if dtype else ordinary


def with_carried(noise: Noise, side: Side, inputs: Inputs, trace: Trace, pairs: Sequence[CallPair]) -> Noise:
    """The noise with the tensors that no coarser layer of the candidate reaches; `trace` is the ordinary run."""
    dtypes = coarser_outputs(pairs)
    if noise.isolated is None or not dtypes:
        return noise
    sink = _CoarserOutputs(trace, pairs, dtypes)
    try:
        side.runner.run(side.model, inputs, sink)
    except UserCodeError:
        return noise
    unreached = frozenset(key for key, moved in sink.noise.items() if moved.max_abs == 0.0)
    return replace(noise, isolated=replace(noise.isolated, unreached=unreached))
