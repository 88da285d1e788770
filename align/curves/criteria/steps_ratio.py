"""Two curves that agree once several steps of the longer one are taken as one.

With twice the batch size, or with gradients accumulated over two batches, a training takes half as many steps for the
same samples. Nothing is regrouped here: what agrees is told, with the option that says so.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.axis.group_steps import group_steps
from align.curves.axis.place_on_axis import pair_curves
from align.curves.criteria_thresholds import EXPLAINING_POINTS, MOST_STEPS_AS_ONE, UNEXPLAINED_BY_RATIO
from align.curves.presets import GUIDE, limits_for
from align.errors import GroupedStepsError, UnlikeCurvesError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.loss_log import Curve, PairedCurves
    from align.curves.presets import Preset


class Ratio(NamedTuple):
    """How many steps of the reference and of the candidate see the same samples, and how the curves then agree."""

    reference: int
    candidate: int
    points: int
    before: float
    after: float

    @property
    def option(self) -> str:
        """The option that says so."""
        return f"--steps-per {self.reference}:{self.candidate}"

    @property
    def said(self) -> str:
        """What a reader is told of it."""
        return sentence("loss_note.ratio", option=self.option, points=self.points, after=self.after, before=self.before)


def find_ratio(reference: Curve, candidate: Curve, pairs: PairedCurves, preset: Preset = GUIDE) -> Ratio | None:
    """Find how many times as many steps one curve has, if the curves agree so, within the limits, and else do not."""
    if reference.axis != "step" or not len(pairs.steps):
        return None
    ends = int(reference.steps[-1]), int(candidate.steps[-1])
    times = max(ends) // min(ends)
    if not 1 < times <= MOST_STEPS_AS_ONE or max(ends) - times * min(ends) >= times:
        return None
    sizes = (times, 1) if ends[0] > ends[1] else (1, times)
    try:
        grouped = pair_curves(group_steps(reference, sizes[0]), group_steps(candidate, sizes[1]))
    except (GroupedStepsError, UnlikeCurvesError):
        return None
    if len(grouped.steps) < EXPLAINING_POINTS:
        return None
    before, after = _mean_difference(pairs), _mean_difference(grouped)
    if not after <= min(_allowed(reference.metric, grouped, preset), UNEXPLAINED_BY_RATIO * before):
        return None
    # What was taken together already counts as well.
    left, right = sizes[0] * reference.grouped, sizes[1] * candidate.grouped
    common = gcd(left, right)
    return Ratio(left // common, right // common, len(grouped.steps), before, after)


def _allowed(metric: str, pairs: PairedCurves, preset: Preset) -> float:
    scale = float(np.mean(np.abs(pairs.reference)))
    absolute, relative = limits_for(metric, scale, preset).of_each()
    return max(absolute, relative * scale) + float(np.mean(pairs.widening))


def _mean_difference(pairs: PairedCurves) -> float:
    """Return the mean size of the difference, NaN where a side is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.mean(np.abs(pairs.candidate - pairs.reference)))
