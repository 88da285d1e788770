"""What was understood of one log, for a user who wants to know before comparing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.axis.global_steps import number_steps
from align.curves.axis.missing_steps import find_missing_steps
from align.curves.axis.place_on_axis import cadence, find_series, place_on_axis
from align.curves.axis.printed_zeros import zeros_as_nan
from align.curves.axis.skipped_steps import printed_steps, skipped_runs
from align.curves.loss_log import AxisHints, LogSummary, MetricSummary
from align.errors import UnknownEpochLengthError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.loss_log import LossLog


def summarize_log(log: LossLog, metric: str = "loss", hints: AxisHints | None = None) -> LogSummary:
    """Tell how a log counts and what it holds, also where its global steps cannot be known.

    Raises MetricMissingError, StepsPerEpochError (what was given contradicts the log), MixedJobsError.
    """
    series, known = find_series(log, metric), hints or AxisHints()
    unknown: tuple[str, ...] = ()
    try:
        number_steps(log, series, known)
    except UnknownEpochLengthError as error:
        known = replace(known, assumed=True)
        unknown = (sentence("loss_note.steps_unknown", reason=error.reason, advice=error.hint),)
    curve = place_on_axis(log, metric, known)
    norms = place_on_axis(log, "grad_norm", known) if log.series("grad_norm") is not None else None
    _, zeros = zeros_as_nan(curve, norms)
    numbering = number_steps(log, series, known)
    runs = skipped_runs(curve)
    return LogSummary(
        label=log.label,
        format=log.format,
        metric=metric,
        metrics=_metrics(log),
        counting=log.counting,
        axis=curve.axis,
        base=numbering.base,
        steps_per_epoch=None if unknown else curve.steps_per_epoch,
        window=curve.window,
        points=len(curve.steps),
        first_step=int(curve.steps[0]),
        last_step=int(curve.steps[-1]),
        cadence=cadence(curve.steps),
        first_value=float(curve.values[0]),
        last_value=float(curve.values[-1]),
        resolution=float(series.resolution.max()),
        gaps=tuple((hole.before, hole.after) for hole in find_missing_steps(printed_steps(curve))),
        duplicates=len(series.values) - len(curve.steps),
        non_finite_steps=tuple(curve.steps[~np.isfinite(curve.values)].tolist()),
        skipped_steps=tuple(zip(runs.first.tolist(), runs.last.tolist(), runs.counts.tolist(), strict=True)),
        ignored_lines=log.ignored_lines,
        notes=(*unknown, *filter(None, (zeros,)), *curve.notes),
        steps_told=not unknown,
    )


def _metrics(log: LossLog) -> tuple[MetricSummary, ...]:
    named = sorted(log.table.metrics.items())
    return tuple(MetricSummary(name, len(one.values), one.window, one.phase) for name, one in named)
