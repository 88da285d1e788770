"""The rawer of two curves smoothed to the spans of the other, so that like is compared with like.

Nothing is compared silently that is a mean over other steps: what cannot be smoothed exactly is left out and counted,
and where nothing is left it is refused with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.axis.missing_steps import usual_distance
from align.curves.axis.skipped_steps import fill_skipped, left_out_within
from align.curves.axis.value_spans import MEDIAN, UNKNOWN, average, spans_of, tile
from align.curves.loss_log import RAW
from align.errors import UnlikeCurvesError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.curves.axis.value_spans import Averages
    from align.curves.loss_log import Curve


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


def _reach_into_each_other(one: Curve, other: Curve) -> bool:
    """Tell whether a value of one is about steps of which a value of the other is, too."""
    if not len(one.steps) or not len(other.steps):
        return False
    starts = [max(int(spans_of(curve).starts[0]), 0) for curve in (one, other)]
    return bool(one.steps[-1] > starts[1] and other.steps[-1] > starts[0])


def _notes(fine: tuple[str, Curve], made: Averages, wide: tuple[str, Curve]) -> Iterator[str]:
    (side, curve), (other, like) = fine, wide
    if made.means:
        yield sentence("window_note.averaged", side=side, other=other, kind=_kind(like))
    if made.means and made.curve.skips is not None and like.skips is not None:
        yield sentence("window_note.skipped_left_out")
    if made.unlike:
        yield sentence("window_note.skipped_others", count=made.unlike, side=side, other=other)
    within = np.count_nonzero((like.steps >= curve.steps[0]) & (like.steps <= curve.steps[-1]))
    lost = within - len(made.curve.steps) - made.unlike
    if lost > 0:
        yield sentence("window_note.lacks_steps", count=lost, side=side, other=other)


def _unlike(reference: Curve, candidate: Curve, *, skipped: bool = False) -> UnlikeCurvesError:
    """Return why no value of one can be made of those of the other, and what would help."""
    reasons = [sentence("unlike_reason.values", reference=_span(reference), candidate=_span(candidate))]
    hint = "log both sides the same way: every step, or means over the same number of steps"
    if skipped:
        reasons.append(sentence("unlike_reason.skipped"))
        hint = "log every step, to know which were skipped; align loss on one log lists them"
    for side, curve in (("reference", reference), ("candidate", candidate)):
        if curve.axis == "step" and "epoch" in curve.window.kind and np.all(spans_of(curve).starts == UNKNOWN):
            reasons.append(sentence("unlike_reason.epoch_length", side=side))
            hint = f"give the number of steps in an epoch with --{side}-steps-per-epoch"
        elif curve.axis == "epoch" and curve.window == RAW:
            hint = f"if the {side} prints the mean of an epoch, say so with --{side}-window 'epoch mean'"
        elif curve.axis == "step" and curve.window == RAW and usual_distance(curve.steps) > 1:
            reasons.append(sentence("unlike_reason.too_few", side=side, every=usual_distance(curve.steps)))
    return UnlikeCurvesError(reference.label, candidate.label, "; ".join(reasons), hint)


def _span(curve: Curve) -> str:
    apart = curve.window.kind == "since last print" and len(curve.steps) > 1
    return (
        sentence("window_kind.apart", kind=_kind(curve), distance=usual_distance(curve.steps))
        if apart
        else _kind(curve)
    )


def _kind(curve: Curve) -> str:
    kind = curve.window.kind.replace(" ", "_")
    return sentence(f"window_kind.{kind}", **({"length": curve.window.length} if kind.endswith("of_last") else {}))
