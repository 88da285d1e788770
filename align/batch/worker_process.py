"""What a worker of the pool does: read a task, run it, answer; it leaves when the other end of its line closes.

A thread listens to the line, so that a worker in the middle of a task leaves too when its parent is gone.
"""

from __future__ import annotations

import importlib
import os
import queue
import threading
import time
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.batch.job import TaskOutcome
from align.batch.thresholds import MOST_ATTEMPTS
from align.errors import AlignError, UsageError
from align.words.catalogue import texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from align.batch.job import Task


def serve(descriptor: int) -> None:
    """Answer what comes on the line at `descriptor`: the name of a function first, then tasks."""
    line = Connection(descriptor)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(line, inbox), daemon=True).start()
    function = None
    while True:
        given = inbox.get()
        if not isinstance(given, str):
            line.send(attempt_task(given, function))  # type: ignore[arg-type]
            continue
        try:
            function = imported_function(given)
            line.send(None)
        except AlignError as error:
            line.send((error.message, error.hint))


def _listen(line: Connection, inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(line.recv())
    except (EOFError, OSError):
        os._exit(0)


# One attempt at a task, wherever it runs: its figures or its failure, with seconds and memory, as plain data.

_PEAK = "VmHWM:"


def attempt_task(task: Task, function: Callable[[Task], Mapping[str, Any]]) -> dict[str, Any]:
    """Run a task; what it raises is its failure: figures, error, hint, seconds, peak_bytes."""
    _forget_peak()
    start = time.monotonic()
    found: dict[str, Any] = {"figures": {}, "error": "", "hint": ""}
    try:
        found["figures"] = dict(function(task))
    except AlignError as error:
        found["error"], found["hint"] = error.message, error.hint
    except MemoryError:
        found["error"], found["hint"] = texts("batch_error.no_memory")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary: a task's fault is its outcome
        found["error"], found["hint"] = texts("batch_error.task", kind=type(error).__name__, error=str(error))
    return found | {"seconds": time.monotonic() - start, "peak_bytes": _peak_bytes()}


def imported_function(function: str) -> Callable[[Task], Mapping[str, Any]]:
    """Import the function that "module:name" names; raises UsageError if there is none."""
    module, _, name = function.partition(":")
    try:
        found: Callable[[Task], Mapping[str, Any]] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError.of("batch_error.no_function", function=function, error=str(error)) from error
    return found


def _forget_peak() -> None:
    """Let the kernel measure the peak of resident memory anew (proc(5), clear_refs 5); it may not be allowed."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_bytes() -> int | None:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(_PEAK):
                return int(line.split()[1]) * 1024
    return None


# How often each task was tried, and what is still to be tried: the same for a pool and a cluster.


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
