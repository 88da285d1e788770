"""What training steps of a side, or of both, take of memory: by phase and layer, with what would lower the peak."""

from __future__ import annotations

import gc
import os
import re
import sys
import tracemalloc
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.core.memory import MemoryTracer
from align.core.protocols import silent
from align.core.verdicts import Coverage, Finding, Outcome, ShownResult, Verdict
from align.curves.compare_losses import LogReading
from align.curves.place_on_axis import place_on_axis
from align.errors import AlignError, CannotRunError, UsageError
from align.lint.examine_environment import LEAST_MEMORY_SAMPLES, MEMORY_WARM_UP, leaks, memory_trend, resident_bytes
from align.loops.watched_folder import WatchedTraining
from align.memory.read_trace import (
    LargestBatch,
    batch_memory,
    checkpointed_trace,
    checkpointings,
    cut_batch,
    largest_size,
    layer_rows,
    peak_of,
    phase_peaks,
)
from align.memory.thresholds import (
    LEAST_TOLD_SHARE,
    MORE_THAN_REFERENCE,
    OBJECTS_A_STEP,
    OBJECTS_NAMED,
    SHARE_OF_LARGEST,
    TRACED_FRAMES,
)
from align.traces.pair_traces import choose_map
from align.training.open_training import batch_findings, open_training, open_trainings, read_training_batch
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.memory import HowKnown, MemoryTrace
    from align.core.name_map import NameMap
    from align.core.parameters import Array
    from align.core.protocols import Batch, Progress
    from align.core.training import Training
    from align.memory.read_trace import BatchMemory, Checkpointing, LayerMemory, PhaseMemory
    from align.models.inputs import InputsSource
    from align.training.open_training import TrainingSide


@dataclass(frozen=True, slots=True)
class SideMemory:
    """One side: how its memory is known, the peak of a step in bytes, phases, layers, and what would lower the peak.

    `workspaces` tells whether what kernels take while they run is in it. `counted` is the peak by a device's allocator,
    `reserved` what that took from the device. `batch` is None where no other size could be run.
    """

    label: str
    framework: str
    device: str
    how: HowKnown
    workspaces: bool
    peak: int
    counted: int | None
    reserved: int | None
    phases: tuple[PhaseMemory, ...]
    layers: tuple[LayerMemory, ...]
    checkpointings: tuple[Checkpointing, ...]
    batch: BatchMemory | None
    fits: LargestBatch | None


@dataclass(frozen=True, slots=True)
class MemoryResult(ShownResult):
    """The memory of one side or of both; `growth` from step to step, where steps, a log or a record were asked for."""

    result_kind = "memory"
    sides: tuple[SideMemory, ...]
    growth: tuple[Growth, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict


def measure_memory(  # noqa: PLR0913 - one keyword an option
    reference: str | Training,
    candidate: str | Training | None = None,
    *,
    batch: InputsSource,
    name_map: NameMap | Path | str | None = None,
    fits: int | None = None,
    steps: int | None = None,
    progress: Progress = silent,
) -> MemoryResult:
    """Measure what a training step takes of memory, by phase and layer; with a candidate, of both sides.

    Sides and `batch` are as for `align.check_parameters`. `fits` are bytes for which the largest batch is told. With
    `steps` that many steps are taken, and what grows from one to the next is told. Nothing of a side is changed. Raises
    CannotRunError for a framework that does not trace memory, and what the opening of a side or its step raises.

    >>> from align.core.training import Training
    >>> from align.models.frameworks.arrays import ArrayModel
    >>> import numpy as np
    >>> measure_memory(Training(ArrayModel(())), batch={"x": np.ones(2)})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: arrays models cannot be trained
    """
    if fits is not None and fits <= 0:
        raise UsageError.of("memory_usage.no_bytes", given=fits)
    arrays = read_training_batch(batch)
    opened = [open_training(reference)] if candidate is None else [*open_trainings(reference, candidate)]
    noted = [finding for side in opened for finding in batch_findings(side, arrays)]
    sides, growth = [], []
    for number, side in enumerate(opened):
        progress("memory", number, len(opened))
        sides.append(_measured(side, arrays, fits))
        if steps is not None:
            growth.append(find_growth(side, arrays, steps, _tracer(side)))
    progress("memory", len(opened), len(opened))
    unlike = [] if candidate is None else [*_unlike_layers(opened, sides, name_map)]
    findings = (*noted, *_notes(sides), *unlike)
    return MemoryResult(tuple(sides), tuple(growth), findings, _verdict(sides, growth))


def follow_logged_memory(source: Path | str) -> MemoryResult:
    r"""Tell whether the memory of each step that a loss log, or a record of `align.watch`, holds grows.

    Raises UsageError for a log without a column of memory, and what the reading of either raises.

    >>> import pathlib, tempfile
    >>> log = pathlib.Path(tempfile.mkdtemp()) / "train.log"
    >>> lines = (f"step {at} loss {2 / at:.4f} memory_mb {1000 + 2 * at}\n" for at in range(1, 60))
    >>> _ = log.write_text("".join(lines))
    >>> follow_logged_memory(log).growth[0].grows
    True
    """
    growth = logged_growth(source)
    coverage = Coverage("steps", len(growth.steps))
    if not growth.judged:
        reason = sentence("growth_verdict.too_few", count=len(growth.steps))
        return MemoryResult((), (growth,), (), Verdict(Outcome.NOT_COMPARED, reason, coverage))
    outcome = Outcome.NOT_ALIGNED if growth.grows else Outcome.ALIGNED
    return MemoryResult((), (growth,), (), Verdict(outcome, growth.reason, coverage))


def _tracer(side: TrainingSide) -> MemoryTracer:
    reader = side.side.reader
    if not isinstance(reader, MemoryTracer):
        raise CannotRunError.of("memory_usage.no_tracer", framework=reader.name)
    return reader


def _measured(side: TrainingSide, batch: Batch, limit: int | None) -> SideMemory:
    tracer = _tracer(side)
    trace = tracer.trace_memory(side.training, batch)
    parameters = side.side.reader.read_parameters(side.side.model, side.label)
    classes = {module.path: module.class_name for module in parameters.modules}
    ways = checkpointings(trace)
    scaling, other = _other_batch(side, tracer, batch, trace)
    fits = None if limit is None or scaling is None else _fits(limit, scaling, (trace, other), ways)
    return SideMemory(
        side.label,
        tracer.name,
        trace.device,
        trace.how,
        trace.workspaces,
        peak_of(trace),
        trace.counted,
        trace.reserved,
        phase_peaks(trace),
        layer_rows(trace, classes),
        ways,
        scaling,
        fits,
    )


def _other_batch(
    side: TrainingSide, tracer: MemoryTracer, batch: Batch, trace: MemoryTrace
) -> tuple[BatchMemory | None, MemoryTrace]:
    """The same step on half of the batch, or where that does not run, as BatchNorm of one sample, on twice of it."""
    for twice in (False, True):
        other = cut_batch(batch, twice)
        if other is None:
            continue
        try:
            trace_of_other = tracer.trace_memory(side.training, other[0])  # type: ignore[arg-type]
        except AlignError:  # it says of the user's step that it takes no such batch, which is no fault
            continue
        return batch_memory((other[2], other[1]), (trace, trace_of_other)), trace_of_other
    return None, trace


def _fits(
    limit: int, scaling: BatchMemory, traces: tuple[MemoryTrace, MemoryTrace], ways: Sequence[Checkpointing]
) -> LargestBatch:
    sizes = scaling.size, scaling.other_size
    size = largest_size(sizes, traces, limit)
    if not ways:
        return LargestBatch(limit, size, "", None)
    path = ways[0].path
    checkpointed = checkpointed_trace(traces[0], path), checkpointed_trace(traces[1], path)
    return LargestBatch(limit, size, path, max(size, largest_size(sizes, checkpointed, limit)))


def _notes(sides: Sequence[SideMemory]) -> Iterator[Finding]:
    for side in sides:
        if side.how == "estimated":
            key = "by_shapes" if side.device == "meta" else "estimated"
            yield Finding(key.replace("_", "-"), "note", side.label, sentence(f"step_memory_finding.{key}"))
        elif not side.workspaces:
            yield Finding("no-workspaces", "note", side.label, sentence("step_memory_finding.no_workspaces"))
        if side.batch is None:
            yield Finding("one-batch-size", "note", side.label, sentence("step_memory_finding.one_batch_size"))


def _unlike_layers(
    opened: Sequence[TrainingSide], sides: Sequence[SideMemory], given: NameMap | Path | str | None
) -> Iterator[Finding]:
    """Layers of the port that keep more than the reference's, paired by their parameters."""
    sets = tuple(side.side.reader.read_parameters(side.side.model, side.label) for side in opened)
    mine, theirs = ({row.path: row for row in side.layers} for side in sides)
    pairs = dict.fromkeys(
        (pairing.source.rpartition(".")[0], pairing.target.rpartition(".")[0])
        for pairing in choose_map(given, (sets[0], sets[1])).pairings
    )
    for first, second in pairs:
        reference, candidate = mine.get(first), theirs.get(second)
        if reference is None or candidate is None:
            continue
        kept = reference.activations, candidate.activations
        beyond = kept[1] > (1 + MORE_THAN_REFERENCE) * kept[0]
        if beyond and kept[1] - kept[0] > LEAST_TOLD_SHARE * sides[1].peak:
            message = sentence(
                "step_memory_finding.keeps_more", reference=kept[0] / MEGABYTE, candidate=kept[1] / MEGABYTE
            )
            yield Finding("keeps-more", "warning", second, message)


def _verdict(sides: Sequence[SideMemory], growth: Sequence[Growth]) -> Verdict:
    coverage = Coverage("layers", sum(len(side.layers) for side in sides))
    caveats = tuple(
        sentence("step_memory_finding.estimated_side", label=side.label) for side in sides if side.how != "measured"
    )
    if grown := next((one for one in growth if one.grows), None):
        return Verdict(Outcome.NOT_ALIGNED, grown.reason, coverage, caveats)
    full = next(((side, side.fits) for side in sides if side.fits is not None and side.peak > side.fits.limit), None)
    if full:
        side, fits = full
        facts = {"limit": fits.limit / MEGABYTE, "peak": side.peak / MEGABYTE, "size": fits.size}
        reason = sentence("step_memory_verdict.too_large", label=side.label, **facts)
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage, caveats)
    if growth:
        return Verdict(Outcome.ALIGNED, growth[0].reason, coverage, caveats)
    if len(sides) > 1:
        facts = {"reference": sides[0].peak / MEGABYTE, "candidate": sides[1].peak / MEGABYTE}
        return Verdict(Outcome.ALIGNED, sentence("step_memory_verdict.both", **facts), coverage, caveats)
    phase = max(sides[0].phases, key=lambda at: at.peak).phase
    return Verdict(
        Outcome.ALIGNED,
        sentence("step_memory_verdict.peak", peak=sides[0].peak / MEGABYTE, phase=phase),
        coverage,
        caveats,
    )


# Whether memory grows from step to step, which memory, and what kind of object; in steps, logs and records.

GrowingMemory = Literal["tensors", "python", "host", "logged"]
MINUTE = 60.0  # format: a trend is told a minute, of steps that are taken for seconds
MEGABYTE = 1e6  # format: unit of what is told
_MEMORY, _SHARE = re.compile(r"(?i)mem(ory)?(?![a-z])"), re.compile(r"(?i)percent|share|%")
_UNITS = {"gib": 2.0**30, "gb": 1e9, "mib": 2.0**20, "bytes": 1.0}


# What many objects hold, and what this look itself makes: no name of a leak.
_OF_EVERYTHING = ("builtins.", "align.", "weakref.", "tracemalloc.", "collections.")


@dataclass(frozen=True, slots=True)
class GrowingObject:
    """A kind of object of which more live after each step: how many a step, their bytes a step (0: not known).

    `place` is the layer that made a tensor, or the line of the user's code that took memory, "" where neither is known.
    """

    kind: str
    place: str
    per_step: float
    bytes_per_step: float


@dataclass(frozen=True, slots=True)
class GrowthSeries:
    """Bytes of one memory after each step, the growth a step with its interval of 95 %, and whether it is a leak."""

    memory: GrowingMemory
    values: tuple[float, ...]
    per_step: float
    low: float
    high: float
    grows: bool


@dataclass(frozen=True, slots=True)
class Growth:
    """The series of one side, log or record, what of it grows, the objects that do, and the reason in a sentence."""

    label: str
    steps: tuple[int, ...]
    series: tuple[GrowthSeries, ...]
    objects: tuple[GrowingObject, ...]
    grows: bool
    reason: str

    @property
    def judged(self) -> bool:
        """Tell whether there are enough steps."""
        return len(self.steps) * (1 - MEMORY_WARM_UP) >= LEAST_MEMORY_SAMPLES


def find_growth(side: TrainingSide, batch: Batch, steps: int, tracer: MemoryTracer) -> Growth:
    """Take steps, and judge what grows from one to the next; raises UsageError for too few of them."""
    least = int(np.ceil(LEAST_MEMORY_SAMPLES / (1 - MEMORY_WARM_UP)))
    if steps < least:
        raise UsageError.of("memory_usage.few_steps", steps=steps, least=least)
    looks = _Looks(steps)
    tracemalloc.start(TRACED_FRAMES)
    try:
        trace = tracer.watch_memory(side.training, batch, steps, looks.look)
        objects = looks.grown_objects(trace)
    finally:
        tracemalloc.stop()
    return _judged(side.label, [*range(steps)], looks.values, objects)


class _Looks:
    """What is there after each step."""

    def __init__(self, steps: int) -> None:
        self.values: dict[GrowingMemory, list[float]] = {"tensors": [], "python": [], "host": []}
        self._first, self._steps = int(steps * MEMORY_WARM_UP), steps
        self._types: Counter[str] = Counter()
        self._lines: tracemalloc.Snapshot | None = None

    def look(self, step: int, tensors: int | None) -> None:
        """Look once."""
        if tensors is not None:
            self.values["tensors"].append(tensors)
        self.values["python"].append(tracemalloc.get_traced_memory()[0])
        self.values["host"].append(resident_bytes(os.getpid()))
        if step == self._first:
            gc.collect()
            self._types, self._lines = _types(), _lines()

    def grown_objects(self, trace: MemoryTrace | None) -> tuple[GrowingObject, ...]:
        """Kinds of objects of which more live since the first look that counts, those with most bytes first."""
        span = self._steps - 1 - self._first
        gc.collect()
        now = _types()
        types = [
            GrowingObject(name, "", count / span, 0.0)
            for name, count in (now - self._types).items()
            if count >= OBJECTS_A_STEP * span and not name.startswith(_OF_EVERYTHING)
        ]
        grown = [*_tensors(trace, self._first, span), *self._grown_lines(span)]
        grown.sort(key=lambda one: -one.bytes_per_step)
        grown = [one for one in grown if one.bytes_per_step >= SHARE_OF_LARGEST * grown[0].bytes_per_step]
        types.sort(key=lambda one: (-one.per_step, one.kind))
        return (*grown[:OBJECTS_NAMED], *types[:OBJECTS_NAMED])

    def _grown_lines(self, span: int) -> list[GrowingObject]:
        if self._lines is None:
            return []
        compared = _lines().compare_to(self._lines, "traceback")
        grown = [one for one in compared if one.count_diff >= OBJECTS_A_STEP * span]
        places: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for difference in grown:
            place = _line_of_user(difference.traceback)
            places[place] += difference.size_diff
            counts[place] += difference.count_diff
        return [GrowingObject("", place, counts[place] / span, size / span) for place, size in places.items()]


def _types() -> Counter[str]:
    classes = Counter(map(type, gc.get_objects()))
    return Counter({f"{kind.__module__}.{kind.__qualname__}": count for kind, count in classes.items()})


def _lines() -> tracemalloc.Snapshot:
    own = [tracemalloc.Filter(False, str(Path(__file__).parents[1] / "*"), all_frames=False)]
    return tracemalloc.take_snapshot().filter_traces([*own, tracemalloc.Filter(False, tracemalloc.__file__)])


def _line_of_user(frames: tracemalloc.Traceback) -> str:
    """The innermost line that is in no installed package and none of ours, else the innermost one."""
    apart = (str(Path(sys.prefix).resolve()), str(Path(os.__file__).parent), str(Path(__file__).parents[1]), "<")
    for frame in reversed(frames):
        if not frame.filename.startswith(apart):
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"


def _tensors(trace: MemoryTrace | None, first: int, span: int) -> list[GrowingObject]:
    """Tensors of steps that count, which live still: by what made them, and where."""
    counts: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for tensor in () if trace is None else trace.allocations:
        if tensor.end is None and first < tensor.step < first + span:  # those of the last step live anyway
            counts[tensor.made, tensor.layer] += 1
            sizes[tensor.made, tensor.layer] += tensor.nbytes
    return [
        GrowingObject(made, layer, count / (span - 1), sizes[made, layer] / (span - 1))
        for (made, layer), count in counts.items()
        if count >= OBJECTS_A_STEP * (span - 1)
    ]


def logged_growth(source: Path | str) -> Growth:
    """Judge the memory that a log, or a folder of `align.watch`, has of each step.

    Raises UsageError for a log without memory, and what the reading of either raises.
    """
    path = Path(source)
    if path.is_dir() and any(path.rglob("watch.json")):
        record = WatchedTraining(path, None)
        steps, values = record.steps, record.step_figures(("memory",))["memory"]
    else:
        steps, values = _of_log(path)
    known = np.isfinite(values)
    counted = [int(step) for step in steps[known]]
    return _judged(str(source), counted, {"logged": [float(value) for value in values[known]]}, ())


def _of_log(path: Path) -> tuple[Array, Array]:
    """Steps and bytes of the column of a log that is called after memory, in MB unless its name has another unit."""
    log = LogReading().read(path)
    name = next((one for one in log.table.metrics if _MEMORY.search(one) and not _SHARE.search(one)), "")
    if not name:
        raise UsageError.of("memory_usage.no_column", path=path, names=sorted(log.table.metrics))
    unit = next((size for word, size in _UNITS.items() if word in name.lower()), MEGABYTE)
    curve = place_on_axis(log, name, LogReading().hints)
    return curve.steps, curve.values * unit


def _judged(
    label: str,
    steps: Sequence[int],
    values: dict[GrowingMemory, list[float]],
    objects: tuple[GrowingObject, ...],
) -> Growth:
    series = tuple(_series(memory, steps, one) for memory, one in values.items() if one)
    grown = next((one for one in series if one.grows), None)
    if grown is None:
        largest = max((one.per_step for one in series), default=0.0) / MEGABYTE
        reason = sentence("growth_verdict.steady", steps=len(steps), growth=largest)
        return Growth(label, tuple(steps), series, (), grows=False, reason=reason)
    facts = {"growth": grown.per_step / MEGABYTE, "steps": len(steps)}
    reason = sentence(f"growth_verdict.{grown.memory}", label=label, **facts)
    return Growth(label, tuple(steps), series, objects, grows=True, reason=reason)


def _series(memory: GrowingMemory, steps: Sequence[int], values: Sequence[float]) -> GrowthSeries:
    trend = memory_trend(np.asarray(steps, float), np.asarray(values, float))
    if trend is None:
        return GrowthSeries(memory, tuple(values), 0.0, 0.0, 0.0, grows=False)
    growth, low, high = (figure / MINUTE for figure in (trend.growth, trend.low, trend.high))
    return GrowthSeries(memory, tuple(values), growth, low, high, grows=leaks(trend))
