"""What a worker of the pool does: read a task, run it, answer; it leaves when the other end of its line closes.

A thread listens to the line, so that a worker in the middle of a task leaves too when its parent is gone.
"""

from __future__ import annotations

import os
import queue
import threading
from multiprocessing.connection import Connection
from typing import Any

from align.batch.workers.run_task import attempt_task, imported_function
from align.errors import AlignError


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
