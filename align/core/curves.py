"""Loss logs as read, and curves on the true global step.

A log is kept in columns, as training logs reach millions of lines, and in the log's own counting: what a format
knows (how it counts, what a value is the mean of, how many digits it prints) stays with the data until the curves
are put on one axis.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]
else:
    Integers = Floats = Any

Window = Literal["raw", "since last print", "epoch mean"]
Base = Literal[0, 1]
Counting = Literal["global step", "step in epoch", "epoch"]
Axis = Literal["step", "epoch"]


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One line of a log that tells of a training step, in the log's own counting.

    `step` is what the log calls the step (the epoch where it counts only epochs), `texts` holds the metrics of the
    line as printed, `line` is the line number in the file, from 1.
    """

    line: int
    step: int
    epoch: int | None
    texts: dict[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One metric of a log: `values[i]` stands in record `rows[i]`; all three have shape (n,).

    `resolution` is the unit of the last printed digit, 0.0 where all digits are printed. `window` says what a value is
    the mean of.
    """

    rows: Integers
    values: Floats
    resolution: Floats
    window: Window = "raw"


@dataclass(frozen=True, slots=True, eq=False)
class LogTable:
    """The records of a log in file order: `lines`, `steps` and `epochs` of shape (records,), metrics by name."""

    lines: Integers
    steps: Integers
    epochs: Integers | None
    metrics: dict[str, Series]


@dataclass(frozen=True, slots=True, eq=False)
class LossLog:
    """A log as one plugin understood it.

    `loss_name` is what the log calls its training loss. `base` is what it calls its first step (and first epoch); None
    where the format does not fix it and the smallest step has to tell. `steps_per_epoch` is given by the format
    (`batch: [1/4]`) or None. `notes` says what the plugin assumed or could not read.
    """

    label: str
    format: str
    table: LogTable
    loss_name: str
    counting: Counting
    base: Base | None
    steps_per_epoch: int | None = None
    ignored_lines: int = 0
    notes: tuple[str, ...] = ()

    def series(self, metric: str) -> Series | None:
        """Return a metric by its name in the log, `loss` standing for the training loss; None if it is not there."""
        metrics = self.table.metrics
        return metrics[metric] if metric in metrics else metrics.get(self.loss_name) if metric == "loss" else None

    def with_notes(self, notes: tuple[str, ...], ignored_lines: int = 0) -> LossLog:
        """Return the same log with more notes and more ignored lines."""
        return replace(self, notes=(*self.notes, *notes), ignored_lines=self.ignored_lines + ignored_lines)


@dataclass(frozen=True, slots=True)
class AxisHints:
    """What the user knows about how a log counts; None leaves it to the log."""

    steps_per_epoch: int | None = None
    base: Base | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric over the global step, counted from 1, strictly increasing.

    `values[i]` belongs to `steps[i]`, `resolution[i]` is its printed resolution. Where a log counts only epochs and
    nobody said how many steps an epoch has, `axis` is "epoch". `base_guessed`: it counts from 1 only because it shows
    no step 0. `notes` says what was done to get here.
    """

    label: str
    metric: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    resolution: tuple[float, ...]
    window: Window = "raw"
    axis: Axis = "step"
    notes: tuple[str, ...] = field(default=())
    base_guessed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PairedCurves:
    """Two curves at their common steps: arrays of shape (common,).

    `widening` is what rounding to the printed digits can add to a difference: half a unit of each side.
    """

    steps: Integers
    reference: Floats
    candidate: Floats
    widening: Floats
    unmatched_reference: int
    unmatched_candidate: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What was understood of one log; `result_kind` names the file in the run folder.

    `cadence` is the usual distance between points and `gaps` lists (last step before, first step after) of the wider
    ones that follow no pattern. `resolution` is the coarsest printed unit, 0.0 if all digits are printed. `duplicates`
    counts points that were printed again later.
    """

    result_kind = "log"
    label: str
    format: str
    metric: str
    metrics: tuple[str, ...]
    counting: Counting
    axis: Axis
    base: Base | None
    steps_per_epoch: int | None
    window: Window
    points: int
    first_step: int
    last_step: int
    cadence: int
    first_value: float
    last_value: float
    resolution: float
    gaps: tuple[tuple[int, int], ...]
    duplicates: int
    non_finite_steps: tuple[int, ...]
    ignored_lines: int
    notes: tuple[str, ...]
