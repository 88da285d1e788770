"""One attempt at a task, wherever it runs: its figures or its failure, with seconds and memory, as plain data."""

from __future__ import annotations

import importlib
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.errors import AlignError, UsageError
from align.words.catalogue import texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.batch.task import Task

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
