"""Which layers suffer in another precision or on another device: the set of them halved until it cannot be smaller.

How much a model moves when something about it is changed is held against a limit.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from math import ceil, inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from align.core.protocols import ChipEmulator, ModelPlacer, silent
from align.core.traces import smallest_factor
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.errors import CannotRunError, ModelFailedError, UsageError, UserCodeError
from align.forward.run_both_models import Noise, emulation_findings, measure_noise
from align.forward.thresholds import LOSS_LIMIT, MOST_SENSITIVE_SETS
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.models.inputs import describe_inputs, read_inputs
from align.models.open_side import Side, check_dtype, open_side
from align.models.user_code import find_function, run_user_code
from align.rules.ascend_rules import ascend_target
from align.traces.trace_folder import TraceFolder, TraceWriter
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.core.parameters import Array, EmulatedCalls
    from align.core.protocols import Model, Progress
    from align.core.traces import Capture, Measurement, Trace
    from align.core.verdicts import Finding
    from align.rules.ascend_rules import AscendSwitch, AscendTarget, Driver

    Loss = Callable[[Any], float]


T = TypeVar("T")


def bisect_precision(  # noqa: PLR0913 - the options of one command
    side: str | Model | Side,
    *,
    inputs: Path | str | Mapping[str, Array],
    precision: str | None = None,
    device: str | None = None,
    layers: str = "*",
    limit: float | None = None,
    loss: str | Loss | None = None,
    progress: Progress = silent,
) -> PrecisionBisection:
    """Find the smallest sets of layers that move a model's output above a limit where they run in another precision.

    Layers are called modules without called modules inside, whose path fits the glob `layers`. `limit` is a relative
    movement of the output (L2), or of `loss(outputs)`; without it, the output's is that of align.compare_forward, the
    loss's 0.005. After a set is found the rest is searched, until the rest stays below the limit. Raises UsageError
    for a precision that there is not, CannotRunError where nothing can run so.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> model = ArrayModel((ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),))
    >>> bisect_precision(model, inputs={"x": np.ones(3, np.float32)}, precision="int8")
    Traceback (most recent call last):
    align.errors.UsageError: no model computes in 'int8'
    Hint: give one of: float16, bfloat16, float32, float64
    """
    check_dtype(precision)
    if (precision is None) == (device is None):
        raise UsageError.of("forward_error.precision_or_device")
    opened, arrays = open_side(side), read_inputs(inputs)
    with tempfile.TemporaryDirectory(prefix="align-") as folder:
        with TraceWriter(Path(folder), opened.reader.environment()) as writer:
            opened.runner.run(opened.model, arrays, writer)
        trace = TraceFolder(Path(folder))
        noise = Noise() if precision else measure_noise(opened, arrays, trace)
        moved = judged_by(trace, (noise, precision or "", limit), loss)
        fitting = inner_layers({one.module: one.class_name for one in trace.captures if one.module}, layers)
        bench = _PrecisionBench(opened, arrays, (device, precision), moved, progress, fitting)
        everything = bench.move_all()
        rows = sensitive_layers(bench)
        rest = bench.move(tuple(path for path in bench.layers if path not in {row.module for row in rows}))
    progress("bisect", len(bench.runs), len(bench.runs))
    place = precision or device or ""
    return PrecisionBisection(
        model=opened.label,
        precision=precision or "",
        device=device or "",
        judged="loss" if loss else "output",
        tried=len(bench.layers),
        all_moved=everything.moved,
        all_factor=everything.factor,
        layers=rows,
        rest_moved=rest.moved,
        rest_factor=rest.factor,
        complete=rest.factor <= 1.0,
        not_run=bench.not_run,
        runs=len(bench.runs),
        findings=noise.findings,
        inputs=describe_inputs(arrays),
        environment={opened.reader.name: opened.reader.environment()},
        verdict=_precision_verdict(rows, bench, place),
    )


@dataclass
class _PrecisionBench:
    """The model, run with some of its layers elsewhere; no such run is made twice."""

    side: Side
    inputs: Mapping[str, Array]
    place: tuple[str | None, str | None]
    judge: Callable[[Mapping[str, Array]], Movement]
    progress: Progress
    layers: dict[str, str]
    not_run: dict[str, str] = field(default_factory=dict)
    runs: dict[frozenset[str], Movement] = field(default_factory=dict)
    stand_ins: dict[str, Model] = field(default_factory=dict)

    def move_all(self) -> Movement:
        """Move all layers; those that fail there are left out from now on."""
        for path in list(self.layers):
            self._make(path)
        while self.layers:
            if (movement := self._attempt()) is not None:
                return movement
        listed = [say("fault_list.one", head=path, fault=reason) for path, reason in list(self.not_run.items())[:3]]
        raise CannotRunError.of("forward_error.no_layer_runs", reasons=listed)

    def move(self, paths: tuple[str, ...]) -> Movement:
        key = frozenset(paths)
        if key not in self.runs:
            sink = KeptOutputs()
            self.side.runner.run(self.side.model, self.inputs, sink, {path: self.stand_ins[path] for path in paths})
            self.runs[key] = self.judge(sink.values)
            self.progress("bisect", len(self.runs), 2 * len(self.runs))
        return self.runs[key]

    def _attempt(self) -> Movement | None:
        try:
            return self.move(tuple(self.layers))
        except ModelFailedError as error:
            if error.layer not in self.layers:
                raise
            self._leave_out(error.layer, error)
            return None

    def _make(self, path: str) -> None:
        placer = self.side.reader
        if not isinstance(placer, ModelPlacer):
            raise CannotRunError.of("forward_error.not_moved", framework=placer.name)
        code = partial(placer.placed_layer, self.side.model, path, *self.place)
        try:
            self.stand_ins[path] = run_user_code(code, partial(UserCodeError, f"copying {path}"))
        except UserCodeError as error:
            self._leave_out(path, error)

    def _leave_out(self, path: str, error: UserCodeError) -> None:
        self.not_run[path] = error.message
        del self.layers[path]


class KeptOutputs:
    """A sink that keeps what the model itself returned."""

    def __init__(self) -> None:
        self.values: dict[str, Array] = {}

    def add(self, capture: Capture, value: Array) -> None:
        """Take one tensor of the model's own."""
        if not capture.module:
            self.values[capture.output] = value.copy()


def inner_layers(called: Mapping[str, str], pattern: str) -> dict[str, str]:
    """The called modules without modules inside that fit, classes by path; raises UsageError if there is none."""
    around = {path[:end] for path in called for end, letter in enumerate(path) if letter == "."}
    found = {path: name for path, name in called.items() if path not in around and fnmatchcase(path, pattern)}
    if not found:
        raise UsageError.of("forward_error.no_layer_fits", pattern=pattern)
    return found


def judged_by(
    trace: TraceFolder, rule: tuple[Noise, str, float | None], loss: str | Loss | None
) -> Callable[[Mapping[str, Array]], Movement]:
    """What says how much a run moved a model's outputs, or its loss, by the noise, the precision and a limit."""
    noise, precision, limit = rule
    if loss is None:
        return partial(output_movement, trace, noise.own_accumulated, precision, limit)
    function = find_function(loss, "loss file") if isinstance(loss, str) else loss

    def of(outputs: Mapping[str, Array]) -> float:
        given = outputs[""] if set(outputs) == {""} else dict(outputs)
        return float(run_user_code(lambda: function(given), partial(UserCodeError, "the loss")))

    own = of({one.output: trace.value(one).copy() for one in trace.captures if not one.module})
    return lambda outputs: loss_movement(own, of(outputs), limit)


class Bench(Protocol):
    """Runs something with some of its layers otherwise; `layers` are the classes of those that can be, by path."""

    layers: dict[str, str]

    def move(self, paths: tuple[str, ...]) -> Movement:
        """Run it with these layers otherwise, and tell by how much it moved."""


def sensitive_layers(bench: Bench) -> tuple[SensitiveLayer, ...]:
    """Smallest sets that move it above its limit, one after the other: each layer alone, and with those before it."""
    groups: list[tuple[str, ...]] = []
    rest = tuple(bench.layers)
    while rest and len(groups) < MOST_SENSITIVE_SETS and bench.move(rest).factor > 1.0:
        groups.append(smallest_set(rest, lambda paths: bench.move(paths).factor > 1.0))
        rest = tuple(path for path in rest if path not in groups[-1])
    return tuple(_rows(bench, groups))


def _rows(bench: Bench, groups: Sequence[tuple[str, ...]]) -> list[SensitiveLayer]:
    rows: list[SensitiveLayer] = []
    for number, group in enumerate(groups):
        for path in sorted(group, key=lambda path: -bench.move((path,)).factor):
            alone = bench.move((path,))
            together = bench.move((*(row.module for row in rows), path))
            name = bench.layers[path]
            rows.append(SensitiveLayer(path, name, number, alone.moved, alone.factor, together.moved, together.factor))
    return rows


def _precision_verdict(rows: Sequence[SensitiveLayer], bench: _PrecisionBench, place: str) -> Verdict:
    coverage = Coverage("layers", len(bench.layers), len(bench.not_run))
    if not rows:
        within = sentence("precision_verdict.within_limit", count=len(bench.layers), place=place)
        return Verdict(Outcome.ALIGNED, within, coverage)
    reason = sentence("precision_verdict.layers_pass_limit", count=len(rows), total=len(bench.layers), place=place)
    return Verdict(Outcome.NOT_ALIGNED, reason, coverage)


def smallest_set(items: Sequence[T], shows: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Return a part of the items that shows the effect and of which none can be left out, in their order.

    All of them together must show it. For one item that is to blame it takes about 2 log2(n) calls.
    """
    kept, parts = tuple(items), 2
    while len(kept) > 1:
        size = ceil(len(kept) / parts)
        chunks = [kept[start : start + size] for start in range(0, len(kept), size)]
        rests = [tuple(item for item in kept if item not in chunk) for chunk in chunks] if parts > 2 else []
        smaller = next((part for part in (*chunks, *rests) if shows(part)), None)
        if smaller is not None:
            parts = 2 if smaller in chunks else max(parts - 1, 2)
            kept = smaller
        elif parts >= len(kept):
            break
        else:
            parts = min(2 * parts, len(kept))
    return kept


@dataclass(frozen=True, slots=True)
class Movement:
    """Relative to what was there before, and as a multiple of the limit."""

    moved: float
    factor: float


def output_movement(
    before: Trace,
    noise: Mapping[str, Measurement] | None,
    precision: str,
    limit: float | None,
    outputs: Mapping[str, Array],
) -> Movement:
    """Hold a model's outputs against those of an earlier run; the worst of them counts.

    `limit` bounds the relative error (L2); without it the limit is that of a port in this precision ("" for the same).
    """
    worst = Movement(0.0, 0.0)
    for capture in before.captures:
        if not capture.module:
            measurement = measure(before.value(capture), outputs[capture.output])
            moved = _relative(measurement)
            allowed = limit_for(
                measurement,
                (capture.dtype, outputs[capture.output].dtype.name),
                (noise or {}).get(capture.key),
                precision,
            )
            factor = smallest_factor(measurement, allowed) if limit is None else _ratio(moved, limit)
            worst = max(worst, Movement(moved, factor), key=lambda movement: movement.factor)
    return worst


def loss_movement(before: float, after: float, limit: float | None) -> Movement:
    """Hold a loss against an earlier one; `limit` bounds the relative difference, LOSS_LIMIT without it."""
    moved = _ratio(abs(after - before), abs(before)) if isfinite(after) else inf
    return Movement(moved, _ratio(moved, LOSS_LIMIT if limit is None else limit))


def _relative(measurement: Measurement) -> float:
    if measurement.non_finite_mismatch:
        return inf
    return _ratio(measurement.rmse, measurement.reference_rms)


def _ratio(value: float, bound: float) -> float:
    return value / bound if bound > 0.0 else 0.0 if value == 0.0 else inf


# Which switch of an Ascend chip or a GPU a model suffers from: all are set widest, then halved until one is left.
#
# A switch is emulated by the casts that it stands for: no card is needed, and the lines to run on one are part of the
# result. What no switch widens (operators that the chip has in float16 only) stays in every run.


def bisect_switches(  # noqa: PLR0913 - the options of one command
    side: str | Model | Side,
    *,
    target: str,
    inputs: Path | str | Mapping[str, Array],
    framework: Driver = "mindspore",
    switches: Mapping[str, str] | None = None,
    limit: float | None = None,
    loss: str | Callable[[Any], float] | None = None,
    progress: Progress = silent,
) -> SwitchBisection:
    """Find the smallest set of switches that moves a torch model's output above a limit where they are not widest.

    The switches that are halved are those that are not at their most precise value, by default on the chip or as
    `switches` say. `limit` and `loss` are as for `align.bisect_precision`; without a limit the output's is that of a
    port in float32. Raises UsageError for an unknown chip or switch, and where all switches are widest already.

    >>> widest = {"conv_allow_hf32": "False", "deterministic": "True"}
    >>> bisect_switches("model.py:build", target="ascend:950", inputs={}, switches=widest)
    Traceback (most recent call last):
    align.errors.UsageError: all switches of ascend:950 are at their most precise value already
    Hint: set one otherwise with --switch: precision_mode, conv_allow_hf32, matmul_allow_hf32, deterministic
    """
    chip = replace(ascend_target(target, framework, switches), reorders=True)
    narrow = _narrow(chip, target)
    opened, arrays = open_side(side), read_inputs(inputs)
    if not isinstance(opened.runner, ChipEmulator):
        facts = {"side": opened.label, "framework": opened.reader.name}
        raise CannotRunError.of("emulation_error.no_torch_model", **facts)
    with tempfile.TemporaryDirectory(prefix="align-") as folder:
        with TraceWriter(Path(folder), opened.reader.environment()) as writer:
            opened.runner.run(opened.model, arrays, writer)
        trace = TraceFolder(Path(folder))
        noise = measure_noise(opened, arrays, trace)
        bench = _SwitchBench(opened, arrays, chip, judged_by(trace, (noise, "", limit), loss), progress)
        everything, widest = bench.move(narrow), bench.move(())
        matters = (
            smallest_set(narrow, lambda names: bench.move(names).factor > 1.0)
            if everything.factor > 1.0 >= widest.factor
            else ()
        )
        moved = tuple(_moved(bench, name, matters) for name in narrow)
    return SwitchBisection(
        model=opened.label,
        target=chip.chip.label,
        framework=chip.driver,
        judged="loss" if loss else "output",
        switches=moved,
        all_moved=everything.moved,
        all_factor=everything.factor,
        widest_moved=widest.moved,
        widest_factor=widest.factor,
        widest_lines=tuple(switch.line(chip.driver, switch.values[0]) for switch in _switches(chip)),
        runs=len(bench.runs),
        findings=(*noise.findings, *emulation_findings(bench.calls, chip)),
        inputs=describe_inputs(arrays),
        environment={opened.reader.name: opened.reader.environment()},
        verdict=_switch_verdict(moved, everything, widest, chip),
    )


def _narrow(chip: AscendTarget, target: str) -> tuple[str, ...]:
    """The switches that are not at their most precise value; raises UsageError if there is none.

    Those that a chip has at one value only are left out: no line widens them.
    """
    changing = chip.changing()
    found = [one.id for one in _switches(chip) if chip.switches[one.id] != one.values[0]]
    if not found:
        raise UsageError.of("ascend_usage.all_widest", target=target, switches=[*changing])
    return tuple(found)


def _switches(chip: AscendTarget) -> tuple[AscendSwitch, ...]:
    """The switches on which something depends there."""
    return tuple(switch for switch in chip.own_switches if switch.id in chip.changing())


@dataclass
class _SwitchBench:
    """The model, run with some switches as they are and all others at their widest; no such run is made twice.

    `calls` are those of the first run, with all switches as they are.
    """

    side: Side
    inputs: Mapping[str, Array]
    chip: AscendTarget
    judge: Callable[[Mapping[str, Array]], Movement]
    progress: Progress
    runs: dict[frozenset[str], Movement] = field(default_factory=dict)
    calls: tuple[EmulatedCalls, ...] = ()

    def move(self, narrow: Sequence[str]) -> Movement:
        key = frozenset(narrow)
        if key not in self.runs:
            wide = {one.id: one.values[0] for one in self.chip.own_switches if one.id not in key}
            emulation = self.chip.with_switches(wide).emulation()
            assert isinstance(self.side.runner, ChipEmulator)  # noqa: S101 - for the type checker: it was asked before
            sink, model = KeptOutputs(), self.side.runner.emulated(self.side.model, emulation)
            self.side.runner.run(model, self.inputs, sink)
            if not self.runs:
                self.calls = self.side.runner.emulated_calls(model)
            self.runs[key] = self.judge(sink.values)
            self.progress("bisect", len(self.runs), 2 * len(self.runs))
        return self.runs[key]


def _moved(bench: _SwitchBench, name: str, matters: Sequence[str]) -> SwitchMoved:
    switch = next(one for one in bench.chip.own_switches if one.id == name)
    alone = bench.move((name,))
    return SwitchMoved(
        switch=name,
        value=bench.chip.switches[name],
        widest=switch.values[0],
        effect=switch.effect,
        matters=name in matters,
        alone=alone.moved,
        alone_factor=alone.factor,
        write=switch.line(bench.chip.driver, switch.values[0]),
    )


def _switch_verdict(
    moved: Sequence[SwitchMoved], everything: Movement, widest: Movement, chip: AscendTarget
) -> Verdict:
    coverage = Coverage("switches", len(moved))
    target = chip.chip.label
    if everything.factor <= 1.0:
        return Verdict(Outcome.PREDICTED, sentence("switches_verdict.within", target=target), coverage)
    if widest.factor > 1.0:
        return Verdict(Outcome.NOT_ALIGNED, sentence("switches_verdict.no_switch_helps", target=target), coverage)
    names = [one.switch for one in moved if one.matters]
    return Verdict(Outcome.NOT_ALIGNED, sentence("switches_verdict.matter", names=names, target=target), coverage)


# What halving found: the stretches of a port that go wrong, or the layers that suffer in another precision.

PointOrigin = Literal["given", "paired", "shape"]
PointState = Literal["corresponds", "doubtful", "dropped", "untried"]


@dataclass(frozen=True, slots=True)
class SplicePoint:
    """A tensor of the reference's run that takes the place of one of the candidate's, by the keys of the captures.

    It was `given` by the user, belongs to layers that the name map pairs, or has its `shape` and place only. It
    `corresponds` if the candidate makes the reference's value there of right values; where the right value makes
    right what comes after wrong it was `dropped`; it is `doubtful` where neither is known.
    """

    reference: str
    candidate: str
    origin: PointOrigin
    state: PointState = "untried"


@dataclass(frozen=True, slots=True)
class WrongStretch:
    """Code of the candidate that makes something wrong of right values.

    `after` and `before` are indices of points: None are the model's inputs, and its outputs. `factor` is the multiple
    of its limit at the end of the stretch. `modules` are the candidate's calls that ended in between.
    """

    after: int | None
    before: int | None
    factor: float
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bisection(ShownResult):
    """A port bisected: its points in the order of the run, and the stretches that go wrong, in that order too.

    `factor` is the multiple of its limit of the model's output as it is, `runs` the number of runs of the candidate.
    """

    result_kind = "bisect"
    reference: str
    candidate: str
    points: tuple[SplicePoint, ...]
    stretches: tuple[WrongStretch, ...]
    factor: float
    runs: int
    findings: tuple[Finding, ...]
    inputs: dict[str, dict[str, object]]
    environment: dict[str, dict[str, str]]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class SensitiveLayer:
    """One layer of a set that moves the model above its limit; `group` numbers the sets from 0.

    `alone` and `cumulative` are what it moves by itself and together with all layers before it in the list: relative
    movements, 1 being as much as there is; `alone_factor` and `cumulative_factor` are the multiples of the limit.
    """

    module: str
    class_name: str
    group: int
    alone: float
    alone_factor: float
    cumulative: float
    cumulative_factor: float


@dataclass(frozen=True, slots=True)
class PrecisionBisection(ShownResult):
    """The layers that suffer where they run in another precision or on another device.

    What moves is the model's output or a loss (`judged`). `all_factor` is with all `tried` layers there, `rest_factor`
    with all but those in the list. `not_run` are layers that cannot run there, and why. `complete` is False if there
    may be more sets.
    """

    result_kind = "precision"
    model: str
    precision: str
    device: str
    judged: str
    tried: int
    all_moved: float
    all_factor: float
    layers: tuple[SensitiveLayer, ...]
    rest_moved: float
    rest_factor: float
    complete: bool
    not_run: dict[str, str]
    runs: int
    findings: tuple[Finding, ...]
    inputs: dict[str, dict[str, object]]
    environment: dict[str, dict[str, str]]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class SwitchMoved:
    """A switch that is not at its most precise value (`widest`), and what it moves `alone`, all others being widest.

    It `matters` if it is in the smallest set that moves the model above its limit. `write` is the line that widens it.
    """

    switch: str
    value: str
    widest: str
    effect: str
    matters: bool
    alone: float
    alone_factor: float
    write: str


@dataclass(frozen=True, slots=True)
class SwitchBisection(ShownResult):
    """The switches of a chip that a model suffers from, emulated: nothing of it is verified on hardware.

    `all_factor` is with all `switches` as they are, `widest_factor` with all of them widest: the multiples of the
    limit. `widest_lines` set all that the chip has, to be run on a card first.
    """

    result_kind = "switches"
    model: str
    target: str
    framework: str
    judged: str
    switches: tuple[SwitchMoved, ...]
    all_moved: float
    all_factor: float
    widest_moved: float
    widest_factor: float
    widest_lines: tuple[str, ...]
    runs: int
    findings: tuple[Finding, ...]
    inputs: dict[str, dict[str, object]]
    environment: dict[str, dict[str, str]]
    verdict: Verdict
