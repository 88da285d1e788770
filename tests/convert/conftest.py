"""Processes that are sent a signal at a moment of their work, which is a call of the system and not a time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

# Counts what the main thread does to files, before and after each call, from the first folder that it makes on.
AT_MOMENT = """
import os, signal, sys
CALLS = {"mkdir", "open", "write", "flock", "fsync", "fdatasync", "rename", "replace", "unlink", "rmdir", "close"}
moments = []

def at_moment(chosen, number):
    def look(frame, event, call):
        name = getattr(call, "__name__", "") if event in ("c_call", "c_return") else ""
        if name not in CALLS or not (moments or (name, event) == ("mkdir", "c_return")):
            return
        moments.append(f"{'before' if event == 'c_call' else 'after'} {name}")
        if chosen == len(moments) or chosen == f"{moments[-1]} {moments.count(moments[-1])}":
            sys.setprofile(None)
            os.kill(os.getpid(), number)

    sys.setprofile(look)
"""
COMMAND = (
    AT_MOMENT
    + """
import json
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have its background jobs ignore it
from align.cli.main import run
at_moment(*json.loads(sys.argv.pop(1)))
run()
"""
)


@pytest.fixture(scope="session")
def moments() -> str:
    """Code of `at_moment(chosen, number)`: the signal comes at the moment of a number, or called `before write 2`."""
    return AT_MOMENT


@pytest.fixture
def run_until() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `align` with these words, and send it a signal at a moment; return how it ended."""

    def run_until(moment: str, number: int, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", COMMAND, json.dumps([moment, int(number)]), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run_until
