"""A torch model as an Ascend chip is expected to compute it: each layer's error, and the layers most at risk.

The reference runs plainly, then twice as the chip does: by itself, and each layer on the inputs of the plain run.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import partial
from math import floor, inf, log2
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.parameters import LARGEST_FLOAT16, NOT_EMULATED, rounded_as
from align.core.protocols import ChipEmulator, silent
from align.core.traces import capture_key
from align.core.training import GradientReader, Trainer, Training
from align.core.verdicts import Finding, ShownResult
from align.errors import CannotRunError
from align.forward.isolated_calls import NoiseIsolation
from align.forward.run_both_models import emulation_findings, failure_of, trace_run
from align.forward.thresholds import MOST_FLUSHED
from align.measure.measure_arrays import measure
from align.models.inputs import batches_of, describe_inputs, read_batches, run_fitted
from align.models.open_side import describe_host, open_side
from align.models.user_code import find_function
from align.rules.ascend_rules import ascend_target
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from align.core.parameters import Array, EmulatedCalls, GradientsMet, Shape
    from align.core.protocols import Batch, Inputs, Model, Progress
    from align.core.traces import Capture, Measurement, Trace
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
    """The operators that round something, by module."""
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
            capture.order,
            capture.module,
            capture.class_name,
            capture.call,
            capture.output,
            capture.dtype,
            capture.shape,
            capture.depth,
            tuple(operators.get(capture.module, ())),
            together.get(capture.key),
            alone.get(capture.key),
        )
        for capture in trace.captures
        if rounded_as(capture.dtype)
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
    overflows = tuple(_overflow(emulated, entries[emulated.entry], chip) for emulated in calls if emulated.overflowed)
    sizes = [emulated.largest for emulated in calls if emulated.largest]
    return EmulationResult(
        model=opened.label,
        target=chip.chip.label,
        product=chip.chip.product,
        framework=chip.driver,
        switches=dict(chip.switches),
        rules=tuple(_applied(entry, calls, chip) for entry in entries.values() if _met(entry, calls)),
        layers=layers,
        at_risk=_at_risk(layers, frozenset(overflow.module for overflow in overflows)),
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


# What a chip is expected to do to a model: each layer's error, what overflows, and the rules that say so.


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """A rule of `mappings/ascend/` that met operators of the model, `calls` times in all.

    `computes` is the format that inputs are rounded to, `result` that of what is returned. `switch` is what changes it
    ("" for nothing does), `write` the line that keeps float32. `operator_class`, `cann`, `source` and `certainty` say
    what is known, of which release of CANN, from where, and how surely.
    """

    entry: str
    operators: tuple[str, ...]
    operator_class: str
    computes: str
    result: str
    calls: int
    switch: str
    write: str
    cann: str
    source: str
    certainty: str


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """One tensor that one call of a layer returned: what the chip is expected to make of it, against plain float32.

    `accumulated` is with all layers before it on the chip too, `alone` with right inputs; None where it could not be
    had. `operators` are those inside of the layer itself that compute in a coarser format, none if it only carries the
    errors of others.
    """

    order: int
    module: str
    class_name: str
    call: int
    output: str
    dtype: str
    shape: Shape
    depth: int
    operators: tuple[str, ...]
    accumulated: Measurement | None
    alone: Measurement | None

    @property
    def key(self) -> str:
        """The key of the capture."""
        return capture_key(self.module, self.call, self.output)


@dataclass(frozen=True, slots=True)
class Overflow:
    """Numbers inside of a module that are beyond float16: so many `elements`, the largest of them, in an operator.

    `scale` is the power of two that brings them in; `write` the line that keeps the operator in float32, "" where the
    chip has none.
    """

    module: str
    operator: str
    entry: str
    largest: float
    elements: int
    scale: float
    write: str


@dataclass(frozen=True, slots=True)
class GradientLayer:
    """Gradients of a module that become float16: how large they are, how many are not zero, how many are flushed.

    `smallest` is a power of two; `flushed` is the share that becomes zero at the highest loss scale.
    """

    module: str
    operator: str
    entry: str
    largest: float
    smallest: float
    elements: int
    flushed: float


@dataclass(frozen=True, slots=True)
class LossScales:
    """The powers of two that fit as a loss scale, from `lowest` to `highest`: no gradient overflows.

    At the highest a share of `flushed` becomes zero, without a scale `flushed_unscaled`. Where that is too many at any
    scale, `keep` are the modules to keep in float32. `loss` says what was differentiated.
    """

    loss: str
    highest: float
    lowest: float
    flushed: float
    flushed_unscaled: float
    overflows_unscaled: bool
    keep: tuple[str, ...]
    layers: tuple[GradientLayer, ...]


@dataclass(frozen=True, slots=True)
class EmulationResult(ShownResult):
    """A model as it is expected to compute on a chip: nothing of it is verified on hardware.

    `framework` drives the chip, `switches` are in force. `at_risk` are the keys of the layers that compute in a coarser
    format, the largest expected error first. `headroom` is the factor by which the largest number that becomes float16
    is below the end of that range; None where nothing becomes float16. `scales` are the loss scales that fit; None
    where no loss was given, or no gradient becomes float16.
    """

    result_kind = "emulate"
    model: str
    target: str
    product: str
    framework: str
    switches: dict[str, str]
    rules: tuple[AppliedRule, ...]
    layers: tuple[ExpectedError, ...]
    at_risk: tuple[str, ...]
    overflows: tuple[Overflow, ...]
    headroom: float | None
    scales: LossScales | None
    findings: tuple[Finding, ...]
    inputs: dict[str, dict[str, object]]
    environment: dict[str, dict[str, str]]

    @property
    def exit_code(self) -> int:
        """1 if something is expected to overflow, or no loss scale fits."""
        return int(bool(self.overflows) or any(one.code == "no-loss-scale" for one in self.findings))


# Which loss scales a model can be trained with on a chip: powers of two at which no gradient leaves float16.
#
# A scale multiplies all gradients. At the highest that fits, the largest stays in range; the smallest are flushed to
# zero, fewer the higher the scale. Where too many are, the layers with the largest gradients are to stay in float32.

SMALLEST_KEPT = -24  # format: exponent of float16's smallest number; half of it and less is flushed to zero


def loss_scales(loss: str, met: Sequence[GradientsMet]) -> LossScales | None:
    """The scales that fit, with what is flushed; None where no gradient becomes float16."""
    if not met:
        return None
    highest = _highest(met)
    lowest = next((power for power in range(min(highest, 0), highest) if flushed(met, power) <= MOST_FLUSHED), highest)
    keep = _to_keep(met) if flushed(met, highest) > MOST_FLUSHED else ()
    return LossScales(
        loss=loss,
        highest=2.0**highest,
        lowest=2.0**lowest,
        flushed=flushed(met, highest),
        flushed_unscaled=flushed(met, 0),
        overflows_unscaled=highest < 0,
        keep=keep,
        layers=tuple(_row(one, highest) for one in sorted(met, key=lambda one: -one.largest)),
    )


def flushed(met: Sequence[GradientsMet], power: int) -> float:
    """The share of gradients other than zero that become zero at a loss scale of 2 ** power."""
    total = sum((Counter(one.exponents) for one in met), Counter())
    lost = sum(count for exponent, count in total.items() if exponent + power < SMALLEST_KEPT - 1)
    return lost / max(total.total(), 1)


def _highest(met: Sequence[GradientsMet]) -> int:
    return floor(log2(LARGEST_FLOAT16 / max(one.largest for one in met)))


def _to_keep(met: Sequence[GradientsMet]) -> tuple[str, ...]:
    """The fewest modules, those of the largest gradients, without which a scale fits; () where none would do."""
    left, kept = sorted(met, key=lambda gradients: gradients.largest), list[str]()
    while left and flushed(left, _highest(left)) > MOST_FLUSHED:
        module = left[-1].module
        kept.append(module)
        left = [gradients for gradients in left if gradients.module != module]
    return tuple(kept) if left else ()


def _row(one: GradientsMet, highest: int) -> GradientLayer:
    smallest = 2.0 ** min(one.exponents, default=0)
    count = sum(one.exponents.values())
    return GradientLayer(one.module, one.operator, one.entry, one.largest, smallest, count, flushed([one], highest))
