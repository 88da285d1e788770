"""A job run from its first task to its result: what is kept is reused, the rest is run where the caller says."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from align.batch.job import TaskOutcome
from align.batch.job_files import input_state, without_secrets
from align.batch.judge_batch import judge_batch
from align.batch.run_task import FUNCTION
from align.core.about import __version__
from align.core.atomic_files import write_text
from align.core.documents import COUNT, FIGURE, TEXT, Form, maybe, read_json, table
from align.core.progress import Progress, silent
from align.errors import AlignError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from align.batch.job import BatchResult, Job, Task
    from align.batch.open_workers import Workers


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


# What a run folder keeps of a job: one small file a task, `tasks/ID.json`, so that a later run does the rest.
#
# An outcome counts as long as its task, its inputs and mindalign are as they were: size and time of each file, or
# what object storage tells of an object. A failure is tried again. Nothing that is written holds a user, a password
# or a query of a URL; the fingerprint is a hash.

_FOLDER = "tasks"
_FORM = 1  # format: the version of these files
_WRITES = "convert"
_OUTCOME = table(
    {"task": TEXT, "state": {"enum": ["done", "failed"]}, "attempts": COUNT, "seconds": FIGURE}
    | {"peak_bytes": maybe(COUNT), "figures": {"type": "object"}, "error": TEXT, "hint": TEXT}
)
_KEPT = Form(table({"outcome": _OUTCOME, "inputs": {}, "outputs": {}}))


class KeptOutcomes:
    """The outcomes that a run folder keeps; without a folder nothing is kept."""

    def __init__(self, run: Path | None) -> None:
        self._folder = None if run is None else run / _FOLDER

    def outcome(self, task: Task) -> TaskOutcome | None:
        """What is kept of a task, None if it is to be run: never run, failed, damaged, or made from other inputs."""
        if self._folder is None:
            return None
        try:
            document = _KEPT.require(read_json(self._folder / f"{task.id}.json"))
            inputs = self.fingerprint(task)
            if not inputs or document["inputs"] != inputs or document["outputs"] != _outputs(task):
                return None
            outcome = TaskOutcome(**document["outcome"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return outcome if outcome.state == "done" else None

    def fingerprint(self, task: Task) -> str:
        """A hash of the task and the state of all that it reads; "" for what cannot be told, which never fits."""
        if self._folder is None:
            return ""
        of_task = [_FORM, __version__, task.action, dict(task.options)]
        digest = hashlib.sha256(json.dumps(of_task, sort_keys=True).encode())
        read = task.paths[:1] if task.action == _WRITES else task.paths
        try:
            for path in (*read, *([task.options["map"]] if "map" in task.options else [])):
                digest.update(
                    "\n".join((path, *input_state(path, self._folder.parent))).encode(errors="surrogateescape")
                )
        except AlignError:  # of the storage: what the task itself will meet and say
            return ""
        if task.action == _WRITES:
            digest.update(task.paths[1].encode(errors="surrogateescape"))
        return digest.hexdigest()

    def keep(self, task: Task, outcome: TaskOutcome, inputs: str) -> None:
        """Write an outcome whole or not at all; `inputs` is the fingerprint from before the task was run."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        document: dict[str, Any] = {
            "form": _FORM,
            "action": task.action,
            "paths": [without_secrets(path) for path in task.paths],
            "inputs": inputs,
            "outputs": _outputs(task),
            "outcome": asdict(outcome),
        }
        write_text(self._folder / f"{task.id}.json", json.dumps(document) + "\n")


def _outputs(task: Task) -> list[str]:
    """The state of what a task writes: one that is gone is written again."""
    if task.action != _WRITES:
        return []
    try:
        return [without_secrets(line) for line in input_state(task.paths[1], entry=False)]
    except AlignError:
        return []
