"""How a log counts, by its printed steps: whether they start again with each epoch, and what the first is called."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.curves.thresholds import ENDS_OF_A_PASS, PROVING_MULTIPLES, SHUFFLED_POINTS, SURELY_NEARER

if TYPE_CHECKING:
    from align.curves.loss_log import Floats, Integers

Passes = Literal["", "epochs", "runs", "open"]


def starts_again(steps: Integers, epochs: Integers) -> bool:
    """Tell whether the ranges of steps of two epochs overlap; both arrays have shape (records,)."""
    known, index = np.unique(epochs, return_inverse=True)
    first, last = np.full(len(known), np.iinfo(np.int64).max), np.full(len(known), -1)
    np.minimum.at(first, index, steps)
    np.maximum.at(last, index, steps)
    return bool(np.any(first[1:] <= last[:-1]))


def distance_from_zero(steps: Integers) -> int:
    """Return the number, 3 or more, of which all steps are one less than a multiple; 0 if there is none.

    What prints every 20th step shows 20, 40 ... where it counts from 1, and 19, 39 ... where it counts from 0.
    """
    distances = np.diff(steps)
    if not (distances > 0).all():
        steps = np.unique(steps)
        distances = np.diff(steps)
    if len(steps) < PROVING_MULTIPLES or (distance := int(distances.min())) < PROVING_MULTIPLES:
        return 0
    regular = not (distances % distance).any()
    return distance if regular and (int(steps[0]) + 1) % distance == 0 else 0


def where_passes_begin(steps: Integers) -> Integers:
    """Return where steps start again at their smallest, after a largest that is one in all passes but the last.

    Empty where they go back otherwise: a resumed run goes back to a step between. Few points show nothing.
    """
    back = np.flatnonzero(np.diff(steps) < 0) + 1
    ends, begins = steps[back - 1], steps[np.append(0, back)]
    whole = bool(len(back)) and (begins == steps.min()).all() and (ends == steps.max()).all()
    return back if whole and len(steps) >= SHUFFLED_POINTS and int(back.min()) > 1 else back[:0]


def passes_are(begins: Integers, values: Floats) -> Passes:
    """Tell by the losses whether passes are epochs, each of which goes on where the last one ended, or runs anew.

    Where the first pass hardly learns, or a pass begins with no number, the losses leave it open.
    """
    passes = np.split(values, begins)
    if all(np.array_equal(one, passes[0][: len(one)], equal_nan=True) for one in passes):
        return "runs"  # a copy of the same
    ends = max(1, len(passes[0]) // ENDS_OF_A_PASS)
    start, end = (float(np.median(part)) for part in (passes[0][:ends], passes[0][-ends:]))
    steps_apart = np.abs(np.diff(values[np.isfinite(values)]))
    noise = float(np.median(steps_apart)) if len(steps_apart) else np.inf
    onward = [abs(np.median(b[:ends]) - np.median(a[-ends:])) for a, b in itertools.pairwise(passes)]
    anew = [abs(np.median(one[:ends]) - start) for one in passes[1:]]
    known = np.isfinite(onward) & np.isfinite(anew)
    if not known.any() or not abs(start - end) > SURELY_NEARER * noise:
        return "open"
    far, near = np.array(anew)[known], np.array(onward)[known]
    if (far > SURELY_NEARER * near).all():
        return "epochs"
    return "runs" if (near > SURELY_NEARER * far).all() else "open"
