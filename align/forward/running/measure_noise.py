"""The reference's own rounding noise, by its runs in float64, and what the candidate adds to it.

What float64 changes need not be rounding: a model whose operations round at random must then move as well. A branch on
the dtype, random numbers of the reference's own, or a constant of the dtype move it by more. One layer of the candidate
in half precision is no excuse for those behind it: the reference is run with such outputs rounded, and what does not
move is judged as if no layer were coarser. A kernel that is off by more than rounding is nobody's fault in a port: what
the candidate's functions move in the reference is added to the limits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON, numpy_dtype, rounded_as
from align.core.protocols import FunctionSource, PrecisionRunner
from align.core.traces import CodeSeen
from align.core.verdicts import Finding
from align.errors import UserCodeError
from align.forward.isolation.expected_calls import coarser_outputs
from align.forward.isolation.isolated_calls import NoiseIsolation
from align.forward.thresholds import (
    LEAST_INEXACT_UNITS,
    MOST_TIMES_IN_COARSER,
    MOST_TIMES_ROUNDING,
    SUSPECT_NOISE_UNITS,
    SUSPECT_NOISE_UNITS_OF_HALF,
)
from align.measure.limits import HALF, RoundingNoise, luck_of
from align.traces.rounding_noise import NoiseSink
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.measurements import Measurement
    from align.core.protocols import Inputs, Model, ModelRunner
    from align.core.traces import Capture, CaptureSink, Trace
    from align.models.open_side import Side

    Measurements = dict[str, Measurement]
    from collections.abc import Callable, Sequence

    from align.core.dtypes import Array
    from align.traces.module_calls import CallPair

SEED = 0  # no limit: of its own generator


@dataclass(frozen=True, slots=True)
class Noise:
    """Accumulated and isolated noise, as far as it could be had; findings say why no further.

    `operations` are those that the model ran.
    """

    accumulated: RoundingNoise | None = None
    isolated: RoundingNoise | None = None
    findings: tuple[Finding, ...] = ()
    operations: frozenset[str] = frozenset()

    @property
    def own_accumulated(self) -> Mapping[str, Measurement] | None:
        """The accumulated noise in the reference's own dtypes."""
        return None if self.accumulated is None else self.accumulated.own


def measure_noise(side: Side, inputs: Inputs, trace: Trace, candidate: Trace | None = None) -> Noise:
    """Run the reference twice in float64: by itself, and each layer on the inputs of the ordinary run (`trace`).

    If it cannot run so, or not to its end, a finding says why: other limits then come from a table by dtype. Where the
    candidate's trace holds a coarser dtype than the reference's, it is run twice in that one too.
    """
    try:
        wide = side.runner.widened(side.model)
    except UserCodeError as error:
        return Noise(findings=_unmeasured(side, error.message))
    if wide is None:
        return Noise(findings=_unmeasured(side, sentence("noise_note.no_float64", framework=side.reader.name)))
    together, alone, reason = _in_dtype(side, wide, inputs, trace, "float64")
    seen = side.runner.code_seen(wide) if isinstance(side.runner, PrecisionRunner) else CodeSeen()
    del wide
    (together, alone), findings = trust_noise(side, inputs, trace, (together, alone))
    coarser = {dtype: _in_coarser(side, inputs, trace, dtype) for dtype in _coarser_dtypes(trace, candidate)}
    for dtype, own in [*coarser.items()]:
        if strange := [*strange_in_coarser(trace, alone, own[1], dtype)]:
            findings, coarser[dtype] = (*findings, *strange), ({}, {})
    return Noise(
        RoundingNoise(together, {dtype: own[0] for dtype, own in coarser.items()}),
        RoundingNoise(alone, {dtype: own[1] for dtype, own in coarser.items()}),
        (*_unmeasured(side, reason), *findings, *_own_tables(side, seen.tables)),
        seen.operations,
    )


def _in_dtype(
    side: Side, model: Model, inputs: Inputs, trace: Trace, dtype: str
) -> tuple[Measurements, Measurements, str]:
    """The noise of a run by itself and of one on the ordinary inputs, and what kept either from its end."""
    together, alone = NoiseSink(trace, dtype), NoiseIsolation(trace, dtype)
    reasons = [failure_of(side.runner, model, inputs, sink) for sink in (together, alone)]
    return together.noise, alone.noise, max(reasons)


def _coarser_dtypes(trace: Trace, candidate: Trace | None) -> list[str]:
    """Dtypes in which the candidate holds something, and which are coarser than all of the reference's."""
    mine, theirs = ({rounded_as(one.dtype) for one in side.captures} - {""} for side in (trace, candidate or trace))
    own = max((EPSILON[dtype] for dtype in mine), default=inf)
    return sorted(dtype for dtype in theirs if EPSILON[dtype] > own)


def _in_coarser(side: Side, inputs: Inputs, trace: Trace, dtype: str) -> tuple[Measurements, Measurements]:
    """Noise in a coarser dtype; none where the model cannot run in it: limits then go by the units of both dtypes."""
    if not isinstance(side.runner, PrecisionRunner):
        return {}, {}
    try:
        model = side.runner.cast_copy(side.model, dtype)
    except UserCodeError:
        return {}, {}
    return _in_dtype(side, model, inputs, trace, dtype)[:2]


def failure_of(runner: ModelRunner, model: Model, inputs: Inputs, sink: CaptureSink) -> str:
    """Run a model; return what kept it from its end, "" if nothing did."""
    try:
        runner.run(model, inputs, sink)
    except UserCodeError as error:
        return error.message
    return ""


def _own_tables(side: Side, lines: tuple[str, ...]) -> tuple[Finding, ...]:
    """A port that builds such a table in another way is off by the rounding of its angles, which the limits hold."""
    message = sentence("forward_finding.tables_of_own_dtype", lines=lines)
    return (Finding("table-of-own-dtype", "note", side.label, message),) if lines else ()


def _unmeasured(side: Side, reason: str) -> tuple[Finding, ...]:
    message = sentence("forward_finding.noise_unmeasured", reason=reason)
    return (Finding("noise-unmeasured", "note", side.label, message),) if reason else ()


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
    findings = (_no_rounding(*min(reversed(strange), key=lambda one: one[0].order)),) if strange else ()
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
            yield _no_rounding(one, theirs, replace(mine, rmse=EPSILON[dtype] * least), dtype)
            return


def _is_suspect(captures: Mapping[str, Capture], key: str, noise: Measurement) -> bool:
    dtype = rounded_as(captures[_whole(key)].dtype)
    units = SUSPECT_NOISE_UNITS_OF_HALF if dtype in HALF else SUSPECT_NOISE_UNITS
    return noise.rmse > units * EPSILON[dtype] * noise.reference_rms


def _is_more(captures: Mapping[str, Capture], key: str, noise: Measurement, rounding: Measurement) -> bool:
    least = EPSILON[rounded_as(captures[_whole(key)].dtype)] * noise.reference_rms
    return noise.rmse > MOST_TIMES_ROUNDING * luck_of(rounding) * max(rounding.rmse, least)


def _whole(key: str) -> str:
    return key.partition(" / ")[0]


def _no_rounding(capture: Capture, noise: Measurement, rounding: Measurement, dtype: str = "float64") -> Finding:
    message = sentence(
        "forward_finding.noise_not_rounding" if dtype == "float64" else "forward_finding.noise_not_rounding_in_coarser",
        dtype=dtype,
        tensor=sentence("model_part.its_input" if capture.role == "input" else "model_part.its_output"),
        noise=noise.rmse,
        rounding=rounding.rmse,
    )
    return Finding("noise-not-rounding", "warning", capture.module or sentence("model_part.model"), message)


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
