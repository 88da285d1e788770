"""A result of so many points as can be looked at: of each stretch the extremes are kept, and all that was named.

Verdicts, criteria and counts come from all points; only what is printed, drawn and written as JSON is thinned.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.axis.skipped_steps import skipped_runs
from align.curves.criteria_thresholds import MOST_POINTS, POINTS_AT_ENDS, STRETCHES
from align.curves.loss_log import Skips
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.curve_result import CurveComparison, CurvePoints
    from align.curves.loss_log import Booleans, Curve, Floats, Integers


def thin_points(comparison: CurveComparison) -> CurveComparison:
    """Keep at most about `MOST_POINTS` points of each curve and of the pairs."""
    first, between = comparison.first_divergent_step, comparison.divergent_steps
    parted = [first] * (first is not None) + ([between.first, between.last] if between else [])
    named = np.array([event.step for event in comparison.events] + parted, np.int64)
    return replace(
        comparison,
        points=_thinned_points(comparison.points, named),
        reference=_thinned_curve(comparison.reference, named),
        candidate=_thinned_curve(comparison.candidate, named),
    )


def _thinned_points(points: CurvePoints, named: Integers) -> CurvePoints:
    if len(points.step) <= MOST_POINTS:
        return points
    kept = _kept(points.step, named, points.reference, points.candidate, points.difference)
    kept[np.flatnonzero(~points.within)[:POINTS_AT_ENDS]] = True
    columns = {one.name: getattr(points, one.name)[kept] for one in fields(points) if one.name != "count"}
    return replace(points, **columns)


def _thinned_curve(curve: Curve, named: Integers) -> Curve:
    if len(curve.steps) <= MOST_POINTS:
        return curve
    kept = _kept(curve.steps, named, curve.values)
    note = sentence("loss_note.thinned", count=int(np.count_nonzero(~kept)), total=len(kept))
    runs = skipped_runs(curve)
    skips = curve.skips and Skips(runs.first - 1, runs.last, runs.counts)
    return replace(curve.take(kept), skips=skips, notes=(*curve.notes, note))


def _kept(steps: Integers, named: Integers, *columns: Floats) -> Booleans:
    """Mark both ends, what is named with its neighbours, what is not finite first, and each stretch's extremes."""
    kept = np.zeros(len(steps), np.bool_)
    kept[:POINTS_AT_ENDS] = kept[-POINTS_AT_ENDS:] = True
    places = np.searchsorted(steps, named)
    for offset in (-1, 0, 1):
        kept[np.clip(places + offset, 0, len(steps) - 1)] = True
    for column in columns:
        kept[np.flatnonzero(~np.isfinite(column))[:POINTS_AT_ENDS]] = True
        for values in (column, -column):
            kept[_lowest_of_stretches(values)] = True
    return kept


def _lowest_of_stretches(values: Floats) -> Integers:
    length = -(-len(values) // STRETCHES)
    padded = np.full(STRETCHES * length, np.inf)
    padded[: len(values)] = np.where(np.isfinite(values), values, np.inf)
    places: Integers = padded.reshape(STRETCHES, length).argmin(axis=1) + np.arange(STRETCHES) * length
    return places[places < len(values)]
