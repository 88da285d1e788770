"""A real process that leaks is told from a steady one, from one that fills a cache, and from one that ends at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.errors import UsageError
from align.lint.examine_environment import follow_memory, leaks, memory_trend


@pytest.mark.parametrize(("mode", "outcome"), [("leak", Outcome.NOT_ALIGNED), ("steady", Outcome.ALIGNED)])
def test_a_process_that_leaks_is_told_from_a_steady_one(mode: str, outcome: Outcome, process_in_step: Any) -> None:
    with process_in_step(mode, 60) as process:
        found = follow_memory(process.pid, every=0.5)
    assert found.ended == "process ended"
    assert found.verdict.outcome is outcome, found.verdict.reason
    assert mode in found.command
    assert len(found.seconds) == len(found.resident) == 61
    assert found.trend is not None
    if mode == "leak":
        assert found.trend.growth == pytest.approx(120e6, rel=0.1)  # a megabyte in half a second
        assert "host memory grows steadily by" in found.verdict.reason


def test_what_is_too_short_to_tell_says_so(process_in_step: Any) -> None:
    with process_in_step("leak", 4) as process:
        found = follow_memory(process.pid)
    assert found.verdict.outcome is Outcome.NOT_COMPARED
    assert "too few" in found.verdict.reason


# Interrupts itself after so many samples. A shell may have its background jobs ignore interrupts, and what they start.
FOLLOW = """
import os, signal
from types import SimpleNamespace
from align.cli.main import run
from align.lint import examine_environment
signal.signal(signal.SIGINT, signal.default_int_handler)
waits = []

def wait(seconds):
    waits.append(seconds)
    if len(waits) == 60:
        os.kill(os.getpid(), signal.SIGINT)

examine_environment.time = SimpleNamespace(sleep=wait, monotonic=lambda: sum(waits))
run()
"""


def test_an_interrupt_ends_the_following_with_its_verdict_and_not_the_process(process_in_step: Any) -> None:
    with process_in_step("steady", 0) as process:
        command = [sys.executable, "-c", FOLLOW, "doctor", "--follow", str(process.pid), "--every", "0.02", "--json"]
        following = subprocess.run(command, capture_output=True, check=False)
        assert process.poll() is None
    assert b"Traceback" not in following.stderr
    found = json.loads(following.stdout)
    assert (found["ended"], len(found["seconds"])) == ("stopped", 60)
    assert (following.returncode, found["verdict"]["outcome"]) == (0, "aligned")


def test_a_time_ends_it_and_children_count() -> None:
    code = "import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', 'input()']); print('on', flush=True)\n"
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code + "c.wait()"]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        found = follow_memory(process.pid, every=0.05, longest=0.3)
        os.killpg(process.pid, signal.SIGKILL)
    assert (found.ended, found.processes) == ("time over", 2)


def test_a_process_that_is_not_there_is_refused() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    with pytest.raises(UsageError, match=f"no process {process.pid} runs here"):
        follow_memory(process.pid)


def test_growth_is_told_from_noise_and_from_one_step() -> None:
    time_, noise = np.arange(300.0), np.random.default_rng(0).normal(0, 3e6, 300)

    def judged(size: np.ndarray) -> bool:
        trend = memory_trend(time_, 2e9 + size)
        assert trend is not None
        return leaks(trend)

    assert not judged(noise)
    assert not judged(noise + 400e6 * (time_ > 150))  # a cache, filled once
    assert not judged(400e6 * (1 - np.exp(-time_ / 20)))  # a start that settles
    assert judged(noise + 0.3e6 * time_)
    assert judged(8e6 * np.floor(time_ / 20))  # an allocator's stairs
    assert not judged(-1e6 * time_)


@pytest.mark.parametrize("every", [0, -1, float("nan"), float("inf"), 1e9])
def test_a_distance_of_samples_that_is_none_is_refused(every: float) -> None:
    with pytest.raises(UsageError, match="not a possible interval") as caught:
        follow_memory(os.getpid(), every=every)
    assert "86,400" in caught.value.hint


@pytest.mark.parametrize("longest", [0, -1, float("nan"), float("inf")])
def test_a_time_that_never_comes_is_refused(longest: float) -> None:
    with pytest.raises(UsageError, match="cannot be followed for"):
        follow_memory(os.getpid(), longest=longest)
