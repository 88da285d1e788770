"""Whether memory grows from step to step, which memory, and what kind of object; in steps, logs and records.

Three series are judged in steps: tensors on the device, Python's own memory with NumPy's, and that of the process. The
first that grows is told: the others follow from it. The test is that of `align doctor --follow`.
"""

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

from align.curves.compare_losses import LogReading
from align.curves.place_on_axis import place_on_axis
from align.errors import UsageError
from align.lint.examine_environment import LEAST_MEMORY_SAMPLES, MEMORY_WARM_UP, leaks, memory_trend, resident_bytes
from align.loops.watched_folder import WatchedTraining
from align.memory.thresholds import OBJECTS_A_STEP, OBJECTS_NAMED, SHARE_OF_LARGEST, TRACED_FRAMES
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.memory import MemoryTrace, MemoryTracer
    from align.core.parameters import Array
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide

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
