"""Where two curves part, as the step that is most likely and the steps between which it lies.

A fact has its place: a first loss outside its limit, NaN on one side, any point where each has to be inside. All else
is a change in noise, which is known only within an interval; and what noise alone explains parts nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.criteria.onset_interval import Onset, find_onset
from align.curves.criteria_thresholds import CUT_NOISES, OF_NORMAL, ONSET_CONFIDENCE, ONSET_POINTS, POINTS_BEFORE
from align.curves.curve_result import CurveEvent, DivergentSteps

if TYPE_CHECKING:
    from align.curves.criteria.examined_curves import ExaminedCurves
    from align.curves.curve_result import CurvePoints
    from align.curves.loss_log import Floats


class Divergence(NamedTuple):
    """Where curves part: the index of the point, its interval, and since when a change of the difference is there.

    Each is None where it is not known; `steps` of few points, as their noise is not known.
    """

    point: int | None = None
    steps: DivergentSteps | None = None
    changed: int | None = None


def locate_divergence(examined: ExaminedCurves, failed: frozenset[str], points: CurvePoints) -> Divergence:
    """Find where the values part and stay apart, or before that a point that must not differ even alone."""
    if not examined.values_differ:
        return Divergence()
    onset, few = find_onset(points.difference, points.limit, examined.stretch), _has_few(points)
    usual = not few and _first_is_usual(points.difference, onset)
    facts = _facts(examined, failed - {"first"} if usual else failed)
    if onset is not None and (inside := [fact for fact in facts if onset.first <= fact <= onset.last]):
        onset = Onset(inside[0], inside[0], inside[0])
    if onset is None and few and examined.stretch is not None:
        changed = examined.stretch.first
        return Divergence(min([*facts, changed]), _fact_steps(examined, facts, changed), changed)
    if facts and (onset is None or facts[0] <= onset.likely):
        fact = Onset(facts[0], facts[0], facts[0])
        return Divergence(facts[0], _in_steps(examined, fact, 1.0), None if onset is None else onset.likely)
    if onset is None:
        return Divergence()
    return Divergence(onset.likely, _in_steps(examined, onset, ONSET_CONFIDENCE), onset.likely)


def change_events(examined: ExaminedCurves, changed: int | None, points: CurvePoints) -> tuple[CurveEvent, ...]:
    """Return where the difference changes, with its mean from there on, and where it ends if it does."""
    if changed is None:
        return ()
    stretch = examined.stretch
    ended = stretch is not None and stretch.ended
    last = stretch.last if stretch is not None and ended else len(points.step) - 1
    inside = points.difference[changed : last + 1]
    known = inside[np.isfinite(inside)]
    mean = float(np.mean(known)) if len(known) else None
    if not ended:
        return (CurveEvent("change point", int(points.step[changed]), value=mean),)
    apart = CurveEvent("apart for a while", int(points.step[changed]), value=mean)
    return apart, CurveEvent("together again", int(points.step[last + 1]))


def _first_is_usual(difference: Floats, onset: Onset | None) -> bool:
    """Tell whether the first difference is no larger than the noise that comes after it: then it is noise, too."""
    if onset is not None and onset.first <= POINTS_BEFORE:
        return False
    rest = difference[1 : None if onset is None else onset.first]
    noise = OF_NORMAL * float(np.median(np.abs(rest[np.isfinite(rest)])))
    return bool(abs(difference[0]) <= CUT_NOISES * noise)


def _facts(examined: ExaminedCurves, failed: frozenset[str]) -> list[int]:
    """Return the points that must not differ even alone, the first one first."""
    finite = examined.judged.finite
    alone = examined.outside if "every" in failed else examined.outside[~finite[examined.outside]]
    return sorted([*alone[:1].tolist(), *([0] if "first" in failed else [])])


def _has_few(points: CurvePoints) -> bool:
    return int(np.count_nonzero(np.isfinite(points.difference))) < ONSET_POINTS


def _fact_steps(examined: ExaminedCurves, facts: list[int], changed: int) -> DivergentSteps | None:
    """Return the steps of a fact that is not later than a change of unknown noise."""
    if not facts or facts[0] > changed:
        return None
    return _in_steps(examined, Onset(facts[0], facts[0], facts[0]), 1.0)


def _in_steps(examined: ExaminedCurves, onset: Onset, confidence: float) -> DivergentSteps:
    """Tell the steps: since the common step before the first point, and of what grows, with that step."""
    steps = examined.pairs.steps
    before = onset.first - 1
    first = int(steps[before]) + 1 if before >= 0 else min(1, int(steps[0]))
    if onset.gradual and before >= 0:
        first -= 1
    return DivergentSteps(first, int(steps[onset.last]), int(steps[onset.likely]), confidence)
