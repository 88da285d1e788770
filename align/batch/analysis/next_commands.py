"""What to type next: the command that shows alone the task that departs first, and the first that failed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from align.batch.jobs.remote_listing import without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.batch.batch_result import FirstDeparture, TaskResult
    from align.batch.job import Job
    from align.batch.task import Task


def next_commands(job: Job, tasks: Sequence[TaskResult], first: FirstDeparture | None) -> tuple[str, ...]:
    """The commands, each as it can be pasted; a check is looked into by `align inspect`."""
    failed = next((one.id for one in tasks if one.state in ("failed", "could not compare")), "")
    wanted = ["" if first is None else first.task, failed]
    by_id = {one.task.id: one.task for one in job.tasks}
    return tuple(dict.fromkeys(_command(by_id[name]) for name in wanted if name in by_id))


def _command(task: Task) -> str:
    verb = "inspect" if task.action == "check" else task.action
    paths = [without_secrets(path) for path in task.paths]
    return shlex.join(
        ["align", verb, *paths, *(word for name in task.options for word in _option(name, task.options[name]))]
    )


def _option(name: str, value: Any) -> Iterator[str]:
    """An option of a job file as its command spells it."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        if name == "verify":
            yield from [] if value else ["--no-verify"]
        elif value:
            yield flag
        return
    for one in value if isinstance(value, list | tuple) else [value]:
        yield from (flag, without_secrets(str(one)))
