"""What a long run is expected to take, told before it begins, and what memory there is for it."""

from __future__ import annotations

import os
import re
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from align.core.thresholds import LARGE_MODELS_BYTES, LONG_RUN_SECONDS
from align.errors import CannotRunError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Needs:
    """What a run is expected to take, within a factor of two: bytes of the process at the most, and seconds in all."""

    memory: int
    seconds: float


def unannounced(needs: Needs) -> None:
    """The Announce of who wants to hear nothing."""


class Forecast:
    """Measures the first steps of a run, of which the whole takes so many `times` their time; `more` is in bytes.

    What takes no long time and little memory is not told.
    """

    def __init__(self, more: int, times: float, announce: Callable[[Needs], None]) -> None:
        self._more, self._times, self._announce = more, times, announce
        self._started = monotonic()

    def begin(self) -> None:
        """The first steps begin."""
        self._started = monotonic()

    def tell(self) -> None:
        """They ended: say what all is expected to take."""
        needs = Needs(own_bytes() + self._more, self._times * (monotonic() - self._started))
        if needs.seconds >= LONG_RUN_SECONDS or self._more >= LARGE_MODELS_BYTES:  # whatever the process held before
            self._announce(needs)


def refuse_beyond(more: int, models: int) -> None:
    """Raise CannotRunError where a run takes `more` bytes than there are; only for large `models`, of so many bytes."""
    if models >= LARGE_MODELS_BYTES and (left := available_bytes()) < more:
        raise CannotRunError.of("memory_error.too_little", more=in_gigabytes(more), left=in_gigabytes(left))


def in_gigabytes(size: float) -> str:
    """A size as people read it."""
    return f"{size / 1e9:.1f} GB"


def own_bytes() -> int:
    """What this process holds of its own, without pages of files; 0 where the system does not say."""
    with suppress(OSError):
        held = re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", _text("/proc/self/status"), re.MULTILINE)
        return 1024 * sum(map(int, held))
    return 0


def available_bytes() -> int:
    """Memory that can still be taken: the machine's, or less where a limit holds this process or its control group."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with suppress(OSError, ValueError):
        memory = re.search(r"MemAvailable:\s+(\d+) kB", _text("/proc/meminfo"))
        limits += [int(memory[1]) * 1024] if memory else []
    for folder, most, used in (
        ("/sys/fs/cgroup", "max", "current"),
        ("/sys/fs/cgroup/memory", "limit_in_bytes", "usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):  # no such group, or no limit ("max")
            limit, taken = (int(_text(f"{folder}/memory.{name}")) for name in (most, used))
            limits.append(max(0, limit - taken))
    for kind, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        limit = resource.getrlimit(kind)[0]
        with suppress(OSError):
            size = re.search(rf"^{name}:\s+(\d+) kB", _text("/proc/self/status"), re.MULTILINE)
            limits += [max(0, limit - int(size[1]) * 1024)] if size and limit != resource.RLIM_INFINITY else []
    return min(limits)


def _text(path: str) -> str:
    return Path(path).read_text(encoding="ascii", errors="replace")
