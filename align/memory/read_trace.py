"""What a trace of memory says: the peak of each phase and what it is made of, layers, and what would lower the peak."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from align.core.memory import MEMORY_KINDS, MEMORY_PHASES
from align.memory.thresholds import CHECKPOINTINGS_SHOWN, WORTH_CHECKPOINTING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.memory import Allocation, HowKnown, MemoryKind, MemoryPhase, MemoryTrace, ModuleSpan
    from align.core.parameters import Array

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_OF_LAYERS: tuple[MemoryKind, ...] = ("weights", "gradients", "state", "activations", "temporaries")


@dataclass(frozen=True, slots=True)
class PhaseMemory:
    """The most that a phase takes at once, in bytes, and what it is made of then."""

    phase: MemoryPhase
    peak: int
    weights: int
    gradients: int
    state: int
    activations: int
    temporaries: int
    inputs: int


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """Bytes of one module without those inside, "" for code outside of modules: of each kind the most at once.

    `activations` are those that it keeps for the way back before any other module does.
    """

    path: str
    class_name: str
    weights: int
    gradients: int
    state: int
    activations: int
    temporaries: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.gradients + self.state + self.activations + self.temporaries


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """What activation checkpointing of modules would bring: `path` with # for the numbers of such as are alike.

    `freed` are the bytes that they would not keep, `peak` that of the step then.
    """

    path: str
    class_name: str
    count: int
    freed: int
    peak: int
    how: HowKnown = "estimated"


def phase_peaks(trace: MemoryTrace) -> tuple[PhaseMemory, ...]:
    """The peak of each phase that there is."""
    curves = _curves(trace)
    total = np.sum([*curves.values()], axis=0)
    places = {phase: [at for at, one in enumerate(trace.phases) if one == phase] for phase in MEMORY_PHASES}
    peaks = {phase: at[int(total[at].argmax())] for phase, at in places.items() if at}
    return tuple(
        PhaseMemory(phase, int(total[at]), **{kind: int(curves[kind][at]) for kind in MEMORY_KINDS})
        for phase, at in peaks.items()
    )


def peak_of(trace: MemoryTrace) -> int:
    """The most that the step takes at once."""
    return max((one.peak for one in phase_peaks(trace)), default=0)


def _curves(trace: MemoryTrace) -> dict[MemoryKind, Array]:
    """Bytes in use at each operator by kind."""
    return {kind: _curve((one for one in trace.allocations if one.kind == kind), trace) for kind in MEMORY_KINDS}


def _curve(allocations: Iterable[Allocation], trace: MemoryTrace) -> Array:
    changes = np.zeros(len(trace.phases) + 1, np.int64)
    for one in allocations:
        changes[min(one.begin, len(trace.phases))] += one.nbytes
        if one.end is not None:
            changes[min(one.end, len(trace.phases))] -= one.nbytes
    curve: Array = np.cumsum(changes)[:-1]
    return curve


def layer_rows(trace: MemoryTrace, classes: Mapping[str, str]) -> tuple[LayerMemory, ...]:
    """One row a layer that takes anything, in the order of the way forward."""
    parts: dict[tuple[str, MemoryKind], list[Allocation]] = defaultdict(list)
    for one in trace.allocations:
        if one.kind != "inputs":
            parts[one.layer, one.kind].append(one)
    known = [*classes, *dict.fromkeys(trace.layers)]
    order = {path: place for place, path in enumerate(dict.fromkeys(known))}
    paths = sorted({path for path, _ in parts}, key=lambda path: order.get(path, len(order)))
    rows = (
        LayerMemory(path, classes.get(path, ""), *(_most(parts.get((path, kind), ())) for kind in _OF_LAYERS))
        for path in paths
    )
    return tuple(row for row in rows if row.total)


def _most(allocations: Sequence[Allocation]) -> int:
    """The most that some allocations take at once."""
    changes: dict[float, int] = defaultdict(int)
    for one in allocations:
        changes[one.begin] += one.nbytes
        changes[float("inf") if one.end is None else one.end] -= one.nbytes
    most = now = 0
    for time in sorted(changes):
        now += changes[time]
        most = max(most, now)
    return most


# Activation checkpointing, replayed: what a module keeps is freed when it returns, and there again on its way back.


def checkpointings(trace: MemoryTrace) -> tuple[Checkpointing, ...]:
    """The ways to checkpoint that lower the peak most: modules that are alike together."""
    peak = peak_of(trace)
    groups: dict[str, list[ModuleSpan]] = defaultdict(list)
    for span in trace.spans:
        if span.path:
            groups[_NUMBER.sub("#", span.path)].append(span)
    found = [_checkpointed(trace, path, spans) for path, spans in groups.items()]
    found = [one for one in found if one.peak <= peak * (1 - WORTH_CHECKPOINTING)]
    found.sort(key=lambda one: (one.peak, one.path.count("."), one.path))
    return tuple(found[:CHECKPOINTINGS_SHOWN])


def checkpointed_trace(trace: MemoryTrace, path: str) -> MemoryTrace:
    """The trace with the modules of this path checkpointed."""
    spans = [span for span in trace.spans if _NUMBER.sub("#", span.path) == path]
    return _without_kept(trace, spans)[0]


def _checkpointed(trace: MemoryTrace, path: str, spans: Sequence[ModuleSpan]) -> Checkpointing:
    changed, freed = _without_kept(trace, spans)
    return Checkpointing(path, spans[0].class_name, len({span.path for span in spans}), freed, peak_of(changed))


def _without_kept(trace: MemoryTrace, spans: Sequence[ModuleSpan]) -> tuple[MemoryTrace, int]:
    """The trace without what calls of modules keep from their return until their way back, and its bytes."""
    freed, left = 0, []
    windows = [(span, _way_back(trace, span)) for span in spans]
    for place, allocation in enumerate(trace.allocations):
        span, back = next(((span, back) for span, back in windows if _inside(allocation, place, span)), (None, 0))
        ends = len(trace.phases) if allocation.end is None else allocation.end
        if span is None or allocation.kind != "activations" or ends <= span.end or not back:
            left.append(allocation)
            continue
        freed += allocation.nbytes
        left.append(replace(allocation, end=span.end))
        if ends > back:
            left.append(replace(allocation, begin=back))
    return replace(trace, allocations=tuple(left)), freed


def _inside(one: Allocation, place: int, span: ModuleSpan) -> bool:
    return span.begin <= one.begin < span.end and place not in span.returned


def _way_back(trace: MemoryTrace, span: ModuleSpan) -> int:
    """The operator with which the way back of a module begins; 0 if there is none."""
    inside = f"{span.path}."
    for number in range(span.end, len(trace.phases)):
        if trace.phases[number] == "backward" and (
            trace.layers[number] == span.path or trace.layers[number].startswith(inside)
        ):
            return number
    return 0


# Batches of other sizes: what is in use at each operator is taken to be a fixed part and one for each sample.


@dataclass(frozen=True, slots=True)
class BatchMemory:
    """The peaks of two sizes of the batch, and what a large one takes: bytes each sample, and those without any."""

    size: int
    peak: int
    other_size: int
    other_peak: int
    per_sample: float
    fixed: float
    how: HowKnown


@dataclass(frozen=True, slots=True)
class LargestBatch:
    """The largest batch of which the step fits into `limit` bytes; with the modules at `path` checkpointed too."""

    limit: int
    size: int
    path: str
    checkpointed_size: int | None
    how: HowKnown = "estimated"


def batch_memory(sizes: tuple[int, int], traces: tuple[MemoryTrace, MemoryTrace]) -> BatchMemory:
    """What two sizes tell of others: of a large batch that operator decides at which each sample takes most."""
    slopes, fixed = _lines(sizes, traces)
    at = int(slopes.argmax())
    peaks = peak_of(traces[0]), peak_of(traces[1])
    return BatchMemory(sizes[0], peaks[0], sizes[1], peaks[1], float(slopes[at]), float(fixed[at]), traces[0].how)


def largest_size(sizes: tuple[int, int], traces: tuple[MemoryTrace, MemoryTrace], limit: int) -> int:
    """The largest batch of which no operator takes more than the limit, 0 for none."""
    slopes, fixed = _lines(sizes, traces)
    if (fixed > limit).any():
        return 0
    growing = slopes > 0
    return int(((limit - fixed[growing]) // slopes[growing]).min()) if growing.any() else max(sizes)


def _lines(sizes: tuple[int, int], traces: tuple[MemoryTrace, MemoryTrace]) -> tuple[Array, Array]:
    """Bytes in use as lines over the size of the batch, one an operator, or where these differ one a phase.

    Their slopes, in bytes a sample, and what they have without any sample.
    """
    in_use = [np.sum([*_curves(trace).values()], axis=0) for trace in traces]
    if traces[0].phases != traces[1].phases:
        peaks = [{one.phase: one.peak for one in phase_peaks(trace)} for trace in traces]
        in_use = [np.array([at.get(phase, 0) for phase in peaks[0]]) for at in peaks]
    slopes = np.maximum((in_use[0] - in_use[1]) / (sizes[0] - sizes[1]), 0.0)
    return slopes, in_use[0] - slopes * sizes[0]


def cut_batch(batch: Mapping[str, object], twice: bool) -> tuple[dict[str, object], int, int] | None:
    """The batch with half of its samples, or `twice` as many, its size and that of the batch; None for no such axis.

    The samples stand along the first axis: that of the most arrays.
    """
    lengths = [value.shape[0] for value in _arrays(batch)]
    if not lengths:
        return None
    size = max(lengths, key=lambda length: (lengths.count(length), -lengths.index(length)))
    other = 2 * size if twice else size // 2
    if not other:
        return None

    def cut(value: object) -> object:
        if isinstance(value, np.ndarray):
            fits = value.ndim and value.shape[0] == size
            return (np.concatenate([value, value]) if twice else value[:other]) if fits else value
        if isinstance(value, dict):
            return {key: cut(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(cut(item) for item in value)
        return value

    return {name: cut(value) for name, value in batch.items()}, other, size


def _arrays(value: object) -> Iterator[Array]:
    if isinstance(value, np.ndarray):
        if value.ndim:
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _arrays(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _arrays(item)
