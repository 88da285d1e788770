"""Two curves whose epochs have unlike numbers of steps, put on the epochs of the reference.

One side drops the last batch of an epoch, or has another batch size, number of devices, or part of the data. Global
steps then drift apart with each epoch: a point belongs to its batch of its epoch. Where one batch is all that differs,
it is the same batch on both sides; else a step is other data, and only means over equal shares of epochs are alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.axis.missing_steps import usual_distance
from align.curves.axis.place_on_axis import common_places
from align.curves.criteria.curve_shapes import noise_size
from align.curves.criteria_thresholds import LEAST_EPOCH, POINTS_IN_SHARE, SHARES_OF_EPOCH
from align.curves.loss_log import Window
from align.errors import UnlikeCurvesError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from align.curves.curve_result import Side
    from align.curves.loss_log import Curve, Integers


@dataclass(frozen=True, slots=True)
class UnlikeEpochs:
    """How many steps an epoch of each side has; `by_batch`: one side drops the last one, and nothing else differs.

    `parts` are the equal shares of an epoch whose means are compared, 0 where single points are. `noise` is the
    standard deviation of a difference that the noise of single points makes. `kept`: points stay at their global
    step, as most of them meet there (logs that count through all epochs), or as curves of one epoch agree there.
    """

    reference: int
    candidate: int
    by_batch: bool
    parts: int = 0
    noise: float = 0.0
    kept: bool = False

    @property
    def reason(self) -> str:
        """What is said first of two such logs."""
        many, few = max(self.reference, self.candidate), min(self.reference, self.candidate)
        times = round(many / few)
        whole = times > 1 and abs(many - times * few) <= times
        option = (f"{times}:1" if self.reference == many else f"1:{times}") if whole and not self.by_batch else None
        how = (
            "kept"
            if self.kept and self.by_batch
            else "steps"
            if self.kept
            else "batches"
            if self.by_batch
            else "shares"
            if self.parts
            else "none"
        )
        key = "dropped" if self.by_batch else "unlike"
        lengths = {"reference": self.reference, "candidate": self.candidate, "option": option}
        return sentence(f"epochs_verdict.{key}", **lengths, how=sentence(f"epochs_how.{how}", parts=self.parts))

    def place(self, curve: Curve, side: Side) -> Curve:
        """Put a curve of a side on the epochs of the reference; one that counts epochs stays as it is."""
        length = self.reference if side == "reference" else self.candidate
        if self.kept or curve.axis != "step":
            return curve
        if self.by_batch:
            return _by_batch(curve, length, self.reference, min(self.reference, self.candidate))
        return _by_shares(curve, length, self.reference, self.parts)


def match_epochs(reference: Curve, candidate: Curve) -> UnlikeEpochs | None:
    """Return how the epochs of two curves differ; None if they are alike, or not known.

    Raises UnlikeCurvesError where a step is other data and no share of an epoch has enough points on both sides.
    """
    lengths = reference.steps_per_epoch, candidate.steps_per_epoch
    if None in lengths or lengths[0] == lengths[1] or {reference.axis, candidate.axis} != {"step"}:
        return None
    if not len(reference.steps) or not len(candidate.steps):
        return None
    first, second = (int(length or 0) for length in lengths)
    if abs(first - second) == 1 and min(first, second) >= LEAST_EPOCH:
        found = UnlikeEpochs(first, second, by_batch=True)
        moved = found.place(reference, "reference"), found.place(candidate, "candidate")
        kept = _common(reference, candidate) > _common(*moved)
        return replace(found, kept=kept, noise=_noise(*moved))
    parts = next((parts for parts in SHARES_OF_EPOCH if _have_points(reference, candidate, parts)), 0)
    found = UnlikeEpochs(first, second, by_batch=False, parts=parts)
    if reference.steps[-1] <= first and candidate.steps[-1] <= second and _agree_by_step(reference, candidate, found):
        return replace(found, kept=True, noise=_noise(reference, candidate))
    if not parts:
        raise UnlikeCurvesError(reference.label, candidate.label, found.reason, say("epochs_hint.log_every_step"))
    each = [_shares(curve, length, parts).counts for curve, length in ((reference, first), (candidate, second))]
    return replace(
        found, noise=_noise(reference, candidate, *(float(np.median(counts[counts > 0])) for counts in each))
    )


def _common(one: Curve, other: Curve) -> int:
    return len(common_places(one.steps, other.steps)[0])


def _agree_by_step(reference: Curve, candidate: Curve, epochs: UnlikeEpochs) -> bool:
    """Tell whether curves of one epoch agree at the same step rather than at the same share of their epochs."""
    by_step = _mean_difference(reference, candidate)
    if not epochs.parts:
        return by_step < np.inf
    return by_step <= _mean_difference(epochs.place(reference, "reference"), epochs.place(candidate, "candidate"))


def _mean_difference(one: Curve, other: Curve) -> float:
    at, at_other = common_places(one.steps, other.steps)
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = np.abs(one.values[at] - other.values[at_other])
    known = sizes[np.isfinite(sizes)]
    return float(np.mean(known)) if len(known) else np.inf


def _by_batch(curve: Curve, length: int, to: int, shared: int) -> Curve:
    """Move each point to its batch in epochs of `to` steps; the last batch, which one side alone has, is left out."""
    epochs, inside = np.divmod(curve.steps - 1, length)
    ends = (inside == length - 1) & (curve.phase == "validation" or "epoch" in curve.window.kind)
    inside = np.where(ends, to - 1, inside)
    kept = ends | (inside < shared)
    moved = replace(curve, steps=epochs * to + inside + 1, steps_per_epoch=to)
    if curve.skips is not None:
        starts, stops = (_moved(steps, length, to) for steps in (curve.skips.starts, curve.skips.ends))
        moved = replace(moved, skips=replace(curve.skips, starts=starts, ends=stops))
    return moved if kept.all() else moved.take(kept)


def _moved(steps: Integers, length: int, to: int) -> Integers:
    """Return the steps, from 0, that are as far in their epoch; the end of an epoch stays one."""
    epochs, inside = np.divmod(np.maximum(steps - 1, 0), length)
    return np.where(steps > 0, epochs * to + np.minimum(inside, to - 1) + 1, 0)


class _Shares(NamedTuple):
    """Equal shares of epochs by their number from 0, the first and the last whole one, and the points in each."""

    of_points: Integers
    first: int
    last: int
    counts: Integers


def _shares(curve: Curve, length: int, parts: int) -> _Shares:
    """Tell the share of each point; the first and last ones count if the log's own distance leaves nothing out."""
    of_points = -(-curve.steps * parts // length) - 1
    apart = usual_distance(curve.steps)
    first = int(of_points[0]) + bool((int(curve.steps[0]) - apart) * parts > int(of_points[0]) * length)
    last = int(of_points[-1]) - bool((int(curve.steps[-1]) + apart) * parts < (int(of_points[-1]) + 1) * length)
    return _Shares(of_points, first, last, np.bincount(of_points, minlength=int(of_points[-1]) + 1))


def _have_points(reference: Curve, candidate: Curve, parts: int) -> bool:
    """Tell whether all shares that both logs tell whole have enough points on both sides."""
    sides = [_shares(curve, curve.steps_per_epoch or 1, parts) for curve in (reference, candidate)]
    first, last = max(one.first for one in sides), min(one.last for one in sides)
    short = min(curve.steps_per_epoch or 1 for curve in (reference, candidate)) < parts
    enough = all(one.counts[first : last + 1].min(initial=POINTS_IN_SHARE) >= POINTS_IN_SHARE for one in sides)
    return last > first and enough and not short


def _by_shares(curve: Curve, length: int, to: int, parts: int) -> Curve:
    """Make the mean of each whole share of an epoch, at its end in epochs of `to` steps.

    Points that lie early in their shares are of an earlier state: by the slope of the means they are put to the middle.
    """
    if not len(curve.steps):
        return curve
    shares = _shares(curve, length, parts)
    numbers = np.arange(shares.first, shares.last + 1)
    numbers = numbers[shares.counts[numbers] > 0]
    with np.errstate(invalid="ignore", over="ignore"):
        values, digits, places = (
            np.bincount(shares.of_points, weights=column)[numbers] / shares.counts[numbers]
            for column in (curve.values, curve.resolution, (curve.steps - 0.5) / length * parts)
        )
        early = (numbers + 0.5 - places) * np.gradient(values, places) if len(numbers) > 1 else np.zeros(len(numbers))
    values = values + np.where(np.isfinite(early), early, 0.0)
    return replace(
        curve,
        steps=(numbers + 1) * to // parts,
        values=values,
        resolution=digits,
        window=Window("mean of last", max(2, to // parts)),
        steps_per_epoch=to,
        skips=None,
        resumed=None,
    )


def _noise(reference: Curve, candidate: Curve, *points: float) -> float:
    """Return the standard deviation of the difference of two means of so many points each, of single ones by default.

    It is that of the noise of single points, as other batches make it.
    """
    sizes = [noise_size(curve.values[np.isfinite(curve.values)]) for curve in (reference, candidate)]
    return float(sum(size**2 / count for size, count in zip(sizes, points or (1.0, 1.0), strict=True)) ** 0.5)
