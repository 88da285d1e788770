"""Both models run on the same inputs, each traced into a folder, and the reference's noise."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf, prod
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.core.atomic_files import replace_folder
from align.core.name_map import SIDES
from align.core.operating_system import LOCK, folder_lock
from align.core.parameters import EPSILON, NOT_EMULATED, numpy_dtype, rounded_as
from align.core.protocols import ChipEmulator, FunctionSource, PrecisionRunner
from align.core.traces import CodeSeen
from align.core.verdicts import Finding, Outcome
from align.errors import CannotRunError, DestinationError, ModelFailedError, UsageError, UserCodeError
from align.forward.compare_traces import NO_PADDING, Padding, find_padding
from align.forward.forward_result import Prediction
from align.forward.isolated_calls import NoiseIsolation, coarser_outputs
from align.forward.thresholds import (
    BLIND_LIMIT,
    LEAST_INEXACT_UNITS,
    MOST_TIMES_IN_COARSER,
    MOST_TIMES_ROUNDING,
    OUTPUTS_BYTES,
    SUSPECT_NOISE_UNITS,
    SUSPECT_NOISE_UNITS_OF_HALF,
    WIDE_BYTES,
)
from align.measure.limits import HALF, RoundingNoise, luck_of
from align.measure.measure_arrays import RunningSums
from align.models.call_model import refuse_random
from align.models.inputs import run_fitted
from align.models.user_code import other_seed
from align.rules.ascend_rules import ascend_target
from align.traces.open_trace import NoiseSink
from align.traces.trace_folder import TraceFolder, TraceWriter
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.parameters import Array, EmulatedCalls, ParameterSet
    from align.core.protocols import Inputs, Model, ModelRunner
    from align.core.traces import Capture, CaptureSink, Measurement, Trace
    from align.core.verdicts import Verdict
    from align.forward.forward_result import ForwardComparison, LayerComparison
    from align.models.open_side import Side
    from align.rules.ascend_rules import AscendTarget, Driver
    from align.traces.module_calls import CallPair

    Measurements = dict[str, Measurement]

Measured = Literal["all", "gathered", "none"]
"""How much of the noise is measured: what gathers and that of each layer alone, the first only, or nothing."""


@dataclass(frozen=True, slots=True)
class BothRuns:
    """The traces of both models, with the inputs of all calls, the reference's noise, and what padding decides.

    `inputs` are what each side took: the same numbers, in its own dtypes, or those that the candidate alone was given.
    `failure` is what ended the candidate's run: its trace is cut short there.
    """

    reference: TraceFolder
    candidate: TraceFolder
    noise: Noise
    inputs: tuple[Inputs, Inputs]
    padding: Padding = NO_PADDING
    failure: ModelFailedError | None = None

    @property
    def traces(self) -> tuple[TraceFolder, TraceFolder]:
        """Both traces."""
        return self.reference, self.candidate


def run_both_models(
    sides: tuple[Side, Side],
    inputs: tuple[Inputs, Inputs],
    folder: Path,
    begun: Callable[[], None],
    chip: AscendTarget | None = None,
    measured: Measured = "all",
) -> BothRuns:
    """Run both models and measure the noise; `begun` is called at each of the three stages.

    With a `chip` the noise holds what that is expected to do to the reference; else `measured` says how much of the
    noise is, which `with_all_noise` completes.

    Raises ModelFailedError for a reference that fails, and for a candidate that fails before any layer has returned.
    """
    read, took, failure = [], [], None
    for side, side_inputs, name in zip(sides, inputs, SIDES, strict=True):
        begun()
        try:
            took.append(run_fitted(side, side_inputs, partial(trace_run, side, folder / name)))
        except ModelFailedError as error:
            if side is sides[0] or not TraceFolder(folder / name).captures:
                raise
            took, failure = [*took, side_inputs], error
        read.append(TraceFolder(folder / name))
    begun()
    run = BothRuns(read[0], read[1], Noise(), (took[0], took[1]), NO_PADDING, failure)
    if chip is None:
        run = replace(run, noise=_noise_of(run, sides[0], measured))
    else:
        refuse_random(sides[0], took[0], read[0])
        noise = measure_noise(sides[0], took[0], read[0])
        run = replace(run, noise=with_prediction(noise, sides[0], took[0], read[0], chip))
    return replace(run, padding=find_padding(sides[0], took[0], read[0]))


def with_all_noise(run: BothRuns, reference: Side) -> BothRuns:
    """The runs with the noise that was not measured yet."""
    return replace(run, noise=_noise_of(run, reference, "all"))


def _noise_of(run: BothRuns, reference: Side, measured: Measured) -> Noise:
    """As much of the noise as is to be measured: all of it where less says too little.

    The noise that gathers shows whether rounding is all that another run, from another seed, changes. Where that is so
    the reference draws no random numbers that matter, and no layer alone has noise that is strange.
    """
    inputs, trace, known = run.inputs[0], run.reference, run.noise.accumulated
    mixed = bool(_coarser_dtypes(trace, run.candidate))
    if measured == "none" and not mixed:
        return Noise(units_alone(trace), units_alone(trace), measured="none")
    if measured == "gathered" and not mixed:
        with other_seed():
            noise = _gathered_noise(reference, inputs, trace)
        if noise is not None:
            return noise
    if known is None or run.noise.measured == "none":
        refuse_random(reference, inputs, trace)  # else its random numbers would be its noise
        known = None
    return measure_noise(reference, inputs, trace, run.candidate, known)


def _gathered_noise(side: Side, inputs: Inputs, trace: Trace) -> Noise | None:
    """The noise by a run of the model by itself in float64; None where that leaves anything open."""
    if not isinstance(side.runner, PrecisionRunner):
        return None
    sink = NoiseSink(trace, "float64")
    try:
        wide = side.runner.widened_by_layer(side.model)
        side.runner.run(wide, inputs, sink)
    except UserCodeError:
        return None
    captures = {one.key: one for one in (*trace.captures, *trace.inputs)}
    outputs = [one for one in trace.captures if prod(one.shape)]
    seen = side.runner.code_seen(wide)
    if seen.draws or any(one.key not in sink.noise for one in outputs):
        return None
    if any(_is_suspect(captures, key, noise) for key, noise in sink.noise.items()):
        return None
    tables = _own_tables(side, seen.tables)
    return Noise(RoundingNoise(sink.noise), units_alone(trace), tables, seen.operations, "gathered")


def units_alone(trace: Trace) -> RoundingNoise:
    """As if nothing moved: limits are then some units in the last place, which no measured noise makes smaller."""
    captures = (*trace.captures, *trace.inputs)
    still = replace(RunningSums().result(()), reference_rms=inf)
    return RoundingNoise({one.key: still for one in captures if rounded_as(one.dtype)})


def memory_beside(sides: tuple[ParameterSet, ParameterSet]) -> int:
    """Bytes that a comparison takes beside both models, at the most: its largest layer in float64, and outputs."""
    layers: dict[str, int] = {}
    for one in sides[0].parameters:
        layers[one.module] = layers.get(one.module, 0) + one.count
    return WIDE_BYTES * max(layers.values(), default=0) + OUTPUTS_BYTES


def trace_run(side: Side, folder: Path, inputs: Inputs) -> None:
    """Run one model, traced into a folder with the inputs of all calls."""
    with TraceWriter(folder, side.reader.environment(), inputs=True) as writer:
        side.runner.run(side.model, inputs, writer)


@contextmanager
def kept_traces(traces: Path | None) -> Iterator[Path]:
    """Give a folder for the traces of a run, which becomes `traces` if it comes to its end; None: nothing is kept."""
    if traces is None:
        with tempfile.TemporaryDirectory(prefix="align-") as folder:
            yield Path(folder)
        return
    if traces.exists() and not traces.is_dir():
        raise DestinationError.of("forward_error.no_folder", path=traces)
    part = traces.with_name(f"{traces.name}.part")
    traces.parent.mkdir(parents=True, exist_ok=True)
    with folder_lock(traces.with_name(f".{traces.name}{LOCK}"), traces, "trace"):
        shutil.rmtree(part, ignore_errors=True)
        yield part
        replace_folder(part, traces)


# The reference's own rounding noise, by its runs in float64, and what the candidate adds to it.
#
# What float64 changes need not be rounding: a model whose operations round at random must then move as well. A branch
# on the dtype, random numbers of the reference's own, or a constant of the dtype move it by more. One layer of the
# candidate in half precision is no excuse for those behind it: the reference is run with such outputs rounded, and
# what does not move is judged as if no layer were coarser. A kernel that is off by more than rounding is nobody's
# fault in a port: what the candidate's functions move in the reference is added to the limits.

SEED = 0  # no limit: of its own generator


@dataclass(frozen=True, slots=True)
class Noise:
    """Accumulated and isolated noise, as far as it could be had; findings say why no further.

    `operations` are those that the model ran. Of what is not `measured`, which is that of layers alone first, units in
    the last place stand for it: what is within them is so whatever the noise.
    """

    accumulated: RoundingNoise | None = None
    isolated: RoundingNoise | None = None
    findings: tuple[Finding, ...] = ()
    operations: frozenset[str] = frozenset()
    measured: Measured = "all"

    @property
    def own_accumulated(self) -> Mapping[str, Measurement] | None:
        """The accumulated noise in the reference's own dtypes."""
        return None if self.accumulated is None else self.accumulated.own


def measure_noise(
    side: Side, inputs: Inputs, trace: Trace, candidate: Trace | None = None, known: RoundingNoise | None = None
) -> Noise:
    """Run the reference twice in float64: by itself, and each layer on the inputs of the ordinary run (`trace`).

    If it cannot run so, or not to its end, a finding says why: other limits then come from a table by dtype. Where the
    candidate's trace holds a coarser dtype than the reference's, it is run twice in that one too. What gathers in
    float64 may be `known`.
    """
    runner = side.runner
    try:
        by_layer = runner.widened_by_layer if isinstance(runner, PrecisionRunner) else runner.widened
        wide = by_layer(side.model)
    except UserCodeError as error:
        return Noise(findings=_unmeasured(side, error.message))
    if wide is None:
        return Noise(findings=_unmeasured(side, sentence("noise_note.no_float64", framework=side.reader.name)))
    together, alone, reason = _in_dtype(side, wide, inputs, trace, "float64", known)
    seen = side.runner.code_seen(wide) if isinstance(side.runner, PrecisionRunner) else CodeSeen()
    del wide
    (together, alone), findings = trust_noise(side, inputs, trace, (together, alone))
    coarser = {dtype: _in_coarser(side, inputs, trace, dtype) for dtype in _coarser_dtypes(trace, candidate)}
    for dtype, measured in [*coarser.items()]:
        if strange := [*strange_in_coarser(trace, alone, measured[1], dtype)]:
            findings, coarser[dtype] = (*findings, *strange), ({}, {})
    return Noise(
        RoundingNoise(together, {dtype: measured[0] for dtype, measured in coarser.items()}),
        RoundingNoise(alone, {dtype: measured[1] for dtype, measured in coarser.items()}),
        (*_unmeasured(side, reason), *findings, *_own_tables(side, seen.tables)),
        seen.operations,
    )


def _in_dtype(
    side: Side, model: Model, inputs: Inputs, trace: Trace, dtype: str, known: RoundingNoise | None = None
) -> tuple[Measurements, Measurements, str]:
    """The noise of a run by itself and of one on the ordinary inputs, and what kept either from its end."""
    together, alone = NoiseSink(trace, dtype), NoiseIsolation(trace, dtype)
    sinks = (together, alone) if known is None else (alone,)
    reasons = [failure_of(side.runner, model, inputs, sink) for sink in sinks]
    return together.noise if known is None else dict(known.own), alone.noise, max(reasons)


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
    captures = {capture.key: capture for capture in (*trace.captures, *trace.inputs)}
    suspects = [[key for key in noise if _is_suspect(captures, key, noise[key])] for noise in measured]
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
    for noise, keys, rounding in zip(measured, suspects, (together.noise, alone.noise), strict=True):
        wrong = [key for key in keys if key in rounding and _is_more(captures, key, noise[key], rounding[key])]
        trusted.append(noise | {key: rounding[key] for key in wrong})
        strange += [(captures[_whole(key)], noise[key], rounding[key]) for key in wrong]
    findings = (_no_rounding(*min(reversed(strange), key=lambda entry: entry[0].order)),) if strange else ()
    return (trusted[0], trusted[1]), findings


def strange_in_coarser(trace: Trace, noise: Measurements, coarser: Measurements, dtype: str) -> Iterator[Finding]:
    """Name the first layer that alone moves in a coarser dtype by far more than its own noise and the units explain.

    `noise` is what float64 moves the layers alone by, `coarser` what this dtype does.
    """
    for capture in sorted((*trace.captures, *trace.inputs), key=lambda capture: capture.order):
        mine, theirs = noise.get(capture.key), coarser.get(capture.key)
        if mine is None or theirs is None:
            continue
        least = max(mine.rmse * luck_of(mine) / EPSILON[rounded_as(capture.dtype)], mine.reference_rms)
        if theirs.rmse > MOST_TIMES_IN_COARSER * EPSILON[dtype] * least:
            yield _no_rounding(capture, theirs, replace(mine, rmse=EPSILON[dtype] * least), dtype)
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


# What a chip is expected to do to the reference, as the limit of a port that has not run there, or has.
#
# The reference runs twice more with the chip's roundings: by itself, and each layer on the inputs of its ordinary
# run. What that moves takes the place of the reference's noise in a coarser dtype.

TORCH_DRIVERS: dict[str, Driver] = {"gpu": "torch"}  # by maker, where torch is the candidate; torch_npu for all others


def refuse_unknown(emulate: str | None, switches: Mapping[str, str] | None) -> None:
    """Raise UsageError for a chip or a switch that is not known, and for switches of no chip."""
    if emulate is not None:
        ascend_target(emulate, switches=switches)
    elif switches:
        raise UsageError.of("ascend_usage.no_chip")


def chip_of(emulate: str | None, switches: Mapping[str, str] | None, sides: tuple[Side, Side]) -> AscendTarget | None:
    """The chip as the candidate's framework drives it; raises CannotRunError where the reference is no torch model."""
    if emulate is None:
        return None
    if not isinstance(sides[0].runner, ChipEmulator):
        facts = {"side": sides[0].label, "framework": sides[0].reader.name}
        raise CannotRunError.of("emulation_error.no_torch_model", **facts)
    maker = emulate.lower().partition(":")[0]
    by_torch = sides[1].reader.name == "torch"
    return ascend_target(emulate, TORCH_DRIVERS.get(maker, "torch_npu") if by_torch else "mindspore", switches)


def with_prediction(noise: Noise, side: Side, inputs: Inputs, trace: Trace, chip: AscendTarget) -> Noise:
    """The noise with what the chip is expected to move; `trace` is the ordinary run.

    Where the layers cannot be given inputs one by one, each is expected to be off by what gathers up to it.
    """
    assert isinstance(side.runner, ChipEmulator)  # noqa: S101 - for the type checker: `chip_of` has asked
    model = side.runner.emulated(side.model, chip.emulation())
    together, alone = NoiseSink(trace, ""), NoiseIsolation(trace, "")
    side.runner.run(model, inputs, together)
    reason = failure_of(side.runner, model, inputs, alone)
    calls = side.runner.emulated_calls(model)
    return replace(
        noise,
        findings=(*noise.findings, *_nothing_rounded(calls, chip), *emulation_findings(calls, chip, reason)),
        accumulated=replace(noise.accumulated or RoundingNoise({}), expected=together.noise),
        isolated=replace(
            noise.isolated or RoundingNoise({}), expected={**(together.noise if reason else {}), **alone.noise}
        ),
    )


def _nothing_rounded(calls: Sequence[EmulatedCalls], chip: AscendTarget) -> Iterator[Finding]:
    coarse = {entry.id for entry in chip.entries() if entry.computes != "float32"}
    if not any(one.entry in coarse for one in calls):
        message = sentence("emulation_finding.nothing", target=chip.chip.label, framework=chip.driver)
        yield Finding("nothing-emulated", "warning", sentence("model_part.model"), message)


def emulation_findings(calls: Sequence[EmulatedCalls], chip: AscendTarget, reason: str = "") -> Iterator[Finding]:
    """Operators that cannot be looked into, switches that change nothing, and `reason`: why no layer was run alone."""
    if reason:
        message = sentence("emulation_finding.none_alone", reason=reason)
        yield Finding("emulated-alone-unmeasured", "note", sentence("model_part.model"), message)
    for one in calls:
        if one.entry == NOT_EMULATED:
            message = sentence("emulation_finding.hidden", operator=one.operator)
            yield Finding("not-emulated", "warning", one.module or sentence("model_part.model"), message)
    for name in chip.without_effect():
        message = sentence("emulation_finding.no_effect", target=chip.chip.label, framework=chip.driver)
        yield Finding("switch-without-effect", "warning", name, message)


def predicted(result: ForwardComparison, chip: AscendTarget | None) -> ForwardComparison:
    """A comparison by a prediction: models that agree are within it and no more, and the verdict says so."""
    if chip is None:
        return result
    target = chip.chip.label
    prediction = Prediction(target, chip.chip.product, chip.driver, dict(chip.switches))
    verdict = _verdict(result.verdict, target)
    caveats = (*verdict.caveats, *_blind(result, target))
    return replace(result, prediction=prediction, verdict=replace(verdict, caveats=caveats))


def _blind(result: ForwardComparison, target: str) -> Iterator[str]:
    """Say where the chip is expected to be so far off that hardly any output would be beyond the limit."""
    wide = [one for one in result.layers if _is_blind(one)]
    if wide:
        yield sentence("prediction.blind", target=target, count=len(wide), layer=wide[0].reference or "the output")


def _is_blind(one: LayerComparison) -> bool:
    if one.limit is None or one.measurement is None or one.limit.source != "prediction":
        return False
    return one.limit.rmse >= BLIND_LIMIT * one.measurement.reference_rms > 0.0


def _verdict(verdict: Verdict, target: str) -> Verdict:
    if verdict.outcome is not Outcome.ALIGNED:
        return replace(verdict, caveats=(*verdict.caveats, sentence("prediction.beyond", target=target)))
    reason = sentence("prediction.within", reason=verdict.reason, target=target)
    caveats = (*verdict.caveats, sentence("prediction.caveat"))
    return replace(verdict, outcome=Outcome.PREDICTED, reason=reason, caveats=caveats)
