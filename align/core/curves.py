"""Loss logs as read, and curves on the true global step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Window = Literal["raw", "since last print", "epoch mean"]
Base = Literal[0, 1]


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One line of a log that tells of a training step, in the log's own counting.

    `step` is the global step where `global_step` of the log is True, else the step inside `epoch`. `values` holds
    every metric of the line (`loss`, `lr`, ...); `resolution` is the unit of the last printed digit of the loss, 0.0
    if the log prints all digits. `line` is the line number in the file, from 1.
    """

    line: int
    step: int
    epoch: int | None
    values: dict[str, float]
    resolution: float = 0.0


@dataclass(frozen=True, slots=True)
class LossLog:
    """A log as one plugin understood it.

    `base` is what the log calls its first step (and first epoch); None where the format does not fix it and the
    smallest step has to tell. `steps_per_epoch` is given by the format (`batch: [1/4]`) or None.
    """

    label: str
    format: str
    records: tuple[LogRecord, ...]
    global_step: bool
    base: Base | None
    steps_per_epoch: int | None = None
    window: Window = "raw"
    ignored_lines: int = 0


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric over the global step, counted from 1, strictly increasing.

    `values[i]` belongs to `steps[i]`, `resolution[i]` is its printed resolution. `notes` says what was done to get
    here.
    """

    label: str
    metric: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    resolution: tuple[float, ...]
    window: Window = "raw"
    notes: tuple[str, ...] = field(default=())
