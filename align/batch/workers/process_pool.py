"""Tasks in processes of this machine.

The pools of the standard library and loky end all tasks when one process dies. Here each process has a line of its own,
so that it costs the task that it was running and is replaced. Memory is watched from outside: a limit of the kernel
(RLIMIT_AS) would count mapped checkpoints and what frameworks reserve and never use.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.batch.thresholds import LEAST_MEMORY, MEMORY_CHECK_SECONDS, MEMORY_SHARE, MOST_FAILED_STARTS
from align.batch.workers.attempts import Attempts
from align.batch.workers.pool_worker import PoolWorker
from align.errors import CannotRunError, UsageError
from align.words.catalogue import texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from align.batch.task import Task, TaskOutcome


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
