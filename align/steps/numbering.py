"""Which global step, counted from 1, each record of a log stands for.

What the user says comes first, then what the format knows, then what the data shows. A guess is noted; where the
data leaves the answer open it is refused, as a curve moved by one step fits nothing and shows no reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from align.core.curves import AxisHints
from align.errors import StepsPerEpochError

if TYPE_CHECKING:
    from align.core.curves import Axis, Base, Integers, LossLog, Series


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
    """Number the values of a metric by the global step; raises StepsPerEpochError where that cannot be told."""
    hints = hints or AxisHints()
    numbering = _numbered(log, series, hints)
    return replace(numbering, base_guessed=numbering.base == 1 and log.base is hints.base is None)


def _numbered(log: LossLog, series: Series, hints: AxisHints) -> Numbering:
    printed = log.table.steps[series.rows]
    base, notes = _base(log, printed, hints)
    if log.counting == "epoch":
        return _by_epoch(printed, base, notes, hints.steps_per_epoch or log.steps_per_epoch)
    if log.counting == "step in epoch" and log.table.epochs is not None:
        return _inside_epochs(log, printed, log.table.epochs[series.rows], (base, notes), hints)
    if hints.steps_per_epoch is not None:
        notes = (*notes, "the log counts global steps: the steps per epoch that were given are not needed")
    return Numbering(printed + (1 - base), "step", base, None, notes)


def _base(log: LossLog, printed: Integers, hints: AxisHints) -> tuple[Base, tuple[str, ...]]:
    smallest = int(printed.min())
    counted = "epoch" if log.counting == "epoch" else "step"
    base = log.base if hints.base is None else hints.base
    if base is not None and smallest >= base:
        return base, ()
    found: Base = 0 if smallest == 0 else 1
    if base is not None:
        return found, (f"counting starts at 0, not at {base}: the log has a {counted} 0",)
    return found, (f"counting starts at {found}: the format does not tell, the smallest {counted} is {smallest}",)


def _by_epoch(epochs: Integers, base: Base, notes: tuple[str, ...], steps_per_epoch: int | None) -> Numbering:
    """Put one value an epoch at the epoch's last step, or on an axis of epochs if their length is not known."""
    ordinal = epochs + (1 - base)
    if steps_per_epoch is None:
        return Numbering(ordinal, "epoch", base, None, notes)
    return Numbering(ordinal * steps_per_epoch, "step", base, steps_per_epoch, notes)


def _inside_epochs(
    log: LossLog, printed: Integers, epochs: Integers, based: tuple[Base, tuple[str, ...]], hints: AxisHints
) -> Numbering:
    base, notes = based
    inside = printed + (1 - base)
    first_epoch = _first_epoch(log, epochs)
    length = hints.steps_per_epoch or log.steps_per_epoch or _told_length(log)
    if length is None and np.all(epochs == first_epoch):
        return Numbering(inside, "step", base, None, notes)
    if length is None:
        length, inferred = _infer_length(log, inside, epochs)
        notes = (*notes, *inferred)
    if int(inside.max()) > length:
        reason = f"it has a step {int(inside.max())} in an epoch, but an epoch should have {length} steps"
        raise StepsPerEpochError(log.label, reason)
    return Numbering((epochs - first_epoch) * length + inside, "step", base, length, notes)


def _told_length(log: LossLog) -> int | None:
    """Return the steps of an epoch that all records tell alike."""
    totals = log.table.totals
    return int(totals[0]) or None if totals is not None and bool(np.all(totals == totals[0])) else None


def _first_epoch(log: LossLog, epochs: Integers) -> int:
    """Return what the log calls its first epoch: 0 if it has an epoch 0 or its format counts from 0, else 1."""
    return 0 if log.base == 0 or int(epochs.min()) == 0 else 1


def _infer_length(log: LossLog, inside: Integers, epochs: Integers) -> tuple[int, tuple[str, ...]]:
    """Take the largest step if every step is printed and an epoch is complete (another follows it)."""
    complete = epochs < epochs.max()
    if not np.any(complete):
        raise StepsPerEpochError(log.label, "it shows no complete epoch")
    order = np.lexsort((inside, epochs))
    within = np.diff(inside[order])[np.diff(epochs[order]) == 0]
    within = within[within > 0]
    if not len(within) or np.median(within) != 1:
        raise StepsPerEpochError(log.label, "it prints only some steps, so an epoch may be longer than its last one")
    last = [int(inside[epochs == epoch].max()) for epoch in np.unique(epochs[complete])]
    length = int(inside.max())
    notes = [f"an epoch is taken to have {length} steps, the largest step in the log"]
    if short := [number for number in last if number != length]:
        notes.append(
            f"{len(short)} of {len(last)} complete epochs end earlier, at step {short[0]}: lines may be missing"
        )
    return length, tuple(notes)
