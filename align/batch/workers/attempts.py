"""How often each task was tried, and what is still to be tried: the same for a pool and a cluster."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from align.batch.task import TaskOutcome
from align.batch.thresholds import MOST_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.batch.task import Task


class Attempts:
    """Tasks in the order given, then those that failed once: what hangs or is out of reach holds up the rest least.

    The iterable is read as they are asked for.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._fresh = iter(tasks)
        self._again: deque[Task] = deque()
        self._failures: dict[str, int] = {}  # of tasks that failed once and are not done

    def next_task(self) -> Task | None:
        """The next task to try, None if there is none now: a failure may bring one back."""
        if (fresh := next(self._fresh, None)) is not None:
            return fresh
        return self._again.popleft() if self._again else None

    def end(self, task: Task, found: dict[str, Any], made: int = 1) -> TaskOutcome | None:
        """The outcome that `made` attempts decide; None if the task is to be tried once more."""
        attempts = self._failures.pop(task.id, 0) + made
        if found["error"] and attempts < MOST_ATTEMPTS:
            self._failures[task.id] = attempts
            self._again.append(task)
            return None
        return TaskOutcome(task=task.id, state="failed" if found["error"] else "done", attempts=attempts, **found)
