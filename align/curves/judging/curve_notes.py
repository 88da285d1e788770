"""What a reader of a loss comparison should know beside the verdict: what the logs lack, share and hide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.curves.axis.place_on_axis import cadence
from align.curves.axis.skipped_steps import printed_steps
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.curves.criteria.evaluate_criteria import JudgedPoints
    from align.curves.criteria.examined_curves import ExaminedCurves
    from align.curves.loss_log import Curve


def curve_notes(examined: ExaminedCurves) -> tuple[str, ...]:
    """Return all notes on two curves, those of their pairing first."""
    explained = [found.said for found in (examined.shift, examined.ratio, examined.means) if found]
    return (
        *examined.pairs.notes,
        *_cadence_notes(examined.reference, examined.candidate),
        *_hole_notes(examined),
        *_exceptions(examined),
        *hidden_by_rounding(examined.judged),
        *explained,
    )


def hidden_by_rounding(judged: JudgedPoints) -> list[str]:
    """Say what rounding to the printed digits hides, where it is more than the criteria allow."""
    return [sentence("loss_note.hidden_by_digits", difference=judged.hidden)] if judged.hidden else []


def _cadence_notes(reference: Curve, candidate: Curve) -> Iterator[str]:
    printed = [printed_steps(curve) for curve in (reference, candidate)]
    cadences = [cadence(steps) for steps in printed]
    if cadences[0] != cadences[1]:
        by_steps = reference.axis == "step"
        key = "loss_note.steps_apart" if by_steps else "loss_note.epochs_apart"
        yield sentence(key, reference=cadences[0], candidate=cadences[1])
        return
    for side, curve, other in (("reference", reference, printed[1]), ("candidate", candidate, printed[0])):
        lone = np.setdiff1d(curve.steps, other, assume_unique=True)
        if len(lone):
            key = "loss_note.steps_of_one_side" if curve.axis == "step" else "loss_note.epochs_of_one_side"
            yield sentence(key, count=len(lone), side=side, first=lone[0])


def _hole_notes(examined: ExaminedCurves) -> Iterator[str]:
    for side, holes in examined.holes.items():
        if holes:
            missing, first = sum(hole.missing for hole in holes), holes[0]
            yield sentence("loss_note.missing", count=missing, side=side, before=first.before, after=first.after)


def _exceptions(examined: ExaminedCurves) -> Iterator[str]:
    alike = examined.pairs.steps[~examined.judged.finite & examined.judged.within]
    if len(alike):
        yield sentence("loss_note.non_finite_alike", count=len(alike), first=alike[0])
