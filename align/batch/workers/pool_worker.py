"""One worker of the pool as its parent sees it: a fresh interpreter at the end of a line.

It is no fork, which would copy the threads' locks of a framework in an unknown state, and it does not run the user's
script again, as `spawn` of multiprocessing does. Its prints go to a file, of which the last line is quoted if it dies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING

from align.batch.thresholds import END_SECONDS, LAST_WORDS_BYTES

if TYPE_CHECKING:
    from align.batch.task import Task

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_SCRIPT = (
    "import sys, json\n"
    "sys.path[:] = json.loads(sys.argv[2])\n"
    "import align.batch.workers.worker_process as process\n"
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
