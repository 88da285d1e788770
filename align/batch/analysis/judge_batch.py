"""The result of a job out of the outcomes of its tasks: what departs first, and the verdict over all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.batch.analysis.compare_ranks import group_ranks
from align.batch.analysis.layers_over_ranks import layers_over_ranks
from align.batch.analysis.unequal_tensors import find_unequal
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


def judge_batch(job: Job, outcomes: Mapping[str, TaskOutcome], reused: Collection[str] = ()) -> BatchResult:
    """Say what the outcomes of a job's tasks come to; a task without one has failed."""
    tasks = [_task_result(one, outcomes[one.task.id], one.task.id in reused) for one in job.tasks]
    figures = {one.task.id: outcomes[one.task.id].figures for one in job.tasks}
    groups = group_ranks(tasks)
    first = _first_departure(tasks, figures)
    unequal = find_unequal(job, tasks, figures)
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
        layers=layers_over_ranks(tasks, figures, ranks),
        verdict=_verdict(tasks, first, groups, unequal),
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


def _first_departure(tasks: Sequence[TaskResult], figures: Mapping[str, Mapping[str, Any]]) -> FirstDeparture | None:
    """The earliest step, and in it the layer that comes first in the run of any rank that departs."""
    departing = [one for one in tasks if one.state == DEPARTS]
    if not departing:
        return None
    step = min((-1 if one.step is None else one.step) for one in departing)
    there = [one for one in departing if (-1 if one.step is None else one.step) == step]
    earliest = min(there, key=lambda one: _order(figures[one.id]))
    ranks = tuple(sorted({one.rank for one in there if one.rank is not None}))
    return FirstDeparture(earliest.action, earliest.step, ranks, earliest.layer, earliest.value, earliest.id)


def _order(figures: Mapping[str, Any]) -> int:
    """The place in execution order of the first row that departs; behind all where none does."""
    rows = figures.get("rows", [])
    return next((place for place, row in enumerate(rows) if row[1] == DEPARTS), len(rows))


def _verdict(
    tasks: Sequence[TaskResult],
    first: FirstDeparture | None,
    groups: Sequence[RankGroup],
    unequal: Sequence[UnequalTensor],
) -> Verdict:
    undone = [one for one in tasks if one.state in ("failed", "missing", "could not compare")]
    done = len(tasks) - len(undone)
    coverage = Coverage("tasks", done, unmatched_reference=0, excluded=0)
    said = _departures(tasks, first, groups, unequal)
    if undone:
        reason = sentence("batch_verdict.undone", undone=len(undone), total=len(tasks), first=undone[0].id, **said)
        return Verdict(Outcome.NOT_COMPARED, reason, coverage)
    if said["departing"] or unequal:
        key = "batch_verdict.departs" if said["departing"] else "batch_verdict.unequal"
        return Verdict(Outcome.NOT_ALIGNED, sentence(key, total=len(tasks), **said), coverage)
    return Verdict(Outcome.ALIGNED, sentence("batch_verdict.aligned", total=len(tasks)), coverage)


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
        layer=first.layer or first.task,
    )
