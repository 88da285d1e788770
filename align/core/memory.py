"""What a training step takes of memory: each allocation with its layer and its time, and who traces them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from align.core.training import Trainer

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
