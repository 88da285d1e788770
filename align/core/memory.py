"""What a training step takes of memory: each allocation with its layer and its time, and who traces them."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from align.core.operating_system import machine_memory, memory_limits
from align.core.thresholds import LARGE_MODELS_BYTES, LONG_RUN_SECONDS
from align.core.training import Trainer
from align.errors import CannotRunError

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.protocols import Batch
    from align.core.training import Training

MemoryKind = Literal["weights", "gradients", "state", "activations", "temporaries", "inputs"]
MemoryPhase = Literal["forward", "backward", "optimizer"]
HowKnown = Literal["measured", "estimated"]
MEMORY_KINDS: tuple[MemoryKind, ...] = ("weights", "gradients", "state", "activations", "temporaries", "inputs")
MEMORY_PHASES: tuple[MemoryPhase, ...] = ("forward", "backward", "optimizer")


@dataclass(slots=True)
class Allocation:
    """Memory of one tensor, or what one operator takes while it runs.

    `layer` is the module that keeps it for the way back, else the one that made it. Times are numbers of operators:
    it is there from the operator `begin` on until before `end`, None if it outlives the trace. `made` says by which
    operator, and in which shape, "" for what was there before. `step` is that of the training.
    """

    nbytes: int
    kind: MemoryKind
    layer: str
    begin: int
    end: int | None = None
    made: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class ModuleSpan:
    """One call of a module on the way forward: from operator `begin` until before `end`.

    `returned` are places of the allocations that it returned.
    """

    path: str
    class_name: str
    begin: int
    end: int
    returned: frozenset[int]


@dataclass(frozen=True, slots=True)
class MemoryTrace:
    """All allocations of one step, or of several; `layers` and `phases` are those of the operators.

    `how` it is known; `workspaces` tells whether what kernels take while they run is among the temporaries. `counted`
    is the peak by the counter of a device's allocator, `reserved` what it took from the device; None without one.
    """

    device: str
    how: HowKnown
    workspaces: bool
    allocations: tuple[Allocation, ...]
    layers: tuple[str, ...]
    phases: tuple[MemoryPhase, ...]
    spans: tuple[ModuleSpan, ...]
    counted: int | None = None
    reserved: int | None = None


@runtime_checkable
class MemoryTracer(Trainer, Protocol):
    """Traces what training steps take of memory."""

    def trace_memory(self, training: Training, batch: Batch) -> MemoryTrace:
        """Trace the second step on a batch, in which the optimizer's state is there from the beginning.

        Layers that are checkpointed are computed again, as without a watcher. All is left as it was. Raises what
        `take_steps` raises.
        """

    def watch_memory(
        self, training: Training, batch: Batch, steps: int, ended: Callable[[int, int | None], None]
    ) -> MemoryTrace | None:
        """Take steps, and tell after each its number and the bytes of all tensors that live on the device.

        None for bytes that the framework does not tell, and for no trace of what lives. As `trace_memory` else.
        """


# What a long run is expected to take, told before it begins, and what memory there is for it.


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
    limits = [machine_memory()]
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
    for name, limit in memory_limits():
        with suppress(OSError):
            size = re.search(rf"^{name}:\s+(\d+) kB", _text("/proc/self/status"), re.MULTILINE)
            limits += [max(0, limit - int(size[1]) * 1024)] if size else []
    return min(limits)


def _text(path: str) -> str:
    return Path(path).read_text(encoding="ascii", errors="replace")
