"""Loss logs put on one axis, the true global step from 1, and two curves paired at their common steps.

Nothing is dropped unseen: repeated, replaced and unordered points are counted in the notes, NaN stays a point of
its step, and values that are means over other spans of steps are refused instead of compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.global_steps import (
    compare_skips,
    fill_skipped,
    group_skips,
    left_out_within,
    number_steps,
    places_after_missing_steps,
    skips_of,
    until_step,
    usual_distance,
    with_skipped,
)
from align.curves.jobs import choose_job
from align.curves.log_parts.table_builder import deduplicate_steps
from align.curves.loss_log import EPOCH_MEAN, OF_THE_MOMENT, RAW, Curve, PairedCurves, Window, same_metric
from align.errors import (
    GroupedStepsError,
    MetricMissingError,
    MixedProcessesError,
    UnlikeCurvesError,
    UnorderedLogError,
    UsageError,
)
from align.words.catalogue import joined, say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.curves.loss_log import AxisHints, Booleans, Floats, Integers, LossLog, Series


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


def common_places(first: Integers, second: Integers) -> tuple[Integers, Integers]:
    """Return the places of the common steps in two arrays of increasing steps."""
    if np.array_equal(first, second):
        return np.arange(len(first)), np.arange(len(first))
    at = np.searchsorted(first, second)
    common = np.flatnonzero(at < len(first))
    common = common[first[at[common]] == second[common]]
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


# The rawer of two curves smoothed to the spans of the other, so that like is compared with like.
#
# Nothing is compared silently that is a mean over other steps: what cannot be smoothed exactly is left out and
# counted, and where nothing is left it is refused with the reason.


@dataclass(frozen=True, slots=True, eq=False)
class MatchedCurves:
    """Two curves of which the values at common steps are over the same steps.

    `unused_...` counts the points of a side that went into no value any more; `notes` says what was done.
    """

    reference: Curve
    candidate: Curve
    unused_reference: int = 0
    unused_candidate: int = 0
    notes: tuple[str, ...] = ()


def match_windows(reference: Curve, candidate: Curve) -> MatchedCurves:
    """Smooth the rawer curve to the spans of the other; raises UnlikeCurvesError where not one value can be made."""
    if reference.window == candidate.window and (reference.axis == "epoch" or reference.window == RAW):
        return MatchedCurves(reference, candidate)
    # No median can be made of values that are means, nor of other medians.
    medians = "median of last" in (reference.window.kind, candidate.window.kind)
    if reference.axis == "epoch" or (medians and reference.window != candidate.window):
        raise _unlike(reference, candidate)
    if reference.window == candidate.window and _have_the_same_spans(reference, candidate):
        return MatchedCurves(reference, candidate)
    left, right = _smoothed(reference, candidate), _smoothed(candidate, reference)
    if not left.used and not right.used:
        if _reach_into_each_other(reference, candidate):
            raise _unlike(reference, candidate, skipped=bool(left.unlike + right.unlike))
        return MatchedCurves(reference, candidate)
    if len(right.curve.steps) > len(left.curve.steps):
        notes = tuple(_notes(("candidate", candidate), right, ("reference", reference)))
        return MatchedCurves(reference, right.curve, 0, len(candidate.steps) - right.used, notes)
    notes = tuple(_notes(("reference", reference), left, ("candidate", candidate)))
    return MatchedCurves(left.curve, candidate, len(reference.steps) - left.used, 0, notes)


def _have_the_same_spans(reference: Curve, candidate: Curve) -> bool:
    """Tell whether each value is over the same steps, all of them known, as that of the other side."""
    if reference.skips or candidate.skips or not np.array_equal(reference.steps, candidate.steps):
        return False
    known = spans_of(reference).starts
    return bool((known != UNKNOWN).all()) and np.array_equal(known, spans_of(candidate).starts)


def _smoothed(fine: Curve, wide: Curve) -> Averages:
    """Make of the values of a finer curve those of the wider that can be made; a median is made of nothing else."""
    fine, printed = fill_skipped(fine)
    spans = spans_of(fine)
    tiles = tile(spans, spans_of(wide))
    if MEDIAN in (fine.window.kind, wide.window.kind):
        tiles = tiles.take(~tiles.many & (fine.window.kind == wide.window.kind))
    starts = spans.starts[tiles.first]
    left_out, skipped = (left_out_within(curve.skips, starts, tiles.ends) for curve in (wide, fine))
    if "epoch" in wide.window.kind:
        left_out = np.zeros_like(left_out)
    alike = ~tiles.many | (left_out == 0) | (left_out == skipped)
    made = average(fine, tiles.take(alike), left_out[alike] > 0, printed)
    return made._replace(curve=replace(made.curve, window=wide.window), unlike=int(np.count_nonzero(~alike)))


def _reach_into_each_other(first: Curve, second: Curve) -> bool:
    """Tell whether a value of one is about steps of which a value of the other is, too."""
    if not len(first.steps) or not len(second.steps):
        return False
    starts = [max(int(spans_of(curve).starts[0]), 0) for curve in (first, second)]
    return bool(first.steps[-1] > starts[1] and second.steps[-1] > starts[0])


def _notes(fine: tuple[str, Curve], averages: Averages, wide: tuple[str, Curve]) -> Iterator[str]:
    (side, curve), (other, like) = fine, wide
    if averages.means:
        yield sentence("window_note.averaged", side=side, other=other, kind=_kind(like))
    if averages.means and averages.curve.skips is not None and like.skips is not None:
        yield sentence("window_note.skipped_left_out")
    if averages.unlike:
        yield sentence("window_note.skipped_others", count=averages.unlike, side=side, other=other)
    within = np.count_nonzero((like.steps >= curve.steps[0]) & (like.steps <= curve.steps[-1]))
    lost = within - len(averages.curve.steps) - averages.unlike
    if lost > 0:
        yield sentence("window_note.lacks_steps", count=lost, side=side, other=other)


def _unlike(reference: Curve, candidate: Curve, *, skipped: bool = False) -> UnlikeCurvesError:
    """Return why no value of one can be made of those of the other, and what would help."""
    reasons = [sentence("unlike_reason.values", reference=_span(reference), candidate=_span(candidate))]
    hint = say("unlike_curves_hint.log_alike")
    if skipped:
        reasons.append(sentence("unlike_reason.skipped"))
        hint = say("unlike_curves_hint.log_every_step")
    for side, curve in (("reference", reference), ("candidate", candidate)):
        if curve.axis == "step" and "epoch" in curve.window.kind and np.all(spans_of(curve).starts == UNKNOWN):
            reasons.append(sentence("unlike_reason.epoch_length", side=side))
            hint = say("unlike_curves_hint.epoch_length", side=side)
        elif curve.axis == "epoch" and curve.window == RAW:
            hint = say("unlike_curves_hint.epoch_mean", side=side)
        elif curve.axis == "step" and curve.window == RAW and usual_distance(curve.steps) > 1:
            reasons.append(sentence("unlike_reason.too_few", side=side, every=usual_distance(curve.steps)))
    return UnlikeCurvesError(reference.label, candidate.label, joined("; ", reasons), hint)


def _span(curve: Curve) -> str:
    if curve.window.kind != "since last print" or len(curve.steps) < 2:
        return _kind(curve)
    return sentence("window_kind.apart", kind=_kind(curve), distance=usual_distance(curve.steps))


def _kind(curve: Curve) -> str:
    kind = curve.window.kind.replace(" ", "_")
    return sentence(f"window_kind.{kind}", **({"length": curve.window.length} if kind.endswith("of_last") else {}))


# Curves of runs whose steps see unlike numbers of samples, on one axis: several steps taken as one.
#
# With half the batch size, or with accumulation counted differently, two steps of one log are one step of the other.
# A loss is then the mean over the group; what is set or measured at a step, such as a learning rate, is that of its
# last.


def group_sizes(steps_per: tuple[int, int]) -> tuple[int, int]:
    """Return how many steps of the reference and of the candidate are taken as one.

    (2, 1): two steps of the reference see as many samples as one of the candidate. Raises UsageError.
    """
    if min(steps_per) < 1:
        raise UsageError.of("log_usage.steps_per", found=":".join(map(str, steps_per)))
    common = gcd(*steps_per)
    return steps_per[0] // common, steps_per[1] // common


def group_steps(curve: Curve, size: int) -> Curve:
    """Take every `size` steps as one; epochs stay what they are.

    Values whose steps are no whole groups are left out with a note; raises GroupedStepsError if none is left.
    """
    if size == 1 or curve.axis == "epoch":
        return curve
    of_a_moment = curve.phase == "validation" or same_metric(curve.metric) in OF_THE_MOMENT
    if of_a_moment:
        grouped = curve.take(curve.steps % size == 0)
    else:
        wide = _whole_groups(curve, size)
        whole = (wide.starts % size == 0) & (wide.ends % size == 0)
        grouped = average(curve, tile(spans_of(curve), Spans(wide.starts[whole], wide.ends[whole]))).curve
    if not len(grouped.steps):
        averaged = curve.window == RAW and not of_a_moment
        apart = usual_distance(curve.steps) if averaged else None
        raise GroupedStepsError(curve.label, curve.metric, size, int(curve.steps[-1]), apart)
    length = curve.steps_per_epoch
    return replace(
        grouped,
        steps=grouped.steps // size,
        skips=group_skips(curve.skips, size),
        window=Window(curve.window.kind, max(1, curve.window.length // size)),
        steps_per_epoch=None if length is None or length % size else length // size,
        grouped=curve.grouped * size,
        notes=(*curve.notes, sentence("axis_note.grouped", size=size)),
    )


def _whole_groups(curve: Curve, size: int) -> Spans:
    """Return the spans to be made: groups of raw steps, and means since the last print that ended with a group.

    A median over single steps is not one over groups: none is made.
    """
    spans = spans_of(curve)
    if curve.window.kind == MEDIAN:
        return Spans(spans.starts[:0], spans.ends[:0])
    if curve.window.kind == "raw":
        ends: Integers = np.unique(-(-curve.steps // size)) * size
        return Spans(ends - size, ends)
    if curve.window.kind == "since last print" or (curve.window == EPOCH_MEAN and curve.steps_per_epoch is None):
        at = spans.ends % size == 0
        return Spans(np.append(spans.starts[:1], spans.ends[at])[:-1], spans.ends[at])
    return spans


# Which steps each value of a curve is the mean of, and means over wider spans made from them.
#
# A mean is made only of values that fill its span, without a gap or an overlap, so it is what a log would have
# printed but for rounding. A span that a log does not tell, as after a lost line, is never guessed.

UNKNOWN = -1  # format: the mark of a start that is not known
MEDIAN = "median of last"


class Spans(NamedTuple):
    """Value i is the mean over the steps in (starts[i], ends[i]]; a start is UNKNOWN where the log does not tell it."""

    starts: Integers
    ends: Integers


class Tiles(NamedTuple):
    """Spans that values of a finer curve fill: values [first, stop) fill the one that stops at `ends`."""

    first: Integers
    stop: Integers
    ends: Integers

    @property
    def many(self) -> Booleans:
        """Tell which spans take more than one value."""
        return self.stop - self.first > 1

    def take(self, which: Booleans) -> Tiles:
        """Return some of them."""
        return Tiles(self.first[which], self.stop[which], self.ends[which])


class Averages(NamedTuple):
    """A curve over wider spans; `used` counts the points that went in, `means` the values made of several.

    `unlike` counts those that were not made, as other steps are left out of them on the other side.
    """

    curve: Curve
    used: int
    means: int
    unlike: int = 0


def spans_of(curve: Curve) -> Spans:
    """Return the span of each value on the step axis, by the curve's window."""
    steps, kind, length = curve.steps, curve.window.kind, curve.steps_per_epoch
    if kind == "raw":
        return Spans(steps - 1, steps)
    if kind in ("mean of last", MEDIAN):
        return Spans(np.maximum(steps - curve.window.length, 0), steps)
    if kind == "since last print" or (kind == "epoch mean" and length is None):
        return Spans(_since_previous(curve), steps)
    return Spans(np.full(len(steps), UNKNOWN) if length is None else (steps - 1) // length * length, steps)


def tile(fine: Spans, wide: Spans) -> Tiles:
    """Find the wide spans that fine ones fill, side by side; one of the same span does so alone."""
    if not len(fine.ends):
        return Tiles(fine.ends, fine.ends, fine.ends)
    last = np.minimum(np.searchsorted(fine.ends, wide.ends), len(fine.ends) - 1)
    after_start = np.minimum(np.searchsorted(fine.ends, wide.starts, "right"), last)
    first = np.where(fine.starts[last] == wide.starts, last, after_start)
    breaks = np.concatenate([[0], np.cumsum(fine.starts[1:] != fine.ends[:-1])])
    filled = (fine.ends[last] == wide.ends) & (fine.starts[first] == wide.starts) & (breaks[first] == breaks[last])
    filled &= wide.starts != UNKNOWN
    return Tiles(first[filled], last[filled] + 1, wide.ends[filled])


def average(curve: Curve, tiles: Tiles, without: Booleans | None = None, printed: Booleans | None = None) -> Averages:
    """Average a curve's values over the spans that they fill, each by the number of steps that it stands for.

    `without` tells which means are to be made without the steps that changed no weight; all others are made with them,
    where they have values: those `printed`. A mean of rounded values is rounded no more than they are.
    """
    printed = np.ones(len(curve.steps), np.bool_) if printed is None else printed
    weights = np.where(printed, _weights(curve, skipped=True), np.nan)
    total = range_sums(weights, tiles)
    values, resolution = (_means(column, weights, tiles, total) for column in (curve.values, curve.resolution))
    if without is not None and without.any():
        weights = _weights(curve, skipped=False)
        part = tiles.take(without)
        total[without] = range_sums(weights, part)
        values[without] = _means(curve.values, weights, part, total[without])
        resolution[without] = _means(curve.resolution, weights, part, total[without])
    usable = np.where(tiles.many, total > 0, printed[tiles.first])
    tiles = tiles.take(usable)
    resumed = None if curve.resumed is None else range_sums(curve.resumed.astype(np.float64), tiles) > 0
    columns = {"values": values[usable], "resolution": resolution[usable]}
    made = replace(curve, steps=tiles.ends, resumed=resumed, **columns)
    return Averages(made, _count_used(tiles, printed), int(np.count_nonzero(tiles.many)))


def range_sums(values: Floats, tiles: Tiles) -> Floats:
    """Return sum(values[first:stop]) for many ranges that may overlap.

    Sums of 1, 2, 4, ... neighbours are put together, so that one NaN or huge value stays in the ranges that hold it,
    which it would not in differences of running sums.
    """
    sums, at, left = np.zeros(len(tiles.first)), tiles.first.copy(), tiles.stop - tiles.first
    blocks, width = values, 1
    while left.any():
        odd = np.flatnonzero(left & 1)
        sums[odd] += blocks[at[odd]]
        at[odd] += width
        left >>= 1
        blocks, width = blocks[:-width] + blocks[width:], 2 * width
    return sums


def _weights(curve: Curve, *, skipped: bool) -> Floats:
    """Count the steps of each value; NaN for a printed mean that lacks some of them, where it should not.

    A printed mean is one without the `skipped` steps, which the value of a single step is not.
    """
    spans = spans_of(curve)
    weights = (spans.ends - spans.starts).astype(np.float64)
    lacking = left_out_within(curve.skips, spans.starts, spans.ends)
    if not skipped:
        return np.asarray(weights - lacking)
    if curve.window != RAW:
        weights[lacking > 0] = np.nan
    return weights


def _since_previous(curve: Curve) -> Integers:
    """Return the step of the point before each, 0 before the first; UNKNOWN after a resume or a hole."""
    starts: Integers = np.append(0, curve.steps)[: len(curve.steps)]
    starts[places_after_missing_steps(curve.steps)] = UNKNOWN
    if curve.resumed is not None:
        starts[curve.resumed] = UNKNOWN
    return starts


def _means(values: Floats, weights: Floats, tiles: Tiles, total: Floats) -> Floats:
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        weighted = np.where(weights == 0.0, 0.0, values * weights)
        means: Floats = np.where(tiles.many, range_sums(weighted, tiles) / total, values[tiles.first])
    return means


def _count_used(tiles: Tiles, printed: Booleans) -> int:
    """Count the printed values that are in one range or more."""
    count = len(printed) + 1
    begun = np.bincount(tiles.first, minlength=count) - np.bincount(tiles.stop, minlength=count)
    return int(np.count_nonzero(np.cumsum(begun)[:-1] * printed))
