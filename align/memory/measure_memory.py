"""What training steps of a side, or of both, take of memory: by phase and layer, with what would lower the peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.memory import MemoryTracer
from align.core.protocols import silent
from align.core.verdicts import Coverage, Finding, Outcome, ShownResult, Verdict
from align.errors import AlignError, CannotRunError, UsageError
from align.memory.find_growth import MEGABYTE, Growth, find_growth, logged_growth
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
from align.memory.thresholds import LEAST_TOLD_SHARE, MORE_THAN_REFERENCE
from align.traces.pair_traces import choose_map
from align.training.open_training import batch_findings, open_training, open_trainings, read_training_batch
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from align.core.memory import HowKnown, MemoryTrace
    from align.core.name_map import NameMap
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
