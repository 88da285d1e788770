"""Which global step, counted from 1, each record of a log stands for.

What the user says comes first, then what the format knows, then what the data shows. A guess is noted; where the
data leaves the answer open it is refused, as a curve moved by one step fits nothing and shows no reason. What the first
step is called and how long an epoch is, the training loss tells for all metrics of a log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.log_parts.record_lines import distance_from_zero, passes_are, where_passes_begin
from align.curves.loss_log import AxisHints, Skips, is_loss
from align.curves.thresholds import (
    EPOCH_SHARE_DIGITS,
    EPOCH_SHARE_ROUNDING,
    LAST_STEP_SHARE,
    NARROW_DISTANCES,
    PERIODS_TRIED,
    SHARE_LEAST_DECIMALS,
    SHARE_MOST_DECIMALS,
    SKIPS_AT_THE_END,
)
from align.errors import StepsPerEpochError, UnknownEpochLengthError, UnorderedLogError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from align.curves.loss_log import Axis, Base, Booleans, Curve, Floats, Integers, LossLog, Series


@dataclass(frozen=True, slots=True, eq=False)
class Numbering:
    """The true step (epoch, if `axis` says so) of each value of a metric, from 1, and how it was found.

    `base_guessed`: it is 1 only because the log shows no step 0, which may have been lost.
    """

    steps: Integers
    axis: Axis
    base: Base
    steps_per_epoch: int | None
    notes: tuple[str, ...]
    base_guessed: bool = False


def number_steps(log: LossLog, series: Series, hints: AxisHints | None = None) -> Numbering:
    """Number the values of a metric by the global step; raises StepsPerEpochError where that cannot be known."""
    hints = hints or AxisHints()
    if log.counting == "share of epochs" and log.table.shares is not None:
        shares = log.table.shares[series.rows]
        return _by_share(log, shares, _copies(shares, series.values), hints)
    numbering = _numbered(log, series, hints)
    return replace(numbering, base_guessed=numbering.base == 1 and log.base is hints.base is None)


def _numbered(log: LossLog, series: Series, hints: AxisHints) -> Numbering:
    loss = log.series("loss") or series
    base, notes = _base(log, _smallest(log, loss, series), hints, log.table.steps[loss.rows])
    printed = log.table.steps[series.rows] + (1 - base)
    length = _whole(log.label, hints.steps_per_epoch or log.steps_per_epoch)
    if log.counting == "epoch":  # a value of an epoch stands at its last step
        return Numbering(printed * (length or 1), "step" if length else "epoch", base, length, notes)
    if log.counting == "step in epoch" and log.table.epochs is not None:
        counted = _Epochs(log, log.table.epochs, base)
        return _inside_epochs(counted, loss, series, length, notes, assumed=hints.assumed)
    # No format knows how it counts.
    unsaid = log.counting == "global step" and log.base is None and log.table.epochs is None
    if unsaid and (epochs := _passes(log, loss, hints)) is not None:
        notes = (*notes, sentence("axis_note.passes", count=int(epochs.max()) + 1))
        return _inside_epochs(_Epochs(log, epochs, base), loss, series, length, notes, assumed=hints.assumed)
    if hints.steps_per_epoch is not None and "epoch" not in series.window.kind:
        notes = (*notes, sentence("axis_note.length_not_needed"))
    return Numbering(printed, "step", base, length, notes)


def _passes(log: LossLog, loss: Series, hints: AxisHints) -> Integers | None:
    """The epoch of each record, from 0, of a log whose steps start again with epochs that it does not number.

    None where they do not, or the losses show that the same run begins anew; raises UnorderedLogError where they leave
    open which of both it is, and the length of an epoch is not given either.
    """
    steps = log.table.steps[loss.rows]
    begins = where_passes_begin(steps)
    kind = passes_are(begins, loss.values) if len(begins) else "runs"
    if kind == "open" and hints.steps_per_epoch is None:
        raise UnorderedLogError(log.label, "loss", "passes")
    if not len(begins) or (kind == "runs" and hints.steps_per_epoch is None):
        return None
    epochs: Integers = np.searchsorted(loss.rows[begins], np.arange(len(log.table.steps)), side="right")
    return epochs


def _whole(label: str, length: float | None) -> int | None:
    """Return the length of an epoch as a whole number; raises StepsPerEpochError for a fraction."""
    if length is not None and length != int(length):
        raise StepsPerEpochError(label, say("log_fault.fraction", length=length))
    return None if length is None else int(length)


def _smallest(log: LossLog, loss: Series, series: Series) -> int:
    """Return the smallest step of a training record; a validation may come before the first."""
    smallest = int(log.table.steps[loss.rows].min())
    return smallest if series.phase == "validation" else min(smallest, int(log.table.steps[series.rows].min()))


def _base(log: LossLog, smallest: int, hints: AxisHints, steps: Integers) -> tuple[Base, tuple[str, ...]]:
    counted = "epoch" if log.counting == "epoch" else "step"
    base = log.base if hints.base is None else hints.base
    if base is not None and smallest >= base:
        return base, ()
    distance = 0 if smallest == 0 or base is not None else distance_from_zero(steps)
    assumed: Base = 0 if smallest == 0 or distance else 1
    if base is not None:
        return assumed, (sentence(f"counting_note.{counted}_zero_shown", base=base),)
    if distance:
        return 0, (sentence(f"counting_note.{counted}_one_less", distance=distance),)
    return assumed, (sentence(f"counting_note.{counted}_smallest", base=assumed, smallest=smallest),)


class _Epochs(NamedTuple):
    """A log that counts steps inside epochs, with the epoch of each record and what it calls the first."""

    log: LossLog
    epochs: Integers
    base: Base

    def places(self, series: Series) -> tuple[Integers, Integers]:
        """Return the epochs, from 0, and the steps in them, from 1."""
        first = 0 if self.log.base == 0 or int(self.epochs.min()) == 0 else 1
        return self.epochs[series.rows] - first, self.log.table.steps[series.rows] + (1 - self.base)

    def printed_lengths(self, loss: Series) -> Integers | None:
        """Return the steps of each epoch, from the first, as records tell them: one number if all have as many.

        None if no record tells it; raises StepsPerEpochError if they differ and one epoch has none, or two.
        """
        totals = self.log.table.totals
        known = None if totals is None else totals[loss.rows] > 0
        if totals is None or known is None or not known.any():
            return None
        printed = totals[loss.rows][known]
        if printed.min() == printed.max():
            return printed[:1]
        of_epochs = np.unique(np.stack([self.places(loss)[0][known], printed]), axis=1)
        if not np.array_equal(of_epochs[0], np.arange(of_epochs.shape[1])):
            reason = say("log_fault.unlike_totals", least=printed.min(), most=printed.max())
            raise StepsPerEpochError(self.log.label, reason)
        lengths: Integers = of_epochs[1]
        return lengths


def _inside_epochs(
    counted: _Epochs, loss: Series, series: Series, length: int | None, notes: tuple[str, ...], *, assumed: bool
) -> Numbering:
    """Count on over epochs: epochs * length + step; the loss tells the length if it is not known."""
    epochs_of_loss, inside_of_loss = counted.places(loss)
    epochs, inside = counted.places(series) if series.rows is not loss.rows else (epochs_of_loss, inside_of_loss)
    lengths = None if length else counted.printed_lengths(loss)
    if lengths is not None and len(lengths) > 1:
        return _by_lengths(counted, lengths, (epochs, inside), notes)
    length = length if lengths is None else int(lengths[0])
    if length is None and not epochs_of_loss.any() and not epochs.any():
        return Numbering(inside, "step", counted.base, None, notes)
    if length is None:
        length, inferred = _infer_length(counted.log, inside_of_loss, epochs_of_loss, assumed=assumed)
        notes = (*notes, *inferred)
    if int(inside.max()) > length:
        last = int(inside.max())
        raise StepsPerEpochError(counted.log.label, say("log_fault.beyond_epoch", step=last, length=length))
    return Numbering(epochs * length + inside, "step", counted.base, length, notes)


def _by_lengths(
    counted: _Epochs, lengths: Integers, places: tuple[Integers, Integers], notes: tuple[str, ...]
) -> Numbering:
    """Count on over epochs of unlike lengths; raises StepsPerEpochError if a step is none of its epoch."""
    epochs, inside = places
    own = lengths[np.minimum(epochs, len(lengths) - 1)]
    if (inside > own).any():
        first = int(np.argmax(inside > own))
        reason = say("log_fault.beyond_epoch", step=inside[first], length=own[first])
        raise StepsPerEpochError(counted.log.label, reason)
    begins = np.append(0, np.cumsum(lengths))
    note = sentence("axis_note.unlike_epochs", least=int(lengths.min()), most=int(lengths.max()))
    return Numbering(begins[epochs] + inside, "step", counted.base, None, (*notes, note))


def _infer_length(log: LossLog, inside: Integers, epochs: Integers, *, assumed: bool) -> tuple[int, tuple[str, ...]]:
    """Take the largest step if every step is printed and an epoch is complete (another follows it), or if asked to."""
    if assumed:
        return int(inside.max()), ()
    inside, epochs = _in_order(inside, epochs)
    crossing = epochs[1:] > epochs[:-1]
    if not crossing.any():
        raise UnknownEpochLengthError(log.label, say("log_fault.no_epoch"), log.length_advice)
    further = np.diff(inside)
    usual, onward = (np.count_nonzero(which & ~crossing) for which in (further == 1, further > 0))
    if 2 * usual <= onward:  # their median is not 1
        raise UnknownEpochLengthError(log.label, say("log_fault.some_steps"), log.length_advice)
    last, length = inside[:-1][crossing], int(inside.max())
    notes = [sentence("axis_note.largest_step", length=length)]
    if len(short := last[last != length]):
        notes.append(sentence("axis_note.epochs_end_earlier", count=len(short), total=len(last), step=short[0]))
    return length, tuple(notes)


def _in_order(inside: Integers, epochs: Integers) -> tuple[Integers, Integers]:
    """Return steps and their epochs, sorted: most logs are."""
    later, same = epochs[1:] > epochs[:-1], epochs[1:] == epochs[:-1]
    if np.all(later | (same & (inside[1:] >= inside[:-1]))):
        return inside, epochs
    order = np.lexsort((inside, epochs))
    return inside[order], epochs[order]


def _copies(shares: Floats, values: Floats) -> int:
    """Return 2 where the second half of a log is the first once more, else 1."""
    half, odd = divmod(len(shares), 2)
    both = np.stack([shares, values])
    return 2 if not odd and np.array_equal(both[:, :half], both[:, half:], equal_nan=True) else 1


def _by_share(log: LossLog, shares: Floats, copies: int, hints: AxisHints) -> Numbering:
    """Count from the shares of epochs that are done; a second copy of the log tells the same steps again."""
    shares = shares[: len(shares) // copies]
    length = hints.steps_per_epoch or log.steps_per_epoch
    if length is None and hints.assumed:
        return Numbering(np.tile(_ordinals(shares), copies), "step", 1, None, ())
    if length is None:
        raise UnknownEpochLengthError(log.label, say("log_fault.only_shares"))
    steps, notes = steps_from_shares(log.label, shares, length)
    steps = np.tile(steps, copies)
    return Numbering(steps, "step", 1, int(length) if length == int(length) else None, notes)


def _ordinals(shares: Floats) -> Integers:
    """Number points by the size of their shares, from 1; of those in a row that print the same, by their order."""
    at = np.arange(len(shares))
    begun = np.maximum.accumulate(np.where(np.append(True, np.diff(shares) != 0), at, 0))
    ordinals: Integers = np.unique(np.stack([shares, at - begun]), axis=1, return_inverse=True)[1].reshape(-1) + 1
    return ordinals


# Steps of a log that tells only the share of epochs that are done, `'epoch': 0.27`.
#
# Shares are printed with few digits, so several steps may print the same. Then only an even distance can tell them
# apart, and only if it is so wide that a lost line would show.

_DECIMALS = range(SHARE_LEAST_DECIMALS, SHARE_MOST_DECIMALS)


def steps_from_shares(label: str, shares: Floats, length: float) -> tuple[Integers, tuple[str, ...]]:
    """Return the global step of each share of epochs of `length` steps, and notes; raises StepsPerEpochError.

    A share tells its step if no other step rounds to it: the unit of its last digit is at most one step. With a
    fraction (1001 batches, 8 of them a step: 125.125) the last step of an epoch has fewer batches.
    """
    units = _printed_units(shares) * length
    if units.max() > 1 + EPOCH_SHARE_ROUNDING:
        return _evenly(label, shares * length, units, length)
    epochs = np.floor(shares) if length != int(length) else np.zeros(len(shares))
    exact = (shares - epochs) * length
    off = np.abs(exact - np.rint(exact)) > units / 2 + EPOCH_SHARE_ROUNDING * length
    if not off.any():
        return (epochs * np.ceil(length) + np.rint(exact)).astype(np.int64), ()
    share = shares[off][0]
    reason = sentence("axis_fault.no_whole_number", share=share, length=length)
    return _evenly(label, shares * length, units, length, LAST_STEP_SHARE, reason)


def _printed_units(shares: Floats) -> Floats:
    """Return the unit of the last digit of each share, 0.0 if all digits are printed.

    All have as many decimals as the one that needs most, unless none needs more than four significant digits.
    """
    unit = next((10.0**-decimals for decimals in _DECIMALS if _needs_no_more(shares, decimals)), 0.0)
    magnitudes = np.floor(np.log10(np.maximum(shares, unit or 1.0)))
    units = np.full(len(shares), unit)
    if unit and _needs_no_more(shares, EPOCH_SHARE_DIGITS - 1 - magnitudes):
        units = np.maximum(units, 10.0 ** (magnitudes + 1 - EPOCH_SHARE_DIGITS))
    return units


def _needs_no_more(shares: Floats, decimals: Floats | int) -> bool:
    scale = 10.0**decimals
    return np.allclose(shares, np.rint(shares * scale) / scale, rtol=0, atol=10.0**-SHARE_MOST_DECIMALS)


def _evenly(
    label: str, exact: Floats, units: Floats, length: float, slack: float = 0.0, reason: str = ""
) -> tuple[Integers, tuple[str, ...]]:
    """Take the one distance that explains all: point i, from 1, is within half a unit, and the slack, of i times it.

    A log that is printed again, or of a run that was begun anew, counts its points from 1 again.
    """
    anew = np.append(True, (exact[1:] == exact[0]) & (exact[1:] < exact[:-1]))
    at = np.arange(len(exact))
    places, unit = at - np.maximum.accumulate(np.where(anew, at, 0)) + 1, units.max()
    least, most = (exact - units / 2 - slack) / places, (exact + units / 2 + slack) / places
    distance = int(np.ceil(least.max() - EPOCH_SHARE_ROUNDING))
    if not (distance > unit + 2 * slack and distance <= most.min() + EPOCH_SHARE_ROUNDING < distance + 1):
        coarse = sentence("axis_fault.printed_alike", length=length, steps=unit)
        raise StepsPerEpochError(label, reason or coarse, say("log_error.tells_steps"))
    return places * distance, (sentence("axis_note.even_distance", distance=distance),)


# Points missing inside a log, by the log's own cadence.
#
# A log may print every tenth step, the ends of epochs, or all steps at first and some later: that is its cadence, and
# nothing is missing. A distance that is wider without a pattern is a hole, if the other log has points in it.


class MissingSteps(NamedTuple):
    """Nothing between two steps of a log, although `missing` points are expected there, as the other log has them."""

    before: int
    after: int
    missing: int


def find_missing_steps(steps: Integers, other: Integers | None = None) -> tuple[MissingSteps, ...]:
    """Find the holes in the increasing `steps` of a log against those of the other; None: against every step."""
    if len(steps) < 2:
        return ()
    wide, expected = _unexplained(steps)
    inside = steps[wide] - steps[wide - 1] - 1
    if other is not None:
        inside = np.searchsorted(other, steps[wide], "left") - np.searchsorted(other, steps[wide - 1], "right")
    missing = np.minimum(inside, expected)
    columns = (column[missing > 0].tolist() for column in (steps[wide - 1], steps[wide], missing))
    return tuple(starmap(MissingSteps, zip(*columns, strict=True)))


def places_after_missing_steps(steps: Integers) -> Integers:
    """Return the places of points before which others seem to be missing; the first if the log starts late."""
    if len(steps) < 2:
        return np.zeros(0, np.int64)
    wide, _ = _unexplained(steps)
    return np.append(0, wide) if steps[0] > usual_distance(steps) else wide


def starts_late(steps: Integers, other: Integers) -> bool:
    """Tell whether a log lacks its beginning: it starts later than its distances explain, and after the other."""
    return bool(len(steps) and len(other) and steps[0] > max(usual_distance(steps), other[0]))


def usual_distance(steps: Integers) -> int:
    """Return the distance that half of the points keep from the one before, or from step 0; 1 for fewer than two."""
    gaps, middle = np.diff(steps, prepend=0), (len(steps) - 1) // 2
    return int(np.partition(gaps, middle)[middle]) if len(gaps) > 1 else 1


def _unexplained(steps: Integers) -> tuple[Integers, Integers]:
    """Return the places after distances wider than the cadence that follow no pattern, and how many points each lacks.

    A lost point leaves twice the cadence; less is what an epoch's end leaves of it, if a log counts anew in each epoch.
    A log that prints its first step and then every n-th has one distance that is shorter by one: it counts as n. The
    distance from step 0 to the first point is none.
    """
    gaps = np.diff(steps, prepend=0)
    if gaps.min() == gaps.max():
        return gaps[:0], gaps[:0]
    cadence = np.maximum(usual_distance(steps), _width_of_runs(gaps))
    twice = gaps + (steps - gaps == 1) >= 2 * cadence
    wide = np.flatnonzero(twice & (gaps > cadence + (cadence > 1)))
    wide = wide[wide > 0]
    if _repeats_with_epochs(gaps, wide):
        wide = wide[:0]
    return wide, -(-gaps[wide] // cadence[wide]) - 1


def _width_of_runs(gaps: Integers) -> Integers:
    """Return for each place the distance that was last kept three times in a row, or is from the next place on."""
    run = np.zeros(len(gaps), np.bool_)
    same = np.flatnonzero((gaps[:-2] == gaps[1:-1]) & (gaps[1:-1] == gaps[2:]))
    for offset in range(3):
        run[same + offset] = True
    latest = np.maximum.accumulate(np.where(run, np.arange(len(gaps)), -1))
    width = np.where(latest >= 0, gaps[latest], 0)
    widest: Integers = np.maximum(width, np.append(np.where(run, gaps, 0)[1:], 0))
    return widest


def _repeats_with_epochs(gaps: Integers, wide: Integers) -> bool:
    """Tell whether the distances repeat, two times or more, as the first, every n-th and the last of an epoch do."""
    periods = wide[1:] - wide[:1]
    for period in periods[(wide[:1] < periods) & (periods <= len(gaps) // 2)][:PERIODS_TRIED].tolist():
        first = gaps[:period]
        narrow = np.count_nonzero(first < first.max() - 1)
        once = narrow <= NARROW_DISTANCES and np.array_equal(first, gaps[period : 2 * period])
        if once and np.array_equal(gaps[period:], gaps[:-period]):
            return True
    return False


# Steps that changed no weight, as gradients overflowed: kept on the axis though they may have no loss.
#
# A log tells of single steps, or of how many there were since its last print; then which ones is not known, and what
# is counted of two logs is what they may have in common at most.

NO_STEPS = np.zeros(0, np.int64)
NO_SKIPS = Skips(NO_STEPS, NO_STEPS, NO_STEPS)


class SkippedByOneSide(NamedTuple):
    """Steps that one log alone skipped: how many, and the first; if not `exact` it is that one or one before."""

    steps: int
    first: int
    exact: bool


class SkipComparison(NamedTuple):
    """Skipped steps of two logs: those that each has alone, and how many both have, at most where a log names none."""

    reference: SkippedByOneSide
    candidate: SkippedByOneSide
    shared: int


class SkippedRuns(NamedTuple):
    """Skipped steps in a row: `counts` from `first` to `last`, all that the log tells of these where `whole`."""

    first: Integers
    last: Integers
    counts: Integers
    whole: Booleans

    @property
    def steps(self) -> Integers:
        """The first step of each; of a print that counts some of many, its own."""
        return np.where(self.whole, self.first, self.last)


def with_skipped(log: LossLog, series: Series, metric: str) -> tuple[Series, Booleans]:
    """Add NaN for records without a loss, as all their steps were skipped, and tell which values are the log's own."""
    if log.table.skipped is None or series.phase != "training" or not is_loss(metric):
        return series, np.ones(len(series.rows), np.bool_)
    rows = np.union1d(series.rows, np.flatnonzero(log.table.skipped))
    printed = np.isin(rows, series.rows, assume_unique=True)
    at = np.searchsorted(series.rows, rows[printed])
    values, resolution = np.full(len(rows), np.nan), np.zeros(len(rows))
    values[printed], resolution[printed] = series.values[at], series.resolution[at]
    return replace(series, rows=rows, values=values, resolution=resolution), printed


def skips_of(log: LossLog, rows: Integers, steps: Integers) -> Skips | None:
    """Return the spans of records, at increasing steps, with skipped steps; the loss tells how wide they are."""
    counts = NO_STEPS if log.table.skipped is None else log.table.skipped[rows].astype(np.int64)
    if not counts.any():
        return None
    some = counts > 0
    ends, counts = steps[some], counts[some]
    if log.skips_between:
        before = np.append(max(int(steps[0] - counts[0]), 0) if some[0] else 0, steps[:-1])[some]
        return Skips(before, ends, np.minimum(counts, np.maximum(ends - before, 1)), left_out=False)
    loss = log.series("loss")
    width = loss.window.length if loss else 1
    return Skips(np.maximum(ends - np.maximum(width, counts), 0), ends, counts)


def group_skips(skips: Skips | None, size: int) -> Skips | None:
    """Take every `size` steps as one; a group is skipped if one of its steps is."""
    if skips is None:
        return None
    ends, at = np.unique(-(-skips.ends // size), return_inverse=True)
    starts = np.full(len(ends), np.iinfo(np.int64).max)
    np.minimum.at(starts, at, skips.starts // size)
    counts = -(-np.bincount(at, weights=skips.counts).astype(np.int64) // size)
    return replace(skips, starts=starts, ends=ends, counts=counts)


def printed_steps(curve: Curve) -> Integers:
    """Return the steps that a log tells of: those with a value, and those without one as all since the last skipped."""
    return curve.steps if curve.skips is None else np.union1d(curve.steps, curve.skips.ends[curve.skips.whole])


def fill_skipped(curve: Curve) -> tuple[Curve, Booleans]:
    """Put NaN at steps without a value, as all since the last were skipped; tell which points are the log's own."""
    steps = printed_steps(curve)
    if len(steps) == len(curve.steps):
        return curve, np.ones(len(steps), np.bool_)
    printed = np.isin(steps, curve.steps, assume_unique=True)
    values, resolution = np.full(len(steps), np.nan), np.zeros(len(steps))
    values[printed], resolution[printed] = curve.values, curve.resolution
    resumed = None if curve.resumed is None else np.isin(steps, curve.steps[curve.resumed])
    return replace(curve, steps=steps, values=values, resolution=resolution, resumed=resumed), printed


def steps_to_the_end(curve: Curve) -> Integers:
    """Return the steps that a log tells of, up to the last value if nothing but skipped steps comes after it."""
    steps, runs = printed_steps(curve), skipped_runs(curve)
    at_the_end = (runs.last == steps[-1:]) & runs.whole & (runs.counts >= SKIPS_AT_THE_END)
    return curve.steps if at_the_end.any() else steps


def count_within(skips: Skips | None, starts: Integers, ends: Integers) -> Integers:
    """Count the skipped steps in each (start, end]."""
    if skips is None:
        return np.zeros(len(ends), np.int64)
    running = np.append(0, np.cumsum(skips.counts))
    upto = running[np.searchsorted(skips.ends, ends, "right")]
    counts: Integers = upto - running[np.searchsorted(skips.ends, starts, "right")]
    return counts


def left_out_within(skips: Skips | None, starts: Integers, ends: Integers) -> Integers:
    """Count the skipped steps in each (start, end] that a printed mean over it lacks."""
    return count_within(skips if skips is not None and skips.left_out else None, starts, ends)


def until_step(skips: Skips | None, last_step: int) -> Skips | None:
    """Leave out what was skipped after a step; None if nothing is left."""
    return None if skips is None or skips.ends[0] > last_step else skips.take(skips.ends <= last_step)


def skipped_runs(curve: Curve) -> SkippedRuns:
    """Put together what was skipped in all prints in a row."""
    skips = curve.skips
    if skips is None:
        return SkippedRuns(NO_STEPS, NO_STEPS, NO_STEPS, NO_STEPS > 0)
    place, whole = np.searchsorted(printed_steps(curve), skips.ends), skips.whole
    joins = whole[1:] & whole[:-1] & (np.diff(place) == 1)
    first, last = np.append(True, ~joins), np.append(~joins, True)
    counts = np.add.reduceat(skips.counts, np.flatnonzero(first))
    return SkippedRuns(skips.starts[first] + 1, skips.ends[last], counts, whole[first])


def compare_skips(reference: Skips | None, candidate: Skips | None) -> SkipComparison:
    """Count the steps that one side alone skipped, and those that both may have, in stretches that no span leaves."""
    sides = reference or NO_SKIPS, candidate or NO_SKIPS
    starts, ends = (np.concatenate([getattr(side, name) for side in sides]) for name in ("starts", "ends"))
    order = np.argsort(starts, kind="stable")
    reach = np.maximum.accumulate(ends[order])
    begins = starts[order][np.append(True, starts[order][1:] >= reach[:-1])[: len(order)]]
    places = [np.searchsorted(begins, side.starts, "right") - 1 for side in sides]
    sums = (np.bincount(at, side.counts, len(begins)) for at, side in zip(places, sides, strict=True))
    counts = [column.astype(np.int64) for column in sums]
    both = np.minimum(*counts)
    left, right = (_lone(side, place, own, both) for side, place, own in zip(sides, places, counts, strict=True))
    return SkipComparison(left, right, int(both.sum()))


def _lone(skips: Skips, place: Integers, counts: Integers, both: Integers) -> SkippedByOneSide:
    """Tell what a side skipped beyond `both`, by the stretch that each of its spans is in."""
    alone = counts - both
    if not alone.any():
        return SkippedByOneSide(0, 0, exact=True)
    inside = np.flatnonzero(place == np.argmax(alone > 0))
    first, last = inside[0], inside[-1]
    exact = bool(skips.whole[first] and not both[place[first]])
    return SkippedByOneSide(int(alone.sum()), int(skips.starts[first] + 1 if exact else skips.ends[last]), exact)
