"""Loss logs put on one axis, the true global step from 1, and two curves paired at their common steps.

Nothing is dropped unseen: repeated, replaced and unordered points are counted in the notes, NaN stays a point of
its step, and values that are means over other spans of steps are refused instead of compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.axis.global_steps import number_steps
from align.curves.axis.match_windows import match_windows
from align.curves.axis.skipped_steps import compare_skips, skips_of, until_step, with_skipped
from align.curves.log_parts.deduplicate_steps import deduplicate_steps
from align.curves.loss_log import RAW, Curve, PairedCurves
from align.curves.reading.jobs import choose_job
from align.errors import MetricMissingError, MixedProcessesError, UnlikeCurvesError, UnorderedLogError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.curves.loss_log import AxisHints, Integers, LossLog, Series


def place_on_axis(log: LossLog, metric: str = "loss", hints: AxisHints | None = None) -> Curve:
    """Put a metric of a log on the global step.

    Raises MetricMissingError, StepsPerEpochError, MixedJobsError, MixedProcessesError, UnorderedLogError.
    """
    log = choose_job(log)
    series, printed = with_skipped(log, find_series(log, metric), metric)
    numbering = number_steps(log, series, hints)
    kept = deduplicate_steps(numbering.steps, series.values, headed=log.headed)
    if kept.each > 1:
        raise MixedProcessesError(log.label, metric, kept.each)
    if kept.unclear:
        raise UnorderedLogError(log.label, metric, kept.unclear)
    at = slice(None) if kept.whole else kept.index
    steps, printed = numbering.steps[at], printed[at]
    curve = Curve(
        label=log.label,
        metric=metric,
        steps=steps,
        values=series.values[at],
        resolution=series.resolution[at],
        window=series.window if series.phase == "training" else RAW,
        axis=numbering.axis,
        notes=(*log.notes, *numbering.notes, *kept.notes),
        base_guessed=numbering.base_guessed,
        base_given=None if hints is None else hints.base,
        steps_per_epoch=numbering.steps_per_epoch,
        skips=skips_of(log, series.rows[at], steps),
        phase=series.phase,
        resumed=kept.resumed,
    )
    return curve if printed.all() or not printed.any() else curve.take(printed)


def find_series(log: LossLog, metric: str) -> Series:
    """Return a metric of a log, under whatever name it has there; raises MetricMissingError."""
    series = log.series(metric)
    if series is None:
        raise MetricMissingError(log.label, metric, sorted(log.table.metrics))
    return series


def pair_curves(reference: Curve, candidate: Curve, last_step: int | None = None) -> PairedCurves:
    """Pair two curves at their common steps, up to `last_step` if given; there may be none.

    Raises UnlikeCurvesError if one counts epochs and the other steps, or if values are means over other spans.
    """
    _check_axes(reference, candidate)
    whole = cut_after(reference, last_step), cut_after(candidate, last_step)
    like = match_windows(*whole)
    left, right = like.reference, like.candidate
    common = left, right
    if not np.array_equal(left.steps, right.steps):
        at_left, at_right = common_places(left.steps, right.steps)
        common = left.take(at_left), right.take(at_right)
    return PairedCurves(
        steps=common[0].steps,
        reference=common[0].values,
        candidate=common[1].values,
        widening=(common[0].resolution + common[1].resolution) / 2,
        unmatched_reference=like.unused_reference + len(left.steps) - len(common[0].steps),
        unmatched_candidate=like.unused_candidate + len(right.steps) - len(common[1].steps),
        notes=(*like.notes, *_skipped_notes(*whole)),
    )


def common_places(one: Integers, other: Integers) -> tuple[Integers, Integers]:
    """Return the places of the common steps in two arrays of increasing steps."""
    if np.array_equal(one, other):
        return np.arange(len(one)), np.arange(len(one))
    at = np.searchsorted(one, other)
    common = np.flatnonzero(at < len(one))
    common = common[one[at[common]] == other[common]]
    return at[common], common


def cadence(steps: Integers) -> int:
    """Return the usual distance between points, 1 where there is only one."""
    return int(np.median(np.diff(steps))) or 1 if len(steps) > 1 else 1


def _check_axes(reference: Curve, candidate: Curve) -> None:
    """Refuse epochs against steps; what the other log tells of its epochs is length_hint, not borrowed."""
    if reference.axis == candidate.axis:
        return
    sides = ("reference", reference), ("candidate", candidate)
    (side, by_epoch), (other, by_step) = sides if reference.axis == "epoch" else sides[::-1]
    reason = say("log_fault.epochs_and_steps", label=by_epoch.label)
    hint = say("log_fault.length_of_epoch", side=side, other=other, length=by_step.steps_per_epoch)
    raise UnlikeCurvesError(reference.label, candidate.label, reason, hint)


def steps_until(steps: Integers, last_step: int | None) -> Integers:
    """Leave out the increasing steps after `last_step`, if it is given."""
    return steps if last_step is None else steps[: np.searchsorted(steps, last_step, "right")]


def cut_after(curve: Curve, last_step: int | None) -> Curve:
    """Leave out the points after `last_step`, if it is given."""
    if last_step is None:
        return curve
    kept = curve.take(slice(len(steps_until(curve.steps, last_step))))
    return replace(kept, skips=until_step(curve.skips, last_step))


def _skipped_notes(reference: Curve, candidate: Curve) -> Iterator[str]:
    """Tell of steps that changed no weight on one side alone: from there on that side is behind."""
    apart = compare_skips(reference.skips, candidate.skips)
    for side, lone in (("reference", apart.reference), ("candidate", apart.candidate)):
        if lone.steps:
            key = "skip_note.one_side" if lone.exact else "skip_note.one_side_by_then"
            yield sentence(key, count=lone.steps, side=side, first=lone.first)
    if apart.shared:
        exact = all(curve.skips is None or bool(curve.skips.whole.all()) for curve in (reference, candidate))
        yield sentence("skip_note.both_sides" if exact else "skip_note.both_sides_untold", count=apart.shared)
