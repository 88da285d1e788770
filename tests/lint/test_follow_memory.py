"""A real process that leaks is told from a steady one, from one that fills a cache, and from one that ends at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.errors import UsageError
from align.lint.examine_environment import follow_memory, leaks, memory_trend

PROGRAM = """
import sys, time
kept, mode = [], sys.argv[1]
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    noise = bytearray(300_000)
    if mode == "leak":
        kept.append(b"x" * 100_000)
    time.sleep(0.005)
"""


def started(mode: str, seconds: float) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, mode, str(seconds)])
    while process.poll() is None and not Path(f"/proc/{process.pid}/cmdline").read_bytes():
        time.sleep(0.001)  # it has no command line before it runs
    return process


@pytest.mark.parametrize(("mode", "outcome"), [("leak", Outcome.NOT_ALIGNED), ("steady", Outcome.ALIGNED)])
def test_a_process_that_leaks_is_told_from_a_steady_one(mode: str, outcome: Outcome) -> None:
    with started(mode, 3) as process:
        found = follow_memory(process.pid, every=0.03)
    assert found.ended == "process ended"
    assert found.verdict.outcome is outcome, found.verdict.reason
    assert mode in found.command
    assert len(found.seconds) == len(found.resident) >= 30
    assert found.trend is not None
    if mode == "leak":
        assert found.trend.growth > 100e6  # some 20 MB a second, less on a busy machine
        assert "host memory grows steadily by" in found.verdict.reason


def test_what_is_too_short_to_tell_says_so() -> None:
    with started("leak", 0.4) as process:
        found = follow_memory(process.pid, every=0.1)
    assert found.verdict.outcome is Outcome.NOT_COMPARED
    assert "too few" in found.verdict.reason


# A shell may have its background jobs ignore interrupts, and what they start.
FOLLOW = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from align.cli.main import run
run()
"""


def test_an_interrupt_ends_the_following_with_its_verdict_and_not_the_process() -> None:
    with started("steady", 30) as process:
        command = [sys.executable, "-c", FOLLOW, "doctor", "--follow", str(process.pid), "--every", "0.02", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as following:
            time.sleep(4)
            following.send_signal(signal.SIGINT)
            printed, said = following.communicate()
        assert process.poll() is None
        process.kill()
    assert b"Traceback" not in said
    found = json.loads(printed)
    assert found["ended"] == "stopped"
    assert following.returncode == (0 if found["verdict"]["outcome"] == "aligned" else 2)


def test_a_time_ends_it_and_children_count() -> None:
    code = "import subprocess, sys, time; c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(9)'])\n"
    with subprocess.Popen([sys.executable, "-c", code + "time.sleep(9)"], start_new_session=True) as process:
        time.sleep(0.5)
        found = follow_memory(process.pid, every=0.05, longest=0.3)
        os.killpg(process.pid, signal.SIGKILL)
    assert (found.ended, found.processes) == ("time over", 2)


def test_a_process_that_is_not_there_is_refused() -> None:
    with started("steady", 0) as process:
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
