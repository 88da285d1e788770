"""What a worker of a Dask cluster does with a task, and which versions make it another worker than this process."""

from __future__ import annotations

import platform
import queue
import threading
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from align.batch.workers.run_task import attempt_task, imported_function
from align.errors import AlignError
from align.words.catalogue import texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.batch.task import Task

PACKAGES = ("mindalign", "numpy")


def run_on_worker(task: Task, function: str, expected: dict[str, str]) -> dict[str, Any]:
    """One attempt; `unlike` holds the versions of a worker that joined with others, `unusable` why nothing can run."""
    if (own := own_versions()) != expected:
        return {"unlike": own}
    try:
        found = imported_function(function)
    except AlignError as error:
        return {"unusable": (error.message, error.hint)}
    if task.timeout is None:
        return attempt_task(task, found)
    return _within(task.timeout, task, found)


def _within(seconds: float, task: Task, function: Callable[[Task], Mapping[str, Any]]) -> dict[str, Any]:
    """One attempt in a thread that is left behind if it takes longer: a worker's process may run other tasks."""
    answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(attempt_task(task, function)), daemon=True).start()
    try:
        return answers.get(timeout=seconds)
    except queue.Empty:
        error, hint = texts("batch_error.timeout", seconds=seconds)
        return {"figures": {}, "error": error, "hint": hint, "seconds": seconds, "peak_bytes": None}


@cache
def own_versions() -> dict[str, str]:
    """Versions that a worker must share, by name; of Python the first two numbers."""
    return {name: metadata.version(name) for name in PACKAGES} | {"Python": short_python(platform.python_version())}


def short_python(version: str) -> str:
    """`3.11` of `3.11.7`."""
    return ".".join(version.split(".")[:2])
