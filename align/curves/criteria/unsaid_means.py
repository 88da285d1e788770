"""A log whose values are means of several steps and do not say so, against one that prints single steps.

Where the single steps, averaged, agree with it, or have its noise and did not before, that is what the log prints. Only
the user knows: what is found is noted with the option that says so, and nothing is averaged unasked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from align.curves.axis.place_on_axis import cadence, common_places, pair_curves
from align.curves.criteria.curve_shapes import noise_size
from align.curves.criteria_thresholds import (
    ALIKE_AFTER,
    COURSE_CORRELATION,
    EXPLAINING_POINTS,
    LEAST_SCATTER,
    LEFT_UNEXPLAINED,
    NOISE_POINTS,
    RUNNING_LENGTHS,
    SCATTER_PARTS,
    SMALLER_AFTER,
    SMOOTHER,
    UNLIKE_BEFORE,
)
from align.curves.loss_log import RAW, Window
from align.curves.metric_names import is_loss
from align.curves.presets import GUIDE, limits_for
from align.errors import UnlikeCurvesError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.curves.curve_result import Side
    from align.curves.loss_log import Curve, Floats, PairedCurves
    from align.curves.presets import Preset

MEAN_OF_LAST: Final = "mean of last"


class UnsaidMeans(NamedTuple):
    """The side whose values are means of `length` steps, by all that its log and the other tell."""

    side: Side
    length: int
    points: int
    before: float
    after: float

    @property
    def option(self) -> str:
        """The option that says so."""
        return f"--{self.side}-window '{MEAN_OF_LAST} {self.length}'"

    @property
    def note(self) -> str:
        """What a reader should know of it."""
        return sentence("loss_note.unsaid_means", **self._asdict(), option=self.option)


def find_unsaid_means(
    reference: Curve, candidate: Curve, pairs: PairedCurves, preset: Preset = GUIDE
) -> UnsaidMeans | None:
    """Find the side that prints means as if they were single steps; None if neither does, or one says what it prints.

    Of several lengths the one that leaves least is taken.
    """
    raw = reference.window == candidate.window == RAW and reference.axis == candidate.axis == "step"
    if not raw or not is_loss(reference.metric) or len(pairs.steps) < EXPLAINING_POINTS:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        of_candidate = _of_side("candidate", candidate, reference, preset)
        found = [*of_candidate, *_of_side("reference", reference, candidate, preset)]
    return min(found, key=lambda one: one.after, default=None)


def _of_side(side: Side, curve: Curve, other: Curve, preset: Preset) -> Iterator[UnsaidMeans]:
    every = cadence(curve.steps)
    if cadence(other.steps) != 1 or (every == 1 and _roughness(curve) >= SMOOTHER * _roughness(other)):
        return
    for length in (every,) if every > 1 else RUNNING_LENGTHS:
        try:
            pairs = pair_curves(other, replace(curve, window=Window(MEAN_OF_LAST, length)))
        except UnlikeCurvesError:
            continue
        at, at_other = common_places(curve.steps, pairs.steps)
        single = other.values[common_places(other.steps, pairs.steps[at_other])[0]]
        if len(pairs.steps) < EXPLAINING_POINTS or not len(at) == len(single) == len(pairs.steps):
            continue
        before, after = _mean_size(single - curve.values[at]), _mean_size(pairs.reference - pairs.candidate)
        if not np.isfinite([before, after]).all():
            continue
        if every == 1 and not _scatters(single - pairs.reference):
            continue
        if _agree(pairs, preset, before, after) or _of_one_noise(single, pairs, before, after):
            yield UnsaidMeans(side, length, len(pairs.steps), before, after)


def _agree(pairs: PairedCurves, preset: Preset, before: float, after: float) -> bool:
    scale = float(np.mean(np.abs(pairs.reference)))
    absolute, relative = limits_for("loss", scale, preset).of_each()
    allowed = max(absolute, relative * scale) + float(np.mean(pairs.widening))
    return after < before and after <= min(allowed, LEFT_UNEXPLAINED * before)


def _of_one_noise(single: Floats, pairs: PairedCurves, before: float, after: float) -> bool:
    """Tell whether averaging makes the noise of both sides alike that was not, and brings them together."""
    if len(single) < NOISE_POINTS or not after <= SMALLER_AFTER * before:
        return False
    averaged, means, alone = (noise_size(values) for values in (pairs.reference, pairs.candidate, single))
    small, large = sorted((averaged, means))
    return bool(0.0 < large <= ALIKE_AFTER * small and alone >= UNLIKE_BEFORE * means)


def _roughness(curve: Curve) -> float:
    """Return how far neighbouring values are apart, as a rule; a running mean of k steps has one k-th of it."""
    apart = np.abs(np.diff(curve.values))
    known = apart[np.isfinite(apart)]
    return float(np.median(known)) if len(known) else 0.0


def _scatters(differences: Floats) -> bool:
    """Tell whether single steps lie about their running means all the time, and without a course of their own."""
    values = differences - np.mean(differences)
    sizes = [float(np.median(np.abs(part))) for part in np.array_split(values, SCATTER_PARTS)]
    alike = float(values[1:] @ values[:-1]) <= COURSE_CORRELATION * float(values @ values)
    return alike and min(sizes) > LEAST_SCATTER * max(sizes)


def _mean_size(difference: Floats) -> float:
    finite = np.abs(difference[np.isfinite(difference)])
    return float(np.mean(finite)) if len(finite) == len(difference) and len(finite) else float("inf")
