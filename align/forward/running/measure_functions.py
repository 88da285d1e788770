"""What the candidate's own functions of single elements, such as MindSpore's tanh, make of the reference.

A kernel that is off by more than rounding is nobody's fault in a port. So the reference is run with the candidate's
functions in the place of its own, and what that moves is added to the limits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON
from align.core.protocols import FunctionSource, PrecisionRunner
from align.core.verdicts import Finding
from align.errors import UserCodeError
from align.forward.isolation.isolated_calls import NoiseIsolation
from align.traces.rounding_noise import NoiseSink
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.dtypes import Array
    from align.core.protocols import Inputs
    from align.core.traces import Trace
    from align.forward.running.measure_noise import Noise
    from align.models.open_side import Side

# Below so many units in the last place of the largest value a function is as exact as others.
LEAST_UNITS = 8.0


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
        if share <= LEAST_UNITS * EPSILON[returned.dtype.name]:
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
        findings=(*noise.findings, _told(sides[1], watch.off)),
    )


def _told(side: Side, off: dict[str, float]) -> Finding:
    functions = [
        sentence("forward_finding.inexact_function", function=name, share=share) for name, share in sorted(off.items())
    ]
    message = sentence("forward_finding.functions_inexact", framework=side.reader.name, functions=functions)
    return Finding("functions-inexact", "note", side.label, message)
