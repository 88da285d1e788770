"""Host memory of a running process over time: its growth, and whether that is more than noise.

Read from /proc, of the process and of those that it started (workers that load data). The growth is Theil and Sen's
slope, which single steps of an allocator do not move; the beginning, in which every training fills its memory, is left
out. Memory that grew once and stands is no leak: both halves of what is judged have to grow.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.errors import UsageError
from align.lint.thresholds import (
    LEAK_HALVES,
    LEAK_NOISES,
    LEAK_SHARE,
    LEAST_LEAK_BYTES,
    LEAST_MEMORY_SAMPLES,
    LONGEST_WAIT,
    MEMORY_WARM_UP,
    MOST_MEMORY_SAMPLES,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.dtypes import Array

Ended = Literal["process ended", "stopped", "time over"]
PROC = Path("/proc")
MEGABYTE, MINUTE = 1e6, 60  # format: units of what is shown


@dataclass(frozen=True, slots=True)
class MemoryTrend:
    """Bytes a minute: the slope with its interval (95 %), how far samples scatter around it, and what is judged."""

    growth: float
    low: float
    high: float
    noise: float
    first: float
    last: float
    seconds: float


@dataclass(frozen=True, slots=True)
class MemoryFollowed(ShownResult):
    """Memory of a process over time: `seconds` since the start and `resident` bytes of it and of its descendants."""

    result_kind = "memory"
    pid: int
    command: str
    processes: int
    ended: Ended
    seconds: tuple[float, ...]
    resident: tuple[int, ...]
    trend: MemoryTrend | None
    verdict: Verdict


def follow_memory(
    pid: int,
    every: float = 1.0,
    longest: float | None = None,
    seen: Callable[[float, int], None] = lambda _seconds, _resident: None,
) -> MemoryFollowed:
    """Sample a process until it ends, `longest` seconds are over, or the user interrupts; then judge the growth.

    `every` is the distance of samples in seconds; `seen` hears each. Raises UsageError for a process that is not there,
    and for times that are none.
    """
    _check_times(every, longest)
    born = _born(pid)
    if born is None:
        raise UsageError.of("doctor_usage.process", pid=pid)
    command = _command(pid)
    seconds, resident, processes, ended = _samples(pid, born, every, longest, seen)
    trend = memory_trend(np.asarray(seconds), np.asarray(resident, float))
    verdict = _memory_verdict(trend, len(seconds))
    return MemoryFollowed(pid, command, processes, ended, tuple(seconds), tuple(resident), trend, verdict)


def _check_times(every: float, longest: float | None) -> None:
    if not 0 < every <= LONGEST_WAIT:
        raise UsageError.of("doctor_usage.every", every=every, most=LONGEST_WAIT)
    if longest is not None and not (longest > 0 and isfinite(longest)):
        raise UsageError.of("doctor_usage.longest", longest=longest)


def memory_trend(seconds: Array, resident: Array) -> MemoryTrend | None:
    """The growth of what is judged, without the beginning; None of too few samples.

    >>> time = np.arange(100.0)
    >>> found = memory_trend(time, 1e9 + 1e6 * time)
    >>> round(found.growth / 1e6), leaks(found)
    (60, True)
    """
    from scipy.stats import theilslopes

    begin = int(len(seconds) * MEMORY_WARM_UP)
    times, sizes = seconds[begin:], resident[begin:]
    if len(times) < LEAST_MEMORY_SAMPLES:
        return None
    thin = slice(None, None, max(1, len(times) // MOST_MEMORY_SAMPLES))
    slope, intercept, low, high = theilslopes(sizes[thin], times[thin])
    noise = float(np.median(np.abs(sizes - intercept - slope * times)))
    ends = (float(np.median(part)) for part in (sizes[: len(sizes) // 8 + 1], sizes[-(len(sizes) // 8 + 1) :]))
    halves = [_slope(times[part], sizes[part]) for part in (slice(len(times) // 2), slice(len(times) // 2, None))]
    steady = slope > 0 and min(halves) < LEAK_HALVES * slope
    lowest = 0.0 if steady else float(low)
    first, last = ends
    span = float(times[-1] - times[0])
    return MemoryTrend(slope * MINUTE, lowest * MINUTE, float(high) * MINUTE, noise, first, last, span)


def leaks(trend: MemoryTrend) -> bool:
    """Tell whether memory grew, all the time, by more than noise and than a share of itself."""
    grown = trend.growth / MINUTE * trend.seconds
    least = max(LEAK_NOISES * trend.noise, LEAK_SHARE * trend.first, LEAST_LEAK_BYTES)
    return trend.low > 0 and grown > least


def _slope(times: Array, sizes: Array) -> float:
    from scipy.stats import theilslopes

    thin = slice(None, None, max(1, len(times) // MOST_MEMORY_SAMPLES))
    return float(theilslopes(sizes[thin], times[thin])[0])


def _samples(
    pid: int, born: str, every: float, longest: float | None, seen: Callable[[float, int], None]
) -> tuple[list[float], list[int], int, Ended]:
    seconds: list[float] = []
    resident: list[int] = []
    start, processes = time.monotonic(), 1
    ended: Ended = "process ended"
    try:
        while _born(pid) == born:
            family = [pid, *_descendants(pid)]
            now = time.monotonic() - start
            size = sum(map(_resident, family))
            if not size:  # it ended between two looks
                break
            seconds.append(now)
            resident.append(size)
            processes = max(processes, len(family))
            seen(now, size)
            if longest is not None and now + every > longest:
                ended = "time over"
                break
            time.sleep(every)
    except KeyboardInterrupt as interrupt:
        if type(interrupt) is not KeyboardInterrupt:  # a signal to end align itself
            raise
        ended = "stopped"
    return seconds, resident, processes, ended


def _born(pid: int) -> str | None:
    """When a process was started, which tells it from a later one of its number; None if it has ended."""
    try:
        fields = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def _resident(pid: int) -> int:
    try:
        pages = (PROC / str(pid) / "statm").read_text(encoding="utf-8").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _descendants(pid: int) -> Iterator[int]:
    """The processes that a process has started, and those of them in turn."""
    with contextlib.suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            for child in (task / "children").read_text(encoding="utf-8").split():
                yield int(child)
                yield from _descendants(int(child))


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_text(encoding="utf-8", errors="replace").replace("\0", " ").strip()
    return ""


def _memory_verdict(trend: MemoryTrend | None, samples: int) -> Verdict:
    coverage = Coverage("samples", samples)
    if trend is None:
        reason = sentence("memory_verdict.too_few", count=samples, least=LEAST_MEMORY_SAMPLES)
        return Verdict(Outcome.NOT_COMPARED, reason, coverage)
    facts = {"growth": trend.growth / MEGABYTE, "noise": trend.noise / MEGABYTE, "seconds": trend.seconds}
    if leaks(trend):
        return Verdict(Outcome.NOT_ALIGNED, sentence("memory_verdict.leaks", **facts), coverage)
    return Verdict(Outcome.ALIGNED, sentence("memory_verdict.steady", **facts), coverage)
