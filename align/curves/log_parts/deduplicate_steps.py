"""One point a step, the latest, out of what a log tells in the order of its lines.

A log that goes back tells the same points again, goes on with a resumed training, or has its lines out of order; where
it hardly goes on without going back, several processes wrote into it. What it tells of a step again decides: equal
values prove nothing by themselves, as a resumed training may well come to some of them. Lines out of order that tell
unlike values of a step do not show which is the later one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.curves.thresholds import ACCIDENTAL_REPEATS, SHUFFLED_POINTS
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.loss_log import Booleans, Floats, Integers

Unclear = Literal["", "unlike values", "counters above", "steps between"]


@dataclass(frozen=True, slots=True, eq=False)
class KeptPoints:
    """Which points of a log stand on the curve, in the order of steps; `resumed`: the log went back before these.

    `each` is how many values the log has of a step, 1 unless it tells unlike ones of most steps: then they are of
    several processes, not of a resumed run. `unclear` says why the order of lines does not show which points are the
    latest, "" where it does. `whole`: the points stand there as they are.
    """

    index: Integers
    notes: tuple[str, ...] = ()
    resumed: Booleans | None = None
    each: int = 1
    unclear: Unclear = ""
    whole: bool = False


def deduplicate_steps(steps: Integers, values: Floats, *, headed: bool = False) -> KeptPoints:
    """Keep one point a step, the latest, in the order of steps.

    Where the log goes back to an earlier step and tells another value of one before it goes back again, the training
    was resumed: what stood before from there on belongs to the abandoned run, be it equal or not. Where nothing is
    contradicted, what is printed again is dropped and what is out of order is sorted, unless the log is `headed`: then
    lines out of order stand below the counters of others.
    """
    if np.all(steps[1:] > steps[:-1]):
        return KeptPoints(np.arange(len(steps)), whole=True)
    at_once, same = np.diff(steps) == 0, _same(values[1:], values[:-1])
    again = np.unique(steps[1:][at_once & ~same])
    index = np.flatnonzero(np.append(~at_once, True))
    resumed = _resumed_at(steps[index], values[index])
    standing = _not_replaced(steps[index], resumed)
    kept = standing[np.unique(steps[index][standing], return_index=True)[1]]
    back, distinct = steps[index][resumed], len(np.unique(steps))
    repeats = int(np.count_nonzero(at_once & same)) + len(standing) - len(kept)
    notes = (
        _repeats_note(repeats),
        _again_note(again),
        _resumed_note(back, distinct - len(kept)),
        sentence("logs_note.sorted") if np.any(np.diff(kept) < 0) else "",
    )
    otherwise = len(np.union1d(again, back))
    each = round((len(steps) - repeats) / distinct)
    numbers = len(np.unique(steps[1:][at_once & (np.abs(np.diff(values)) > 0)]))
    often = otherwise >= max(ACCIDENTAL_REPEATS, distinct / 2) or numbers == distinct
    crowded = numbers * 2 >= distinct and each > ACCIDENTAL_REPEATS
    return KeptPoints(
        index[kept],
        tuple(filter(None, notes)),
        np.isin(kept, resumed) if len(resumed) else None,
        max(2, each) if often else 1,
        "" if often else "unlike values" if crowded else _unclear(steps[index], kept, again, resumed, headed=headed),
    )


def _same(one: Floats, other: Floats) -> Booleans:
    """Tell which values are equal; NaN equals NaN."""
    same: Booleans = (one == other) | (np.isnan(one) & np.isnan(other))
    return same


def _resumed_at(steps: Integers, values: Floats) -> Integers:
    """Return where the log goes back and, before it does so again, contradicts what it last said of a step."""
    order = np.argsort(steps, kind="stable")
    otherwise = order[1:][(np.diff(steps[order]) == 0) & ~_same(values[order][1:], values[order][:-1])]
    back = np.flatnonzero(np.diff(steps) < 0) + 1
    resumed: Integers = back[np.unique(np.searchsorted(back, otherwise, "right")) - 1]
    return resumed


def _unclear(steps: Integers, kept: Integers, again: Integers, resumed: Integers, *, headed: bool) -> Unclear:
    """Tell why the latest points are not known; `kept` are the places of those that stand, in the order of steps."""
    moved, back = (int(np.count_nonzero(np.diff(places) < 0)) for places in (kept, steps))
    if (len(resumed) or len(again)) and (moved >= SHUFFLED_POINTS or _is_shuffled(steps)):
        return "unlike values"
    if headed and (moved or len(again) * 2 >= len(np.unique(steps))):
        return "counters above"
    return "steps between" if moved > ACCIDENTAL_REPEATS * back else ""


def _is_shuffled(steps: Integers) -> bool:
    """Tell whether the log hardly ever goes on to the next step that it tells, as each pass of a resumed run does."""
    moves = np.diff(np.unique(steps, return_inverse=True)[1])
    back = int(np.count_nonzero(moves < 0))
    often_back = back * ACCIDENTAL_REPEATS >= len(moves) or len(moves) < SHUFFLED_POINTS
    return often_back and int(np.count_nonzero(moves == 1)) * 2 < len(moves)


def _not_replaced(steps: Integers, resumed: Integers) -> Integers:
    """Return the points that no run resumed later replaces, as it begins at their step or an earlier one."""
    earliest = np.full(len(steps), np.iinfo(np.int64).max)
    earliest[resumed - 1] = steps[resumed]
    return np.flatnonzero(steps < np.minimum.accumulate(earliest[::-1])[::-1])


def _repeats_note(repeats: int) -> str:
    return sentence("logs_note.repeated", count=repeats) if repeats else ""


def _again_note(again: Integers) -> str:
    return sentence("logs_note.printed_again", count=len(again), step=again[0]) if len(again) else ""


def _resumed_note(back: Integers, abandoned: int) -> str:
    facts = {"count": len(back), "step": int(back[0]), "abandoned": abandoned} if len(back) else {}
    return sentence("logs_note.goes_back", **facts) if facts else ""
