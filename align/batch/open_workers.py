"""Where tasks run: in processes of this machine (`open_pool`) or on a Dask cluster that is there (`open_dask`).

Both take the same tasks and give the same outcomes. A task that fails is tried once more. A worker that dies costs
the tasks that it was running and no others.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import platform
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from align.batch.run_task import Attempts, attempt_task, imported_function
from align.batch.thresholds import (
    CLUSTER_LOOK_SECONDS,
    CONNECT_SECONDS,
    END_SECONDS,
    LAST_WORDS_BYTES,
    LEAST_IN_FLIGHT,
    LEAST_MEMORY,
    MEMORY_CHECK_SECONDS,
    MEMORY_SHARE,
    MOST_FAILED_STARTS,
    TASKS_A_THREAD,
    WORKERS_SECONDS,
)
from align.core.memory import available_bytes
from align.core.operating_system import usable_cores
from align.errors import AlignError, CannotRunError, FrameworkMissingError, UsageError
from align.words.catalogue import texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from align.batch.job import Task, TaskOutcome


class Workers(Protocol):
    """A place where tasks run."""

    def run(self, tasks: Iterable[Task], function: str) -> Iterator[TaskOutcome]:
        """Run `function` ("module:name": it takes a Task and returns figures) on all; outcomes come as they end.

        The tasks are taken from `tasks` as workers become free. Raises CannotRunError if none can be run.
        """


@contextmanager
def open_pool(count: int | None = None, memory_bytes: int | None = None) -> Iterator[Workers]:
    """Start `count` processes (None: one a core) that may take `memory_bytes` each (None: their share of what is free).

    They end with the context, and with this process however it ends. Raises UsageError for numbers below 1.
    """
    given = {"workers": count, "bytes of memory": memory_bytes}
    if few := [f"{number} {what}" for what, number in given.items() if number is not None and number < 1]:
        raise UsageError.of("batch_error.numbers", given=few)
    count = count or usable_cores()
    pool = ProcessPool(count, memory_bytes or max(LEAST_MEMORY, int(MEMORY_SHARE * available_bytes() / count)))
    try:
        yield pool
    finally:
        pool.end(pool.workers)


@contextmanager
def open_dask(address: str) -> Iterator[Workers]:
    """Use the workers of the Dask scheduler at `address`, such as `tcp://node1:8786`.

    Raises FrameworkMissingError without `distributed`, and CannotRunError if the scheduler does not answer, if it has
    no workers, or if one of them has another version of mindalign, Python or NumPy.
    """
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


# Tasks in processes of this machine.
#
# The pools of the standard library and loky end all tasks when one process dies. Here each process has a line of its
# own, so that it costs the task that it was running and is replaced. Memory is watched from outside: a limit of the
# kernel (RLIMIT_AS) would count mapped checkpoints and what frameworks reserve and never use.


class ProcessPool:
    """`count` workers, each with `memory_bytes` of its own; workers are started when there are tasks for them."""

    def __init__(self, count: int, memory_bytes: int) -> None:
        self.count, self.memory_bytes = count, memory_bytes
        self.workers: list[PoolWorker] = []
        self._failed_starts = 0

    def run(self, tasks: Iterable[Task], function: str) -> Iterator[TaskOutcome]:
        """Run all tasks; see `Workers`."""
        attempts = Attempts(tasks)
        try:
            while self._give_out(attempts, function):
                for worker in self._answering():
                    yield from self._hear(worker, attempts)
        finally:
            self.end([worker for worker in self.workers if worker.task is not None])

    def _give_out(self, attempts: Attempts, function: str) -> bool:
        """Give each free worker a task, starting workers up to `count`; False if none is running."""
        free = [worker for worker in self.workers if worker.task is None]
        while free or len(self.workers) < self.count:
            if (task := attempts.next_task()) is None:
                break
            worker = free.pop() if free else self._started()
            if worker.function != function:
                worker.tell(function)
                worker.function = function
                worker.ready = False
            worker.task, worker.since = task, time.monotonic()
            worker.tell(task)
        return any(worker.task is not None for worker in self.workers)

    def _started(self) -> PoolWorker:
        worker = PoolWorker(max(1, usable_cores() // self.count))
        self.workers.append(worker)
        return worker

    def _answering(self) -> list[PoolWorker]:
        """Wait for answers; meanwhile workers above their limit are killed, which is an answer too."""
        running = {worker.line: worker for worker in self.workers if worker.task is not None}
        due = time.monotonic() + MEMORY_CHECK_SECONDS
        while True:
            answering = wait(list(running), max(0.0, due - time.monotonic()))
            if time.monotonic() >= due:
                self._watch(running.values())
                due = time.monotonic() + MEMORY_CHECK_SECONDS
            if answering:
                return [running[line] for line in answering]  # type: ignore[index]

    def _watch(self, workers: Iterable[PoolWorker]) -> None:
        """End workers that take too much memory, or too long for their task."""
        for worker in workers:
            if (held := worker.own_bytes()) > self.memory_bytes:
                worker.over = held
            timeout = worker.task.timeout if worker.task is not None and worker.ready else None
            if timeout is not None and time.monotonic() - worker.since > timeout:
                worker.is_late = True
            if worker.is_ending:
                worker.process.kill()

    def _hear(self, worker: PoolWorker, attempts: Attempts) -> Iterator[TaskOutcome]:
        """Take an answer, or the death of the worker as the failure of its task."""
        try:
            answer: Any = worker.line.recv()
        except (EOFError, OSError):
            answer = self._lost(worker)
        if not worker.ready and not isinstance(answer, dict):
            if answer is not None:
                raise UsageError(*answer)
            worker.ready, worker.since, self._failed_starts = True, time.monotonic(), 0
            return
        task, worker.task = worker.task, None
        if worker.is_ending and worker in self.workers:  # it answered at the last moment
            self.end([worker])
        if task is not None and (outcome := attempts.end(task, answer)) is not None:
            yield outcome

    def _lost(self, worker: PoolWorker) -> dict[str, Any]:
        """Remove a dead worker; raises CannotRunError if workers die before they are ready, one after another."""
        code = worker.process.wait()
        words = worker.last_words()
        self.workers.remove(worker)
        worker.end()
        error, hint = self._why_lost(worker, code, words)
        self._failed_starts += not worker.ready
        if self._failed_starts >= MOST_FAILED_STARTS:
            if worker.over is not None:
                raise CannotRunError(error, hint)
            raise CannotRunError.of("batch_error.no_start", count=self._failed_starts, words=words)
        seconds = worker.task.timeout or 0.0 if worker.is_late and worker.task else 0.0
        return {"figures": {}, "error": error, "hint": hint, "seconds": seconds, "peak_bytes": worker.over}

    def _why_lost(self, worker: PoolWorker, code: int, words: str) -> tuple[str, str]:
        if worker.over is not None:
            return texts("batch_error.over_memory", held=worker.over // 2**20, most=self.memory_bytes // 2**20)
        if worker.is_late and worker.task is not None:
            return texts("batch_error.timeout", seconds=worker.task.timeout)
        return texts("batch_error.lost", how=_how(code), words=words)

    def end(self, workers: Iterable[PoolWorker]) -> None:
        """End these workers, those with a task at once."""
        ending = list(workers)
        for worker in ending:
            if worker.task is not None:
                worker.process.kill()
            self.workers.remove(worker)
        for worker in ending:
            worker.end()


def _how(code: int) -> str:
    return signal.Signals(-code).name if -code in {*signal.Signals} else str(code)


# One worker of the pool as its parent sees it: a fresh interpreter at the end of a line.
#
# It is no fork, which would copy the threads' locks of a framework in an unknown state, and it does not run the
# user's script again, as `spawn` of multiprocessing does. Its prints go to a file, of which the last line is quoted
# if it dies.

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_SCRIPT = (
    "import sys, json\n"
    "sys.path[:] = json.loads(sys.argv[2])\n"
    "import align.batch.run_task as process\n"
    "process.serve(int(sys.argv[1]))"
)


class PoolWorker:
    """A process, its line, and the task that it is running; `threads` is what its libraries may use."""

    def __init__(self, threads: int) -> None:
        self.task: Task | None = None
        self.function = ""  # that it was told to import
        self.ready = False  # has imported it
        self.over: int | None = None  # bytes that it held when it was ended for that
        self.since = 0.0  # when it was given its task, or was ready for it
        self.is_late = False  # ended because its task took too long
        self._prints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self.line, theirs = Pipe()
        with theirs:
            self.process = self._start(theirs, threads)

    @property
    def is_ending(self) -> bool:
        """Whether it was killed for its memory or its time."""
        return self.is_late or self.over is not None

    def tell(self, given: Task | str) -> None:
        """Send a task or the name of a function; a worker that is gone is found out when its answer is awaited."""
        with suppress(OSError):
            self.line.send(given)

    def own_bytes(self) -> int:
        """Memory that is the process's alone: files that it maps are not counted, for they can be dropped."""
        with suppress(OSError, ValueError, IndexError):
            _, resident, shared = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[:3]
            return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
        return 0

    def end(self, seconds: float = END_SECONDS) -> None:
        """Close the line, which ends the process; one that does not leave in time is killed."""
        self.line.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.process.kill()
        self.process.wait()
        self._prints.close()

    def last_words(self) -> str:
        """The last line that the process printed."""
        self._prints.seek(max(0, self._prints.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
        lines = self._prints.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _start(self, theirs: Connection, threads: int) -> subprocess.Popen[bytes]:
        # A session of its own: an interrupt from the keyboard is the parent's, which then ends the workers.
        number = theirs.fileno()
        return subprocess.Popen(  # noqa: S603 - this interpreter, with a program of ours
            [sys.executable, "-c", _SCRIPT, str(number), json.dumps(sys.path)],
            pass_fds=[number],
            stdin=subprocess.DEVNULL,
            stdout=self._prints,
            stderr=self._prints,
            env=os.environ | dict.fromkeys(_THREADS, str(threads)),
            start_new_session=True,
        )


# Tasks on a Dask cluster that is there. Tasks carry paths, results carry figures; no data goes through the scheduler.
#
# Few tasks are in flight at a time, so that ten thousand need no memory and a slow worker holds no more than its own. A
# worker that dies is the scheduler's concern: it runs the task elsewhere, and gives it up after some deaths
# (`distributed.scheduler.allowed-failures`).


_LOGGERS = ("distributed", "distributed.client", "distributed.core")  # distributed sets the level of each


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

    def _outcome(self, attempts: Attempts, future: Any, result: dict[str, Any] | None) -> TaskOutcome | None:
        """The outcome of a task that ended; None if it is to be tried, or its worker to be asked, once more."""
        if future.status in ("cancelled", "lost"):
            raise CannotRunError.of("batch_error.scheduler_gone", address=self.address)
        if future.status == "error":
            with self._reached():
                fault = future.exception(timeout=CONNECT_SECONDS)
            return self._failure(attempts, self._tasks.pop(future), fault)
        if (result := result or self._figures(future)) is None:
            self._look_again = 0.0
            self._ended.put(future)
            return None
        if "unlike" in result:
            raise _refusal({self.address: result["unlike"]})
        if "unusable" in result:
            raise UsageError(*result["unusable"])
        return attempts.end(self._tasks.pop(future), result)

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
        tries = 1
        if isinstance(fault, KilledWorker):
            tries = fault.allowed_failures + 1
            error, hint = texts("batch_error.workers_died", count=tries)
        return attempts.end(
            task, {"figures": {}, "error": error, "hint": hint, "seconds": 0.0, "peak_bytes": None}, tries
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
    replies = {name: client.run(metadata.version, name, on_error="return") for name in PACKAGES}
    replies["Python"] = client.run(platform.python_version, on_error="return")
    # Who joins between two questions is asked with its first task, and who is gone takes none.
    there = set.intersection(*({one for one, said in some.items() if _answered(said)} for some in replies.values()))
    by_worker = {
        worker: {name: _as_version(name, answers[worker]) for name, answers in replies.items()}
        for worker in sorted(there)
    }
    if unlike := {worker: versions for worker, versions in by_worker.items() if versions != own_versions()}:
        raise _refusal(unlike)


def _answered(said: object) -> bool:
    return isinstance(said, str | metadata.PackageNotFoundError)


def _as_version(name: str, answer: object) -> str:
    if not isinstance(answer, str):
        return "missing"
    return short_python(answer) if name == "Python" else answer


def _refusal(unlike: dict[str, dict[str, str]]) -> CannotRunError:
    local = own_versions()
    workers = [
        f"{worker} ({', '.join(f'{name} {version}' for name, version in versions.items() if version != local[name])})"
        for worker, versions in unlike.items()
    ]
    here = ", ".join(f"{name} {version}" for name, version in local.items())
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
        imported = imported_function(function)
    except AlignError as error:
        return {"unusable": (error.message, error.hint)}
    if task.timeout is None:
        return attempt_task(task, imported)
    return _within(task.timeout, task, imported)


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
