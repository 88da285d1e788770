"""Which global step, counted from 1, each record of a log stands for.

What the user says comes first, then what the format knows, then what the data shows. A guess is noted; where the
data leaves the answer open it is refused, as a curve moved by one step fits nothing and shows no reason. What the first
step is called and how long an epoch is, the training loss tells for all metrics of a log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.axis.steps_from_epochs import steps_from_shares
from align.curves.log_parts.counting import distance_from_zero, passes_are, where_passes_begin
from align.curves.loss_log import AxisHints
from align.errors import StepsPerEpochError, UnknownEpochLengthError, UnorderedLogError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from align.curves.loss_log import Axis, Base, Floats, Integers, LossLog, Series


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
        return _by_share(
            log, log.table.shares[series.rows], _copies(log.table.shares[series.rows], series.values), hints
        )
    numbering = _numbered(log, series, hints)
    return replace(numbering, base_guessed=numbering.base == 1 and log.base is hints.base is None)


def _numbered(log: LossLog, series: Series, hints: AxisHints) -> Numbering:
    loss = log.series("loss") or series
    base, notes = _base(log, _smallest(log, loss, series), hints, log.table.steps[loss.rows])
    printed = log.table.steps[series.rows] + (1 - base)
    length = _whole(log.label, hints.steps_per_epoch or log.steps_per_epoch)
    if log.counting == "epoch":
        return _by_epoch(printed, base, notes, length)
    if log.counting == "step in epoch" and log.table.epochs is not None:
        counted = _Epochs(log, log.table.epochs, base)
        return _inside_epochs(counted, loss, series, length, notes, assumed=hints.assumed)
    unsaid = (
        log.counting == "global step" and log.base is None and log.table.epochs is None
    )  # no format knows how it counts
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
    found: Base = 0 if smallest == 0 or distance else 1
    if base is not None:
        return found, (sentence(f"counting_note.{counted}_zero_shown", base=base),)
    if distance:
        return 0, (sentence(f"counting_note.{counted}_one_less", distance=distance),)
    return found, (sentence(f"counting_note.{counted}_smallest", base=found, smallest=smallest),)


def _by_epoch(ordinal: Integers, base: Base, notes: tuple[str, ...], steps_per_epoch: int | None) -> Numbering:
    """Put one value an epoch at the epoch's last step, or on an axis of epochs if their length is not known."""
    if steps_per_epoch is None:
        return Numbering(ordinal, "epoch", base, None, notes)
    return Numbering(ordinal * steps_per_epoch, "step", base, steps_per_epoch, notes)


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
        hint = log.length_advice or StepsPerEpochError.GIVE_IT
        raise UnknownEpochLengthError(log.label, say("log_fault.no_epoch"), hint)
    further = np.diff(inside)
    usual, onward = (np.count_nonzero(which & ~crossing) for which in (further == 1, further > 0))
    if 2 * usual <= onward:  # their median is not 1
        hint = log.length_advice or StepsPerEpochError.GIVE_IT
        raise UnknownEpochLengthError(log.label, say("log_fault.some_steps"), hint)
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
