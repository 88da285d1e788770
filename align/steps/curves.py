"""Loss logs put on one axis, the true global step from 1, and two curves paired at their common steps.

Nothing is dropped unseen: repeated, replaced and unordered points are counted in the notes, NaN stays a point of
its step, and values that are means over other spans of steps are refused instead of compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.core.curves import EPOCH_MEAN, RAW, Curve, PairedCurves
from align.errors import MetricMissingError, UnlikeCurvesError
from align.steps.numbering import number_steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from align.core.curves import AxisHints, Floats, Integers, LossLog, Series


@dataclass(frozen=True, slots=True, eq=False)
class KeptPoints:
    """Which points of a log stand on the curve, in the order of steps, and how many were printed again later."""

    index: Integers
    duplicates: int
    notes: tuple[str, ...]


def place_on_axis(log: LossLog, metric: str = "loss", hints: AxisHints | None = None) -> Curve:
    """Put a metric of a log on the global step. Raises MetricMissingError, StepsPerEpochError."""
    series = find_series(log, metric)
    numbering = number_steps(log, series, hints)
    kept = latest_points(numbering.steps, series.values)
    return Curve(
        label=log.label,
        metric=metric,
        steps=numbering.steps[kept.index],
        values=series.values[kept.index],
        resolution=series.resolution[kept.index],
        window=series.window,
        axis=numbering.axis,
        notes=(*log.notes, *numbering.notes, *kept.notes),
        base_guessed=numbering.base_guessed,
        steps_per_epoch=numbering.steps_per_epoch,
        skipped=None if log.table.skipped is None else log.table.skipped[series.rows][kept.index],
    )


def find_series(log: LossLog, metric: str) -> Series:
    """Return a metric of a log, under whatever name it has there; raises MetricMissingError."""
    series = log.series(metric)
    if series is None:
        raise MetricMissingError(log.label, metric, sorted(log.table.metrics))
    return series


def latest_points(steps: Integers, values: Floats) -> KeptPoints:
    """Keep one point a step, the latest, in the order of steps.

    A point printed again with the same value is dropped. Where a step comes again with another value the training was
    resumed there: all that stood before it from that step on belongs to the abandoned run. Points that are only
    out of order are sorted.
    """
    index = _without_repeats(steps, values)
    notes = [f"{len(steps) - len(index)} points are printed twice with the same value"] * (len(index) < len(steps))
    if len(np.unique(steps[index])) < len(index):
        resumed = index[_not_resumed_later(steps[index])]
        notes.append(_resumed_note(steps, index, resumed))
        index = resumed
    elif np.any(np.diff(steps[index]) < 0):
        notes.append("the points are not in the order of their steps; they were sorted")
        index = index[np.argsort(steps[index], kind="stable")]
    return KeptPoints(index, len(steps) - len(index), tuple(notes))


def pair_curves(reference: Curve, candidate: Curve, last_step: int | None = None) -> PairedCurves:
    """Pair two curves at their common steps, up to `last_step` if given; there may be none.

    Raises UnlikeCurvesError if one counts epochs and the other steps, or if values are means over other spans.
    """
    _check_axes(reference, candidate)
    left, right = (until(curve.steps, last_step) for curve in (reference, candidate))
    steps, at_left, at_right = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    like = _like_windows(reference, candidate, at_left, at_right)
    steps, at_left, at_right = steps[like], at_left[like], at_right[like]
    notes = []
    if not like.all():
        notes.append(f"{int((~like).sum())} common steps left out: their values are means over other spans of steps")
    resolution = reference.resolution[at_left] + candidate.resolution[at_right]
    return PairedCurves(
        steps=steps,
        reference=reference.values[at_left],
        candidate=candidate.values[at_right],
        widening=resolution / 2,
        unmatched_reference=len(left) - len(steps),
        unmatched_candidate=len(right) - len(steps),
        notes=tuple(notes),
    )


def cadence(steps: Integers) -> int:
    """Return the usual distance between points, 1 where there is only one."""
    return int(np.median(np.diff(steps))) or 1 if len(steps) > 1 else 1


def _without_repeats(steps: Integers, values: Floats) -> Integers:
    """Return the indices, in file order, of the first of each (step, value); NaN equals NaN."""
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    order = np.lexsort((bits, steps))
    repeated = (np.diff(steps[order]) == 0) & (np.diff(bits[order]) == 0)
    return np.sort(order[np.append(True, ~repeated)])


def _not_resumed_later(steps: Integers) -> Integers:
    """Return the indices of points that no later point of the same or an earlier step replaces."""
    smallest_after = np.append(np.minimum.accumulate(steps[::-1])[::-1][1:], np.iinfo(np.int64).max)
    return np.flatnonzero(steps < smallest_after)


def _resumed_note(steps: Integers, before: Integers, after: Integers) -> str:
    back = steps[before][1:][np.diff(steps[before]) <= 0]
    abandoned = np.setdiff1d(steps[before], steps[after])
    text = f"the log goes back {len(back)} times (first to step {int(back[0])}): later points replace earlier ones"
    return text + (f", {len(abandoned)} steps of abandoned runs are left out" if len(abandoned) else "")


def _check_axes(reference: Curve, candidate: Curve) -> None:
    if reference.axis != candidate.axis:
        by_epoch, side = (reference, "reference") if reference.axis == "epoch" else (candidate, "candidate")
        raise UnlikeCurvesError(
            reference.label,
            candidate.label,
            f"{by_epoch.label} counts epochs, the other steps",
            f"give the number of steps in an epoch with --{side}-steps-per-epoch",
        )


def until(steps: Integers, last_step: int | None) -> Integers:
    """Leave out the increasing steps after `last_step`, if it is given."""
    return steps if last_step is None else steps[: np.searchsorted(steps, last_step, "right")]


def _like_windows(reference: Curve, candidate: Curve, at_left: Integers, at_right: Integers) -> NDArray[np.bool_]:
    """Tell for each common step whether both values cover the same steps; raises UnlikeCurvesError if none does."""
    if (reference.window == EPOCH_MEAN) != (candidate.window == EPOCH_MEAN):
        like = np.zeros(len(at_left), np.bool_)
    elif reference.window == EPOCH_MEAN or reference.window == candidate.window == RAW:
        return np.ones(len(at_left), np.bool_)
    else:
        like = _span_starts(reference)[at_left] == _span_starts(candidate)[at_right]
    if not like.any() and (len(like) or EPOCH_MEAN in (reference.window, candidate.window)):
        raise UnlikeCurvesError(
            reference.label,
            candidate.label,
            f"a value of the reference is {_span(reference)}, one of the candidate {_span(candidate)}",
            "log both sides the same way: every step, or means over the same number of steps",
        )
    return like


def _span_starts(curve: Curve) -> Integers:
    """Return for each point the step before the first one that its value covers."""
    return curve.steps - 1 if curve.window == RAW else np.concatenate([[0], curve.steps[:-1]])


def _span(curve: Curve) -> str:
    return {
        "raw": "the loss of one step",
        "mean of last": f"the mean of the last {curve.window.length} steps",
        "since last print": f"the mean since the last print ({cadence(curve.steps)} steps)",
        "epoch so far": "the mean of the epoch so far",
        "epoch mean": "the mean of an epoch",
    }[curve.window.kind]
