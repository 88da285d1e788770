"""What a worker of a Dask cluster does with a task, and which versions make it another worker than this process."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from align.batch.workers.run_task import attempt_task, imported_function
from align.errors import AlignError

if TYPE_CHECKING:
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
    return attempt_task(task, found)


@cache
def own_versions() -> dict[str, str]:
    """Versions that a worker must share, by name; of Python the first two numbers."""
    return {name: metadata.version(name) for name in PACKAGES} | {"Python": short_python(platform.python_version())}


def short_python(version: str) -> str:
    """`3.11` of `3.11.7`."""
    return ".".join(version.split(".")[:2])
