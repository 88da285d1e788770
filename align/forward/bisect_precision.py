"""Which layers suffer in another precision or on another device: the set of them halved until it cannot be smaller.

How much a model moves when something about it is changed is held against a limit.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from math import ceil, inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from align.core.measurements import smallest_factor
from align.core.progress import silent
from align.core.protocols import ModelPlacer
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import CannotRunError, ModelFailedError, UsageError, UserCodeError
from align.forward.bisect_result import PrecisionBisection, SensitiveLayer
from align.forward.running.measure_noise import Noise, measure_noise
from align.forward.thresholds import LOSS_LIMIT, MOST_SENSITIVE_SETS
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.models.inputs import describe_inputs, read_inputs
from align.models.open_side import Side, check_dtype, open_side
from align.models.user_code import find_function, run_user_code
from align.traces.trace_folder import TraceFolder
from align.traces.trace_writer import TraceWriter
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.progress import Progress
    from align.core.protocols import Model
    from align.core.traces import Capture

    Loss = Callable[[Any], float]

    from align.core.measurements import Measurement
    from align.core.traces import Trace

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
        bench = _Bench(opened, arrays, (device, precision), moved, progress, _layers(trace.captures, layers))
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
        verdict=_verdict(rows, bench, place),
    )


@dataclass
class _Bench:
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
        listed = [f"{path}: {reason}" for path, reason in list(self.not_run.items())[:3]]
        raise CannotRunError.of("forward_error.no_layer_runs", reasons=listed)

    def move(self, paths: tuple[str, ...]) -> Movement:
        """Run the model with these layers elsewhere."""
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


def _layers(captures: Sequence[Capture], pattern: str) -> dict[str, str]:
    return inner_layers({one.module: one.class_name for one in captures if one.module}, pattern)


def inner_layers(called: Mapping[str, str], pattern: str) -> dict[str, str]:
    """Those of called modules, classes by path, that have none inside and fit; raises UsageError if there is none."""
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


def _verdict(rows: Sequence[SensitiveLayer], bench: _Bench, place: str) -> Verdict:
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
    for one in before.captures:
        if not one.module:
            measurement = measure(before.value(one), outputs[one.output])
            moved = _relative(measurement)
            allowed = limit_for(
                measurement, (one.dtype, outputs[one.output].dtype.name), (noise or {}).get(one.key), precision
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
