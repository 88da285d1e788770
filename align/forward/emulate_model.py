"""A torch model as an Ascend chip is expected to compute it: each layer's error, and the layers most at risk.

The reference runs plainly, then twice as the chip does: by itself, and each layer on the inputs of the plain run.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import replace
from functools import partial
from math import inf, log2
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.dtypes import LARGEST_FLOAT16, NOT_EMULATED, rounded_as
from align.core.progress import silent
from align.core.protocols import ChipEmulator
from align.core.training import GradientReader, Trainer, Training
from align.core.verdicts import Finding
from align.errors import CannotRunError
from align.forward.emulation_result import AppliedRule, EmulationResult, ExpectedError, Overflow
from align.forward.isolation.isolated_calls import NoiseIsolation
from align.forward.loss_scales import loss_scales
from align.forward.running.measure_noise import failure_of
from align.forward.running.predict_errors import emulation_findings
from align.forward.running.run_both_models import trace_run
from align.forward.thresholds import MOST_FLUSHED
from align.measure.measure_arrays import measure
from align.models.describe_sides import describe_host
from align.models.fit_inputs import run_fitted
from align.models.inputs import batches_of, describe_inputs, read_batches
from align.models.open_side import open_side
from align.models.user_code import find_function
from align.rules.ascend_rules import ascend_target
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from align.core.dtypes import Array, EmulatedCalls
    from align.core.measurements import Measurement
    from align.core.progress import Progress
    from align.core.protocols import Batch, Inputs, Model
    from align.core.traces import Capture, Trace
    from align.forward.emulation_result import LossScales
    from align.models.inputs import InputsSource
    from align.models.open_side import Side
    from align.rules.ascend_rules import AscendTarget, Driver, OperatorEntry

SUM = "sum"  # what stands for the sum of all that the model returns
STAGES = 3  # no limit: what progress is reported of


def emulate_model(  # noqa: PLR0913 - the options of one command
    side: str | Model | Side,
    *,
    target: str,
    inputs: InputsSource,
    framework: Driver = "mindspore",
    switches: Mapping[str, str] | None = None,
    loss: str | Callable[..., Any] | None = None,
    progress: Progress = silent,
) -> EmulationResult:
    """Run a torch model as an Ascend chip does, operator by operator, and measure each layer against its plain run.

    `target` is `ascend:CHIP`; `framework`, the one that will drive the chip, decides with `switches` which operators
    compute in a coarser format. With a `loss` the way back is looked at, too: which loss scales fit. It is a function
    of what the model returns and of the inputs that the model does not take, `module:function` of one, or `sum`, the
    sum of all that the model returns. Raises UsageError for a chip or switch that is not known, CannotRunError for a
    model of another framework, and for one of which no operator computes otherwise there.

    >>> emulate_model("model.py:build", target="ascend:9000", inputs={})
    Traceback (most recent call last):
    align.errors.UsageError: no chip is called 'ascend:9000'
    Hint: known: ascend:910a, ascend:310p, ascend:910b, ascend:910c, ascend:950, gpu:ampere
    """
    chip = ascend_target(target, framework, switches)
    opened, given = open_side(side), batches_of(read_batches(inputs))
    function = _loss_function(loss)
    batches = _without_targets(opened, given, function)
    emulated = _emulated(opened, chip)
    with tempfile.TemporaryDirectory(prefix="align-") as folder:
        progress("emulate", 0, STAGES)
        took = run_fitted(opened, batches, partial(trace_run, opened, Path(folder)))
        trace = TraceFolder(Path(folder))
        progress("emulate", 1, STAGES)
        together, alone = Deviations(trace), DeviationsAlone(trace)
        opened.runner.run(emulated, took, together)
        calls = _calls(opened, emulated, chip)
        progress("emulate", 2, STAGES)
        reason = failure_of(opened.runner, emulated, took, alone)
        layers = tuple(_rows(trace, _operators(calls, _coarse(chip)), together.found, alone.found))
    scales = None if loss is None else _scales(opened, chip, given, loss, function)
    progress("emulate", STAGES, STAGES)
    result = _result(opened, chip, took, layers, calls, (*emulation_findings(calls, chip, reason),))
    return replace(result, scales=scales, findings=(*_scale_findings(scales, asked=loss is not None), *result.findings))


def _loss_function(loss: str | Callable[..., Any] | None) -> Callable[..., Any] | None:
    """The function that is meant; None for the sum."""
    if not isinstance(loss, str):
        return loss
    return None if loss == SUM else find_function(loss, "loss file")


def _without_targets(opened: Side, given: Sequence[Batch], loss: Callable[..., Any] | None) -> list[Batch]:
    """What of each batch the model itself takes."""
    if loss is None or not isinstance(opened.reader, Trainer):
        return [*given]
    return [opened.reader.split_batch(Training(opened.model, loss), one).inputs for one in given]


def _scales(
    opened: Side,
    chip: AscendTarget,
    given: Sequence[Batch],
    loss: str | Callable[..., Any],
    function: Callable[..., Any] | None,
) -> LossScales | None:
    """The loss scales that fit all batches."""
    assert isinstance(opened.reader, GradientReader)  # noqa: S101 - for the type checker: it emulates
    reader, label = opened.reader, loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    met = [reader.gradients_met(Training(opened.model, function), chip.emulation(), one) for one in given]
    return loss_scales(label, [one for batch in met for one in batch])


def _scale_findings(scales: LossScales | None, *, asked: bool) -> Iterator[Finding]:
    """Say where no scale fits, or why none is known."""
    if scales is None and asked:
        message = sentence("emulation_finding.no_gradient")
        yield Finding("no-gradient", "warning", sentence("model_part.model"), message)
    if scales is not None and scales.flushed > MOST_FLUSHED:
        message = sentence("emulation_finding.no_scale", share=scales.flushed, keep=[*scales.keep])
        first = scales.keep[0] if scales.keep else ""
        yield Finding("no-loss-scale", "warning", first or sentence("model_part.model"), message)


def _emulated(opened: Side, chip: AscendTarget) -> Model:
    if not isinstance(opened.runner, ChipEmulator):
        raise CannotRunError.of("emulation_error.no_torch_model", side=opened.label, framework=opened.reader.name)
    return opened.runner.emulated(opened.model, chip.emulation())


def _calls(opened: Side, emulated: Model, chip: AscendTarget) -> tuple[EmulatedCalls, ...]:
    """What was computed otherwise in one run; raises CannotRunError if that is nothing."""
    assert isinstance(opened.runner, ChipEmulator)  # noqa: S101 - for the type checker: it made the model
    calls = opened.runner.emulated_calls(emulated)
    coarse = _coarse(chip)
    if not any(one.entry in coarse for one in calls):
        hidden = [*dict.fromkeys(one.operator for one in calls if one.entry == NOT_EMULATED)]
        facts = {"side": opened.label, "target": chip.chip.id, "framework": chip.driver, "hidden": hidden}
        raise CannotRunError.of("emulation_error.nothing_emulated", **facts, switches=[*chip.coarser_by()])
    return calls


def _coarse(chip: AscendTarget) -> frozenset[str]:
    """Ids of the entries that say that something is rounded."""
    return frozenset(entry.id for entry in chip.entries() if entry.computes != "float32")


class Deviations:
    """A sink that measures what each module returns against the plain run; of exact dtypes nothing is measured."""

    def __init__(self, plain: Trace) -> None:
        self._plain = plain
        self._captures = {one.key: one for one in plain.captures}
        self.found: dict[str, Measurement] = {}

    def add(self, capture: Capture, value: Array) -> None:
        """Measure one tensor."""
        same = self._captures.get(capture.key)
        if same is not None and same.shape == capture.shape and rounded_as(same.dtype):
            self.found[same.key] = measure(self._plain.value(same), value)


class DeviationsAlone(NoiseIsolation):
    """The same, with each module given what it had in the plain run."""

    def __init__(self, plain: Trace) -> None:
        super().__init__(plain, "")
        self._deviations = Deviations(plain)

    @property
    def found(self) -> dict[str, Measurement]:
        """What was measured, by key."""
        return self._deviations.found

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Give a call what it had, without a look at what it would have had."""
        plain = {name: self._inputs.get((module, call, name)) for name in inputs}
        return {name: self._trace.value(one) for name, one in plain.items() if one and one.shape == inputs[name].shape}

    def add(self, capture: Capture, value: Array) -> None:
        """Measure one tensor."""
        self._deviations.add(capture, value)


def _operators(calls: Sequence[EmulatedCalls], coarse: frozenset[str]) -> Mapping[str, list[str]]:
    """By module, the operators that round something there."""
    operators: dict[str, list[str]] = defaultdict(list)
    for one in calls:
        if one.entry in coarse:
            operators[one.module].append(one.operator)
    return operators


def _rows(
    trace: Trace,
    operators: Mapping[str, list[str]],
    together: Mapping[str, Measurement],
    alone: Mapping[str, Measurement],
) -> list[ExpectedError]:
    return [
        ExpectedError(
            one.order,
            one.module,
            one.class_name,
            one.call,
            one.output,
            one.dtype,
            one.shape,
            one.depth,
            tuple(operators.get(one.module, ())),
            together.get(one.key),
            alone.get(one.key),
        )
        for one in trace.captures
        if rounded_as(one.dtype)
    ]


def _result(
    opened: Side,
    chip: AscendTarget,
    took: Inputs,
    layers: tuple[ExpectedError, ...],
    calls: tuple[EmulatedCalls, ...],
    findings: tuple[Finding, ...],
) -> EmulationResult:
    entries = {entry.id: entry for entry in chip.entries()}
    overflows = tuple(_overflow(one, entries[one.entry], chip) for one in calls if one.overflowed)
    sizes = [one.largest for one in calls if one.largest]
    return EmulationResult(
        model=opened.label,
        target=chip.chip.label,
        product=chip.chip.product,
        framework=chip.driver,
        switches=dict(chip.switches),
        rules=tuple(_applied(entry, calls, chip) for entry in entries.values() if _met(entry, calls)),
        layers=layers,
        at_risk=_at_risk(layers, frozenset(one.module for one in overflows)),
        overflows=overflows,
        headroom=LARGEST_FLOAT16 / max(sizes) if sizes else None,
        scales=None,
        findings=(*map(_overflow_finding, overflows), *findings),
        inputs=describe_inputs(took),
        environment={opened.reader.name: opened.reader.environment(), "host": describe_host()},
    )


def _met(entry: OperatorEntry, calls: Sequence[EmulatedCalls]) -> int:
    return sum(one.calls for one in calls if one.entry == entry.id)


def _applied(entry: OperatorEntry, calls: Sequence[EmulatedCalls], chip: AscendTarget) -> AppliedRule:
    return AppliedRule(
        entry=entry.id,
        operators=entry.operators,
        operator_class=entry.operator_class,
        computes=entry.computes,
        result=entry.result,
        calls=_met(entry, calls),
        switch=entry.switch,
        write=_keeping_line(entry, chip),
        cann=entry.cann,
        source=entry.source,
        certainty=entry.certainty,
    )


def _keeping_line(entry: OperatorEntry, chip: AscendTarget) -> str:
    """The line that keeps an operator in float32, "" where the chip has none."""
    switches = {switch.id: switch for switch in chip.own_switches}
    return switches[entry.switch].line(chip.driver, entry.keeps) if entry.switch else ""


def _overflow(one: EmulatedCalls, entry: OperatorEntry, chip: AscendTarget) -> Overflow:
    scale = 2.0 ** -(-log2(one.largest / LARGEST_FLOAT16) // 1)
    line = _keeping_line(entry, chip)
    return Overflow(one.module, one.operator, one.entry, one.largest, one.overflowed, scale, line)


def _overflow_finding(one: Overflow) -> Finding:
    facts: dict[str, float | int | str] = {"elements": one.elements, "largest": one.largest, "scale": one.scale}
    message = sentence("emulation_finding.overflow", operator=one.operator, write=one.write, **facts)
    return Finding("overflows-float16", "warning", one.module or sentence("model_part.model"), message, facts)


def _at_risk(layers: Sequence[ExpectedError], overflowing: frozenset[str]) -> tuple[str, ...]:
    """Layers that compute in a coarser format themselves, what overflows first, then the largest expected error."""
    own = [one for one in layers if one.operators and one.accumulated]
    by_risk = sorted(own, key=lambda one: (one.module in overflowing, _risk(one)), reverse=True)
    return tuple(one.key for one in by_risk)


def _risk(one: ExpectedError) -> float:
    found = one.accumulated
    if found is None or found.non_finite_mismatch:
        return inf
    return found.relative_l2 or 0.0
