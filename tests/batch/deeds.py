"""What the tests have workers do."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.errors import UsageError

if TYPE_CHECKING:
    from align.batch.job import Task


def deed(task: Task) -> dict[str, Any]:
    """Do what the action says, and say where."""
    found = _DEEDS[task.action](task)
    return {"pid": os.getpid(), **(found or {})}


def _nothing(task: Task) -> dict[str, Any]:
    return {"threads": os.environ.get("OMP_NUM_THREADS"), "torch": "torch" in sys.modules}


def _fail(task: Task) -> dict[str, Any]:
    raise UsageError(f"{task.id} is wrong", "mend it")


def _break(task: Task) -> dict[str, Any]:
    raise ZeroDivisionError("by nothing")


def _fail_once(task: Task) -> dict[str, Any]:
    mark = Path(task.paths[0])
    if not mark.exists():
        mark.touch()
        raise OSError("not yet")
    return {}


def _die(task: Task) -> dict[str, Any]:
    print("what it said before it died", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def _die_once(task: Task) -> dict[str, Any]:
    mark = Path(task.paths[0])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {}


def _fill(task: Task) -> dict[str, Any]:
    held = [bytearray(b"1" * 20_000_000) for _ in range(20)]
    time.sleep(600)  # its memory is seen, however late somebody looks
    return {"held": len(held)}


def _sleep(task: Task) -> dict[str, Any]:
    time.sleep(task.options["seconds"])
    return {}


_DEEDS = {
    "nothing": _nothing,
    "fail": _fail,
    "break": _break,
    "fail once": _fail_once,
    "die": _die,
    "die once": _die_once,
    "fill": _fill,
    "sleep": _sleep,
}
