"""What the candidate adds to the noise by which each layer is judged: coarser layers, and functions of its own.

One layer in half precision is no excuse for those behind it that compute in float32. So the reference is run with the
outputs of those layers rounded as the candidate's are: what does not move is judged as if no layer were coarser.
A kernel of the candidate's (MindSpore's tanh) that is off by more than rounding is nobody's fault in a port. So the
reference is run with the candidate's functions in the place of its own, and what that moves is added to the limits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON, numpy_dtype
from align.core.protocols import FunctionSource, PrecisionRunner
from align.core.verdicts import Finding
from align.errors import UserCodeError
from align.forward.isolation.expected_calls import coarser_outputs
from align.forward.isolation.isolated_calls import NoiseIsolation
from align.forward.thresholds import LEAST_INEXACT_UNITS
from align.traces.rounding_noise import NoiseSink
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


@dataclass
class _Watch:
    """Answers with the candidate's functions; `off` says by which share of the largest value inexact ones were off."""

    off: dict[str, float]

    def answer(self, name: str, function: Callable[[Array], Array], given: Array, returned: Array) -> Array:
        """What the function returns, or what the reference's did where it is as exact."""
        answer = function(given)
        finite = np.isfinite(returned)
        if (finite != np.isfinite(answer)).any():
            return returned
        mine, theirs = (np.where(finite, value, 0).astype(np.float64) for value in (returned, answer))
        largest = float(np.abs(mine).max(initial=0.0))
        share = float(np.abs(theirs - mine).max(initial=0.0)) / largest if largest else 0.0
        if share <= LEAST_INEXACT_UNITS * EPSILON[returned.dtype.name]:
            return returned
        self.off[name] = max(self.off.get(name, 0.0), share)
        return answer


def with_functions(noise: Noise, sides: tuple[Side, Side], inputs: Inputs, trace: Trace) -> Noise | None:
    """The noise with what the candidate's functions move; None if there are none, or none is inexact here.

    `trace` is the reference's ordinary run.
    """
    runner, source = sides[0].runner, sides[1].reader
    if noise.accumulated is None or noise.isolated is None or not isinstance(runner, PrecisionRunner):
        return None
    if not isinstance(source, FunctionSource):
        return None
    watch = _Watch({})
    own = {name: function for name, function in source.functions().items() if name in noise.operations}
    if not own:
        return None
    functions = {name: partial(watch.answer, name, function) for name, function in own.items()}
    together, alone = NoiseSink(trace, ""), NoiseIsolation(trace, "")
    try:
        model = runner.with_functions(sides[0].model, functions)
        runner.run(model, inputs, together)
        if not watch.off:
            return None
        runner.run(model, inputs, alone)
    except UserCodeError:
        return None
    return replace(
        noise,
        accumulated=replace(noise.accumulated, functions=together.noise),
        isolated=replace(noise.isolated, functions=alone.noise),
        findings=(*noise.findings, _inexact_functions(sides[1], watch.off)),
    )


def _inexact_functions(side: Side, off: dict[str, float]) -> Finding:
    functions = [
        sentence("forward_finding.inexact_function", function=name, share=share) for name, share in sorted(off.items())
    ]
    message = sentence("forward_finding.functions_inexact", framework=side.reader.name, functions=functions)
    return Finding("functions-inexact", "note", side.label, message)
