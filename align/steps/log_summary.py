"""What was understood of one log, for a user who wants to know before comparing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.curves import AxisHints, LogSummary
from align.steps.curves import cadence, find_series, latest_points
from align.steps.loss_holes import find_holes
from align.steps.numbering import number_steps

if TYPE_CHECKING:
    from align.core.curves import LossLog


def summarize_log(log: LossLog, metric: str = "loss", hints: AxisHints | None = None) -> LogSummary:
    """Tell how a log counts and what it holds. Raises MetricMissingError, StepsPerEpochError."""
    series = find_series(log, metric)
    numbering = number_steps(log, series, hints)
    kept = latest_points(numbering.steps, series.values)
    steps, values = numbering.steps[kept.index], series.values[kept.index]
    return LogSummary(
        label=log.label,
        format=log.format,
        metric=metric,
        metrics=tuple(sorted(log.table.metrics)),
        counting=log.counting,
        axis=numbering.axis,
        base=numbering.base,
        steps_per_epoch=numbering.steps_per_epoch,
        window=series.window,
        points=len(steps),
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        cadence=cadence(steps),
        first_value=float(values[0]),
        last_value=float(values[-1]),
        resolution=float(series.resolution.max()),
        gaps=tuple((hole.before, hole.after) for hole in find_holes(steps)),
        duplicates=kept.duplicates,
        non_finite_steps=tuple(steps[~np.isfinite(values)].tolist()),
        ignored_lines=log.ignored_lines,
        notes=(*log.notes, *numbering.notes, *kept.notes),
    )
