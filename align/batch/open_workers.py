"""Where tasks run: in processes of this machine (`open_pool`) or on a Dask cluster that is there (`open_dask`).

Both take the same tasks and give the same outcomes. A task that fails is tried once more. A worker that dies costs
the tasks that it was running and no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from align.batch.task import Task, TaskOutcome


class Workers(Protocol):
    """A place where tasks run."""

    def run(self, tasks: Iterable[Task], function: str) -> Iterator[TaskOutcome]:
        """Run `function` ("module:name": it takes a Task and returns figures) on all; outcomes come as they end.

        The tasks are taken from `tasks` as workers become free. Raises CannotRunError if none can be run.
        """


def open_pool(count: int | None = None, memory_bytes: int | None = None) -> AbstractContextManager[Workers]:
    """Start `count` processes (None: one a core) that may take `memory_bytes` each (None: their share of what is free).

    They end with the context, and with this process however it ends.
    """
    from align.batch.workers.process_pool import ProcessPool

    return ProcessPool.opened(count, memory_bytes)


def open_dask(address: str) -> AbstractContextManager[Workers]:
    """Use the workers of the Dask scheduler at `address`, such as `tcp://node1:8786`.

    Raises FrameworkMissingError without `distributed`, and CannotRunError if the scheduler does not answer, if it has
    no workers, or if one of them has another version of mindalign, Python or NumPy.
    """
    from align.batch.workers.dask_cluster import open_cluster

    return open_cluster(address)
