"""What to run after a crash: each step has lines, what they show, and an address."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from align.errors import UsageError
from align.lint.examine_environment import advise_on_crash
from align.rules.ascend_rules import CrashCertainty, CrashStep, crash_devices, crash_steps

ADDRESS = re.compile(r"https://[\w.-]+/\S+")


def test_each_step_is_whole(assert_each) -> None:
    def is_whole(step: CrashStep) -> None:
        assert step.lines
        assert step.shows
        assert ADDRESS.fullmatch(step.source)
        assert step.certainty in get_args(CrashCertainty)

    assert_each(is_whole, [step for device in crash_devices().values() for step in device.steps])


@pytest.mark.parametrize("device", ["npu", "cuda", "mlu", "cpu"])
def test_each_device_waits_for_operators_logs_catches_errors_and_ends_with_the_host(device: str) -> None:
    names = [step.id for step in crash_steps(device)]
    assert names[-1] == "memory"
    assert {"gdb-core", "gdb-attach", "valgrind"} <= set(names)
    assert len(names) == len(set(names))
    if device != "cpu":
        assert sum(name.endswith(("-blocking", "-log", "-errors")) for name in names) >= 3


def test_another_device_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="no device is called 'tpu'") as error:
        crash_steps("tpu")
    assert error.value.hint == "write one of: cpu, cuda, mlu, npu"


def test_a_device_may_be_written_in_capitals() -> None:
    assert advise_on_crash(" NPU").device == "npu"


def test_each_address_of_a_page_that_moves_is_of_one_version() -> None:
    """Pages of CANN and of repositories change under one address unless a version stands in it."""
    sources = [step.source for device in crash_devices().values() for step in device.steps]
    moving = [one for one in sources if "hiascend.com" in one or "github.com" in one]
    versioned = re.compile(r"/[0-9a-f]{40}/|/canncommercial/\d+/|/blob/main/Misc/README\.valgrind$")
    assert [one for one in moving if not versioned.search(one)] == []
