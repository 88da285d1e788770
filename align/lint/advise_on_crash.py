"""What to run when a training crashes or hangs on a device, each line with its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.verdicts import ShownResult
from align.rules.crash_rules import crash_devices, crash_steps

if TYPE_CHECKING:
    from align.rules.crash_rules import CrashStep


@dataclass(frozen=True, slots=True)
class CrashAdvice(ShownResult):
    """The steps for a device, its own first; it decides nothing, so there is no verdict."""

    result_kind = "crash"
    device: str
    title: str
    steps: tuple[CrashStep, ...]


def advise_on_crash(device: str) -> CrashAdvice:
    """The steps of `mappings/crash/` for a device; raises UsageError for one that has none.

    >>> advise_on_crash("npu").steps[0].lines
    ('export ASCEND_LAUNCH_BLOCKING=1', 'TRAIN')
    """
    device = device.strip().lower()
    steps = crash_steps(device)
    return CrashAdvice(device, crash_devices()[device].title, steps)
