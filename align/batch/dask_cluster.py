"""Tasks on a Dask cluster that is there. Tasks carry paths, results carry figures; no data goes through the scheduler.

Few tasks are in flight at a time, so that ten thousand need no memory and a slow worker holds no more than its own. A
worker that dies is the scheduler's concern: it runs the task elsewhere, and gives it up after some deaths
(`distributed.scheduler.allowed-failures`).
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import platform
import queue
import threading
import time
import warnings
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from align.batch.thresholds import (
    CLUSTER_LOOK_SECONDS,
    CONNECT_SECONDS,
    LEAST_IN_FLIGHT,
    TASKS_A_THREAD,
    WORKERS_SECONDS,
)
from align.batch.worker_process import Attempts, attempt_task, imported_function
from align.errors import AlignError, CannotRunError, FrameworkMissingError, UsageError
from align.words.catalogue import texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from align.batch.job import Task, TaskOutcome


_LOGGERS = ("distributed", "distributed.client", "distributed.core")  # distributed sets the level of each


@contextmanager
def open_cluster(address: str) -> Iterator[_Cluster]:
    """The workers of a scheduler; see `align.batch.open_workers`."""
    if importlib.util.find_spec("distributed") is None:
        raise FrameworkMissingError("distributed", "pip install 'mindalign[dask]'")
    with _quiet():
        client = _connected(address)
        try:
            _require_like_workers(client)
            yield _Cluster(client, address)
        finally:
            with suppress(Exception):  # a scheduler that is gone has nothing to be told
                client.close(timeout=CONNECT_SECONDS)  # what it logs later would not be kept back


class _Cluster:
    def __init__(self, client: Any, address: str) -> None:
        self.client, self.address = client, address
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tasks: dict[Any, Task] = {}
        self._threads = 0  # of all workers, at the last look
        self._look_again = self._seen = time.monotonic()  # when to look again, and when a worker was there last

    def run(self, tasks: Iterable[Task], function: str) -> Iterator[TaskOutcome]:
        attempts = Attempts(tasks)
        try:
            while self._submit(attempts, function):
                ended = self._next_ended()
                figures = self._gathered(ended)
                for future in ended:
                    outcome = self._outcome(attempts, future, figures.get(future))
                    if outcome is not None:
                        yield outcome
        finally:
            left = list(self._tasks)
            self._tasks.clear()
            if left:
                with suppress(Exception):  # the scheduler may be what is gone
                    self.client.cancel(left, force=True)

    def _submit(self, attempts: Attempts, function: str) -> bool:
        """Fill up what is in flight; False if there is nothing in flight or to be done."""
        self._look()
        most = max(LEAST_IN_FLIGHT, TASKS_A_THREAD * self._threads)
        if len(self._tasks) <= most // 2:  # several at once: a graph costs the scheduler as much as many tasks
            self._send([task for _ in range(most - len(self._tasks)) if (task := attempts.next_task())], function)
        return bool(self._tasks)

    def _send(self, tasks: list[Task], function: str) -> None:
        if not tasks:
            return
        with self._reached():
            # pure=False: a key of its own for each attempt, or the second would be given the first one's result.
            futures = self.client.map(run_on_worker, tasks, function=function, expected=own_versions(), pure=False)
        for task, future in zip(tasks, futures, strict=True):
            self._tasks[future] = task
            future.add_done_callback(self._ended.put)

    def _look(self) -> None:
        """Ask how many threads there are, now and then: it costs a round trip, and more than an empty task."""
        if time.monotonic() < self._look_again:
            return
        with self._reached():
            self._threads = sum(self.client.nthreads(callback_timeout=CONNECT_SECONDS).values())
        now = time.monotonic()
        self._look_again = now + CLUSTER_LOOK_SECONDS
        self._seen = now if self._threads else self._seen

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """What Dask raises where its scheduler is gone, or does not answer in time, is one error."""
        from distributed.client import ClosedClientError

        try:
            yield
        except (OSError, asyncio.TimeoutError, CancelledError, ClosedClientError) as error:
            raise CannotRunError.of("batch_error.scheduler_gone", address=self.address) from error

    def _next_ended(self) -> list[Any]:
        """Wait for a task to end, and take all that have."""
        while True:
            with suppress(queue.Empty):
                ended = [self._ended.get(timeout=CLUSTER_LOOK_SECONDS)]
                while not self._ended.empty():
                    ended.append(self._ended.get())
                return ended
            if self.client.status != "running":
                raise CannotRunError.of("batch_error.scheduler_gone", address=self.address)
            self._look()
            if time.monotonic() - self._seen > WORKERS_SECONDS:
                raise CannotRunError.of("batch_error.workers_gone", address=self.address, seconds=WORKERS_SECONDS)

    def _gathered(self, ended: list[Any]) -> dict[Any, dict[str, Any]]:
        """What workers found, asked for at once; {} if one does not give it now, so that each is asked alone."""
        finished = [future for future in ended if future.status == "finished"]

        async def gather() -> list[dict[str, Any]]:
            asked = self.client.gather(finished, asynchronous=True)
            found: list[dict[str, Any]] = await asyncio.wait_for(asked, CLUSTER_LOOK_SECONDS)
            return found

        try:
            return dict(zip(finished, self.client.sync(gather), strict=True))
        except Exception:  # noqa: BLE001 - whatever it is, the task that it is of meets it again
            return {}

    def _outcome(self, attempts: Attempts, future: Any, found: dict[str, Any] | None) -> TaskOutcome | None:
        """The outcome of a task that ended; None if it is to be tried, or its worker to be asked, once more."""
        if future.status in ("cancelled", "lost"):
            raise CannotRunError.of("batch_error.scheduler_gone", address=self.address)
        if future.status == "error":
            with self._reached():
                fault = future.exception(timeout=CONNECT_SECONDS)
            return self._failure(attempts, self._tasks.pop(future), fault)
        if (found := found or self._figures(future)) is None:
            self._look_again = 0.0
            self._ended.put(future)
            return None
        if "unlike" in found:
            raise _refusal({self.address: found["unlike"]})
        if "unusable" in found:
            raise UsageError(*found["unusable"])
        return attempts.end(self._tasks.pop(future), found)

    def _figures(self, future: Any) -> dict[str, Any] | None:
        """What a worker found; None if it does not give it now, as one that stands still after its task."""
        with self._reached():
            try:
                found: dict[str, Any] = future.result(timeout=CLUSTER_LOOK_SECONDS)
            except asyncio.TimeoutError:
                return None
        return found

    def _failure(self, attempts: Attempts, task: Task, fault: Any) -> TaskOutcome | None:
        """What is raised is the cluster's: faults of a task are caught in the worker."""
        from distributed import KilledWorker

        if isinstance(fault, ImportError) and str(fault.name).partition(".")[0] == "align":
            raise _refusal({self.address: {"mindalign": "missing"}})
        error, hint = texts("batch_error.task", kind=type(fault).__name__, error=str(fault))
        made = 1
        if isinstance(fault, KilledWorker):
            made = fault.allowed_failures + 1
            error, hint = texts("batch_error.workers_died", count=made)
        return attempts.end(
            task, {"figures": {}, "error": error, "hint": hint, "seconds": 0.0, "peak_bytes": None}, made
        )


def _connected(address: str) -> Any:
    from distributed import Client

    _check_address(address)
    connect: Any = Client  # it has no types
    try:
        client = connect(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, asyncio.TimeoutError) as error:  # of its own in Python 3.10
        raise CannotRunError.of("batch_error.no_scheduler", address=address, seconds=CONNECT_SECONDS) from error
    try:
        client.wait_for_workers(1, timeout=WORKERS_SECONDS)
    except asyncio.TimeoutError as error:
        client.close(timeout=CLUSTER_LOOK_SECONDS)
        raise CannotRunError.of("batch_error.no_workers", address=address, seconds=WORKERS_SECONDS) from error
    return client


def _check_address(address: str) -> None:
    """Of what is no address a client would be left behind, which tries to close itself at the end."""
    from distributed.comm.addressing import get_address_host_port

    check: Any = get_address_host_port  # it has no types
    try:
        check(address)
    except ValueError as error:
        raise UsageError.of("batch_usage.no_address", address=address, error=str(error)) from error


def _require_like_workers(client: Any) -> None:
    """Ask all workers by the standard library alone: one may lack mindalign, or have one without this module."""
    asked = {name: client.run(metadata.version, name, on_error="return") for name in PACKAGES}
    asked["Python"] = client.run(platform.python_version, on_error="return")
    # Who joins between two questions is asked with its first task, and who is gone takes none.
    there = set.intersection(*({one for one, said in some.items() if _answered(said)} for some in asked.values()))
    found = {
        worker: {name: _as_version(name, answers[worker]) for name, answers in asked.items()}
        for worker in sorted(there)
    }
    if unlike := {worker: versions for worker, versions in found.items() if versions != own_versions()}:
        raise _refusal(unlike)


def _answered(said: object) -> bool:
    return isinstance(said, str | metadata.PackageNotFoundError)


def _as_version(name: str, answer: object) -> str:
    if not isinstance(answer, str):
        return "missing"
    return short_python(answer) if name == "Python" else answer


def _refusal(unlike: dict[str, dict[str, str]]) -> CannotRunError:
    """The error that lists workers with other versions, with what is other."""
    own = own_versions()
    workers = [
        f"{worker} ({', '.join(f'{name} {version}' for name, version in versions.items() if version != own[name])})"
        for worker, versions in unlike.items()
    ]
    here = ", ".join(f"{name} {version}" for name, version in own.items())
    return CannotRunError.of("batch_error.unlike_workers", count=len(workers), workers=workers, here=here)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave what is said about the cluster to our own errors: its log repeats each lost connection."""
    loggers = {logging.getLogger(name): logging.getLogger(name).level for name in _LOGGERS}
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="distributed")  # versions of packages that tasks do not use
            yield
    finally:
        for logger, level in loggers.items():
            logger.setLevel(level)


# What a worker of a Dask cluster does with a task, and which versions make it another worker than this process.

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
