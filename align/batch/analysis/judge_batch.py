"""The result of a job out of the outcomes of its tasks: what departs first, and the verdict over all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.batch.analysis.compare_ranks import group_ranks
from align.batch.analysis.layers_over_ranks import layers_over_ranks
from align.batch.analysis.next_commands import next_commands
from align.batch.analysis.renumbered_ranks import renumbered_ranks
from align.batch.analysis.unequal_tensors import find_unequal, unused_globs
from align.batch.batch_result import BatchResult, FirstDeparture, TaskResult
from align.batch.job import place_order
from align.batch.jobs.remote_listing import without_secrets
from align.core.verdicts import Coverage, Outcome, Verdict
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from align.batch.batch_result import RankGroup, TaskState, UnequalTensor
    from align.batch.job import Job, MissingSide, PlacedTask
    from align.batch.task import TaskOutcome

DEPARTS = "not aligned"
UNDONE = ("failed", "missing", "could not compare")


def judge_batch(job: Job, outcomes: Mapping[str, TaskOutcome], reused: Collection[str] = ()) -> BatchResult:
    """Say what the outcomes of all tasks of a job come to."""
    tasks = [_task_result(one, outcomes[one.task.id], one.task.id in reused) for one in job.tasks]
    figures = {one.task.id: dict(outcomes[one.task.id].figures) for one in job.tasks}
    first = _first_departure(tasks, figures)
    groups, unequal = group_ranks(tasks), find_unequal(job, figures)
    renumbered = renumbered_ranks(job, figures, first)
    unused = unused_globs(job, figures) if all(figures.values()) else ()  # a task that failed may hold the tensor
    more = {"unused": [*unused], "renumbered": [f"{rank} is {was}" for rank, was in renumbered if rank != was]}
    tasks += [_missing(one) for one in job.missing]
    tasks.sort(key=lambda one: place_order(one.step, one.rank))
    ranks = sorted({one.rank for one in tasks if one.rank is not None})
    return BatchResult(
        job=job.label,
        tasks=tuple(tasks),
        ranks=tuple(ranks),
        steps=tuple(sorted({one.step for one in tasks if one.step is not None})),
        first=first,
        groups=groups,
        unequal=unequal,
        unused=unused,
        renumbered=renumbered,
        layers=layers_over_ranks(tasks, figures, ranks, "" if first is None else first.action),
        next_commands=next_commands(job, tasks, first),
        verdict=_verdict(tasks, _departures(tasks, first, groups, unequal) | more),
    )


def _task_result(placed: PlacedTask, outcome: TaskOutcome, reused: bool) -> TaskResult:
    figures = outcome.figures
    rows = figures.get("rows", [])
    departing = [row for row in rows if row[1] == DEPARTS]
    state: TaskState = "failed" if outcome.state == "failed" else figures["outcome"]
    return TaskResult(
        id=placed.task.id,
        action=placed.task.action,
        rank=placed.rank,
        step=placed.step,
        paths=tuple(without_secrets(path) for path in placed.task.paths),
        state=state,
        reason=str(figures.get("reason", "")),
        layer=departing[0][0] if departing else None,
        value=departing[0][2] if departing else None,
        departing=len(departing),
        compared=int(figures.get("compared", 0)),
        not_comparable=sum(row[1] == "not comparable" for row in rows),
        attempts=outcome.attempts,
        seconds=outcome.seconds,
        peak_bytes=outcome.peak_bytes,
        reused=reused,
        error=outcome.error,
        hint=outcome.hint,
    )


def _missing(one: MissingSide) -> TaskResult:
    path = without_secrets(one.expected)
    error = say("batch_task.missing", side=one.side, path=path)
    return TaskResult(
        one.id, one.action, one.rank, one.step, (path,), "missing", "",
        error=error, hint=say("batch_task.missing_hint"),
    )  # fmt: skip


def _first_departure(tasks: Sequence[TaskResult], figures: Mapping[str, dict[str, Any]]) -> FirstDeparture | None:
    """The earliest step, in it the layer that comes first in the run of any rank, and the ranks on which it departs."""
    departing = [one for one in tasks if one.state == DEPARTS]
    if not departing:
        return None
    step = min(place_order(one.step, None) for one in departing)
    there = [one for one in departing if place_order(one.step, None) == step]
    earliest = min(there, key=lambda one: _order(figures[one.id]))
    alike = [one for one in there if one.action == earliest.action and _departs_in(figures[one.id], earliest.layer)]
    ranks = sorted({one.rank for one in alike if one.rank is not None})
    return FirstDeparture(earliest.action, earliest.step, tuple(ranks), earliest.layer, earliest.value, earliest.id)


def _departs_in(figures: Mapping[str, Any], layer: str | None) -> bool:
    return layer is None or any(row[:2] == [layer, DEPARTS] for row in figures.get("rows", ()))


def _order(figures: Mapping[str, Any]) -> int:
    """The place in execution order of the first row that departs; behind all where none does."""
    rows = figures.get("rows", [])
    return next((place for place, row in enumerate(rows) if row[1] == DEPARTS), len(rows))


def _verdict(tasks: Sequence[TaskResult], said: Mapping[str, Any]) -> Verdict:
    undone = [one for one in tasks if one.state in UNDONE]
    coverage = Coverage("tasks", len(tasks) - len(undone), unmatched_reference=0, excluded=0)
    outcome, key = Outcome.ALIGNED, "aligned"
    if undone or said["unused"]:
        outcome, key = Outcome.NOT_COMPARED, "undone" if undone else "unused"
    elif said["departing"] or said["unequal"]:
        outcome, key = Outcome.NOT_ALIGNED, "departs" if said["departing"] else "unequal"
    facts = {"total": len(tasks), "undone": len(undone), "first": undone[0].id if undone else ""}
    facts["unlike"] = next((one.id for one in tasks if one.not_comparable), "")
    facts["layers"] = sum(one.not_comparable for one in tasks)
    return Verdict(outcome, sentence(f"batch_verdict.{key}", **facts, **said), coverage)


def _departures(
    tasks: Sequence[TaskResult],
    first: FirstDeparture | None,
    groups: Sequence[RankGroup],
    unequal: Sequence[UnequalTensor],
) -> dict[str, Any]:
    odd = [rank for group in groups if group.kind == "odd" for rank in group.ranks]
    return {
        "departing": sum(one.state == DEPARTS for one in tasks),
        "place": "" if first is None else _words(first),
        "odd": [f"rank {rank}" for rank in odd],
        "tensors": [one.name for one in unequal],
        "unequal": len(unequal),
    }


def _words(first: FirstDeparture) -> str:
    return say(
        "batch_verdict.place",
        step="" if first.step is None else str(first.step),
        ranks=[*map(str, first.ranks)],
        count=len(first.ranks),
        layer=first.layer or first.task,
    )
