"""Whether what float64 changes is rounding: a model whose operations round at random must then move as well.

A branch on the dtype, random numbers of the reference's own, or a constant of the dtype move it by more, and a limit
made of that would let any port pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.dtypes import EPSILON, rounded_as
from align.core.protocols import PrecisionRunner
from align.core.verdicts import Finding
from align.errors import UserCodeError
from align.forward.isolation.isolated_calls import NoiseIsolation
from align.measure.limits import HALF, luck_of
from align.traces.rounding_noise import NoiseSink
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.measurements import Measurement
    from align.core.protocols import Inputs
    from align.core.traces import Capture, Trace
    from align.models.open_side import Side

    Measurements = dict[str, Measurement]

# Noise of so many units in the last place of a tensor's scale is looked into; deep float32 nets gather some hundred.
SUSPECT_UNITS = 256.0
SUSPECT_UNITS_OF_HALF = 8.0
# Real kernels round up to some ten times more than one unit an operation, as sums of thousands do.
MOST_TIMES_ROUNDING = 100.0
# In half precision kernels add in float32 and round once: a layer alone moves by less than its own noise tells.
MOST_TIMES_IN_COARSER = 4.0
SEED = 0


def trust_noise(
    side: Side, inputs: Inputs, trace: Trace, measured: tuple[Measurements, Measurements]
) -> tuple[tuple[Measurements, Measurements], tuple[Finding, ...]]:
    """Put what rounding at random moves in the place of noise that is far above it, and name the first such layer.

    `measured` are the accumulated noise and that of each layer alone. Without suspicion nothing is run: what is no
    rounding shows alone, where it begins.
    """
    captures = {one.key: one for one in (*trace.captures, *trace.inputs)}
    suspects = [[key for key in own if _is_suspect(captures, key, own[key])] for own in measured]
    if not suspects[1] or not isinstance(side.runner, PrecisionRunner):
        return measured, ()
    together, alone = NoiseSink(trace, ""), NoiseIsolation(trace, "")
    try:
        model = side.runner.rounded_at_random(side.model, SEED)
        for sink in (together, alone):
            side.runner.run(model, inputs, sink)
    except UserCodeError:
        return measured, ()
    trusted, strange = [], []
    for own, keys, rounding in zip(measured, suspects, (together.noise, alone.noise), strict=True):
        wrong = [key for key in keys if key in rounding and _is_more(captures, key, own[key], rounding[key])]
        trusted.append(own | {key: rounding[key] for key in wrong})
        strange += [(captures[_whole(key)], own[key], rounding[key]) for key in wrong]
    findings = (_told(*min(reversed(strange), key=lambda one: one[0].order)),) if strange else ()
    return (trusted[0], trusted[1]), findings


def strange_in_coarser(trace: Trace, own: Measurements, coarser: Measurements, dtype: str) -> Iterator[Finding]:
    """Name the first layer that alone moves in a coarser dtype by far more than its own noise and the units explain.

    `own` is what float64 moves the layers alone by, `coarser` what this dtype does.
    """
    for one in sorted((*trace.captures, *trace.inputs), key=lambda one: one.order):
        mine, theirs = own.get(one.key), coarser.get(one.key)
        if mine is None or theirs is None:
            continue
        least = max(mine.rmse * luck_of(mine) / EPSILON[rounded_as(one.dtype)], mine.reference_rms)
        if theirs.rmse > MOST_TIMES_IN_COARSER * EPSILON[dtype] * least:
            yield _told(one, theirs, replace(mine, rmse=EPSILON[dtype] * least), dtype)
            return


def _is_suspect(captures: Mapping[str, Capture], key: str, noise: Measurement) -> bool:
    dtype = rounded_as(captures[_whole(key)].dtype)
    units = SUSPECT_UNITS_OF_HALF if dtype in HALF else SUSPECT_UNITS
    return noise.rmse > units * EPSILON[dtype] * noise.reference_rms


def _is_more(captures: Mapping[str, Capture], key: str, noise: Measurement, rounding: Measurement) -> bool:
    least = EPSILON[rounded_as(captures[_whole(key)].dtype)] * noise.reference_rms
    return noise.rmse > MOST_TIMES_ROUNDING * luck_of(rounding) * max(rounding.rmse, least)


def _whole(key: str) -> str:
    return key.partition(" / ")[0]


def _told(capture: Capture, noise: Measurement, rounding: Measurement, dtype: str = "float64") -> Finding:
    message = sentence(
        "forward_finding.noise_not_rounding" if dtype == "float64" else "forward_finding.noise_not_rounding_in_coarser",
        dtype=dtype,
        tensor=sentence("model_part.its_input" if capture.role == "input" else "model_part.its_output"),
        noise=noise.rmse,
        rounding=rounding.rmse,
    )
    return Finding("noise-not-rounding", "warning", capture.module or sentence("model_part.model"), message)
