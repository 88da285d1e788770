"""Where tasks run: in processes of this machine (`open_pool`) or on a Dask cluster that is there (`open_dask`).

Both take the same tasks and give the same outcomes. A task that fails is tried once more. A worker that dies costs
the tasks that it was running and no others.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from align.batch.thresholds import (
    END_SECONDS,
    LAST_WORDS_BYTES,
    LEAST_MEMORY,
    MEMORY_CHECK_SECONDS,
    MEMORY_SHARE,
    MOST_FAILED_STARTS,
)
from align.batch.worker_process import Attempts
from align.errors import CannotRunError, UsageError
from align.words.catalogue import texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from align.batch.job import Task, TaskOutcome


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
    return ProcessPool.opened(count, memory_bytes)


def open_dask(address: str) -> AbstractContextManager[Workers]:
    """Use the workers of the Dask scheduler at `address`, such as `tcp://node1:8786`.

    Raises FrameworkMissingError without `distributed`, and CannotRunError if the scheduler does not answer, if it has
    no workers, or if one of them has another version of mindalign, Python or NumPy.
    """
    from align.batch.dask_cluster import open_cluster

    return open_cluster(address)


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

    @classmethod
    @contextmanager
    def opened(cls, count: int | None, memory_bytes: int | None) -> Iterator[ProcessPool]:
        """A pool that ends its processes with the context; raises UsageError for numbers below 1."""
        given = {"workers": count, "bytes of memory": memory_bytes}
        if few := [f"{number} {what}" for what, number in given.items() if number is not None and number < 1]:
            raise UsageError.of("batch_error.numbers", given=few)
        count = count or len(os.sched_getaffinity(0))
        pool = cls(count, memory_bytes or max(LEAST_MEMORY, int(MEMORY_SHARE * available_bytes() / count)))
        try:
            yield pool
        finally:
            pool._end(pool.workers)

    def run(self, tasks: Iterable[Task], function: str) -> Iterator[TaskOutcome]:
        """Run all tasks; see `Workers`."""
        attempts = Attempts(tasks)
        try:
            while self._give_out(attempts, function):
                for worker in self._answering():
                    yield from self._hear(worker, attempts)
        finally:
            self._end([worker for worker in self.workers if worker.task is not None])

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
        worker = PoolWorker(max(1, len(os.sched_getaffinity(0)) // self.count))
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
            self._end([worker])
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

    def _end(self, workers: Iterable[PoolWorker]) -> None:
        ending = list(workers)
        for worker in ending:
            if worker.task is not None:
                worker.process.kill()
            self.workers.remove(worker)
        for worker in ending:
            worker.end()


def available_bytes() -> int:
    """Memory that processes can still take: the machine's, or less where a control group holds this process."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with suppress(OSError, ValueError):
        memory = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
        found += [int(memory[1]) * 1024] if memory else []
    for folder, most, used in (
        ("/sys/fs/cgroup", "max", "current"),
        ("/sys/fs/cgroup/memory", "limit_in_bytes", "usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):  # no such group, or no limit ("max")
            limit, taken = (int(Path(folder, f"memory.{name}").read_text(encoding="ascii")) for name in (most, used))
            found.append(max(0, limit - taken))
    return min(found)


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
    "import align.batch.worker_process as process\n"
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
