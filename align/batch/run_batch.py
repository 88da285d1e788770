"""A job run from its first task to its result: what is kept is reused, the rest is run where the caller says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.batch.actions.run_task import FUNCTION
from align.batch.analysis.judge_batch import judge_batch
from align.batch.jobs.kept_outcomes import KeptOutcomes
from align.core.progress import Progress, silent
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from align.batch.batch_result import BatchResult
    from align.batch.job import Job
    from align.batch.open_workers import Workers
    from align.batch.task import Task, TaskOutcome


def run_batch(
    job: Job, workers: AbstractContextManager[Workers], *, run: Path | None = None, progress: Progress = silent
) -> BatchResult:
    """Run all tasks that `run` keeps no outcome of, and say what all of them came to.

    Each outcome is kept as soon as it is there, so that a run that ends early goes on where it was. The workers are
    opened only if there is something to run. Raises what the workers raise where none of them can run anything.
    """
    kept = KeptOutcomes(run)
    outcomes = {one.task.id: outcome for one in job.tasks if (outcome := kept.outcome(one.task)) is not None}
    reused = frozenset(outcomes)
    left = [one.task for one in job.tasks if one.task.id not in reused]
    if left:
        with workers as place:
            outcomes |= _run(left, place, kept, len(job.tasks), progress)
    return judge_batch(job, outcomes, reused)


def _run(
    tasks: list[Task], workers: Workers, kept: KeptOutcomes, total: int, progress: Progress
) -> dict[str, TaskOutcome]:
    by_id = {task.id: task for task in tasks}
    inputs: dict[str, str] = {}
    found: dict[str, TaskOutcome] = {}
    done, what = total - len(tasks), say("batch_task.running")
    progress(what, done, total)
    for outcome in workers.run(_looked_at(tasks, kept, inputs), FUNCTION):
        found[outcome.task] = outcome
        kept.keep(by_id[outcome.task], outcome, inputs[outcome.task])
        progress(what, done + len(found), total)
    return found


def _looked_at(tasks: list[Task], kept: KeptOutcomes, inputs: dict[str, str]) -> Iterator[Task]:
    """Hand out tasks; the state of what each reads is noted before it is run."""
    for task in tasks:
        inputs[task.id] = kept.fingerprint(task)
        yield task
