"""What to run when a training crashes or hangs: `mappings/crash/`, a file a device; each step cites its source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from align.errors import UsageError
from align.rules.layer_rules import mappings_folder, read_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

CrashCertainty = Literal["documented", "read in the vendor's source"]
HOST: Final = "cpu"


@dataclass(frozen=True, slots=True)
class CrashStep:
    """One thing to try: lines to paste, what they show, and where a vendor says so; `cpu.toml` explains the fields."""

    id: str
    title: str
    lines: tuple[str, ...]
    shows: str
    source: str
    certainty: CrashCertainty


@dataclass(frozen=True, slots=True)
class CrashDevice:
    """A device and its own steps."""

    device: str
    title: str
    steps: tuple[CrashStep, ...]


@cache
def crash_devices() -> Mapping[str, CrashDevice]:
    """All devices by name.

    >>> sorted(crash_devices())
    ['cpu', 'cuda', 'mlu', 'npu']
    """
    found = [read_rules(path, _device) for path in sorted((mappings_folder() / "crash").glob("*.toml"))]
    return {one.device: one for one in found}


def crash_steps(device: str) -> tuple[CrashStep, ...]:
    """The steps of a device, and behind them those of the host; raises UsageError for a device that has none."""
    devices = crash_devices()
    if device not in devices:
        raise UsageError.of("doctor_usage.device", device=device, known=sorted(devices))
    own = devices[device].steps
    return own if device == HOST else (*own, *devices[HOST].steps)


def _device(document: dict[str, Any]) -> CrashDevice:
    steps = tuple(CrashStep(**{**table, "lines": tuple(table["lines"])}) for table in document["step"])
    return CrashDevice(document["device"], document["title"], steps)
