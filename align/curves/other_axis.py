"""Two curves that agree on another axis: with one of them counted a step later, or several steps taken as one.

A log that counts from 0 and has lost its first line looks like one that counts from 1, and all its losses then stand
one step too early. With twice the batch size, or with gradients accumulated over two batches, a training takes half as
many steps for the same samples. Nothing is moved or regrouped here: what agrees is reported, with the option for it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from align.curves.curve_shapes import noise_size
from align.curves.global_steps import usual_distance
from align.curves.judging_thresholds import (
    COURSE_ONCE,
    EXPLAINING_POINTS,
    LEAST_EPOCH,
    LEFT_UNEXPLAINED,
    MOST_STEPS_AS_ONE,
    POINTS_IN_SHARE,
    SHARES_OF_EPOCH,
    SHIFTED_MEANS,
    UNEXPLAINED_BY_RATIO,
    UNEXPLAINED_COURSE,
)
from align.curves.loss_log import RAW, Window, is_loss
from align.curves.place_on_axis import common_places, group_steps, pair_curves, steps_until
from align.curves.presets import GUIDE, limits_for
from align.errors import GroupedStepsError, UnlikeCurvesError
from align.words.catalogue import Sentence, say, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.curves.loss_log import Curve, Floats, Integers, PairedCurves, Side
    from align.curves.presets import Preset


class Shift(NamedTuple):
    """The side whose steps should count one later; `option` would do it, "" where there is none, and `why` says more.

    `behind`: both sides agree at step 1, so it is the other one that is an update behind.
    """

    side: Side
    option: str
    why: str
    behind: bool
    points: int
    before: float
    after: float

    @property
    def note(self) -> str:
        """What a reader should know of it."""
        facts = {"side": self.side, "points": self.points, "after": self.after, "before": self.before}
        return sentence("loss_note.shift", **facts, why=self.why)


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
    def note(self) -> str:
        """What a reader should know of it."""
        return sentence("loss_note.ratio", option=self.option, points=self.points, after=self.after, before=self.before)


class OtherAxis(NamedTuple):
    """The other axes on which two curves agree: with a side counted one later, or with several steps as one."""

    shift: Shift | None = None
    ratio: Ratio | None = None


def find_other_axis(
    reference: Curve, candidate: Curve, pairs: PairedCurves, preset: Preset = GUIDE, *, whole: bool = True
) -> OtherAxis:
    """Find on which other axis two curves agree clearly; `whole` asks for their numbers of steps, too."""
    ratio = find_ratio(reference, candidate, pairs, preset) if whole else None
    return OtherAxis(find_shift(reference, candidate, pairs, preset), ratio)


def find_common_base(reference: Curve, candidate: Curve) -> str:
    """Return `--reference-base 0` or `--candidate-base 0` if most steps meet so, "" if not.

    A log that prints steps 9, 19, 29 ... may count from 0: only where nothing showed its first step is that looked for.
    """
    for side, moved, other in (("reference", reference, candidate), ("candidate", candidate, reference)):
        common = len(common_places(moved.steps + 1, other.steps)[0])
        if moved.base_guessed and 2 * common >= min(len(moved.steps), len(other.steps)) > 0:
            return f"--{side}-base 0"
    return ""


def find_shift(reference: Curve, candidate: Curve, pairs: PairedCurves, preset: Preset = GUIDE) -> Shift | None:
    """Find the side that should count one later, if that makes the curves agree clearly and at enough steps.

    The limit is that of the preset on a single point, widened by what rounding can add.
    """
    if reference.axis != "step" or not len(pairs.steps):
        return None
    if not reference.window == candidate.window == RAW:
        return _find_shifted_means(pairs)
    scale, before = _mean(pairs.reference), _mean_difference(pairs.candidate, pairs.reference)
    if not before:
        return None
    allowed = min(allowed_difference(reference.metric, pairs, scale, preset), LEFT_UNEXPLAINED * before)
    last = int(pairs.steps[-1])
    ways: tuple[tuple[Side, Curve, Curve], ...] = (
        ("candidate", candidate, reference),
        ("reference", reference, candidate),
    )
    for side, moved, other in ways:
        points, after = _one_later(moved, other, last)
        if points >= max(EXPLAINING_POINTS, len(pairs.steps) - 2) and (after < allowed or after == 0.0):
            behind = _agree_first(moved, other, allowed)
            return Shift(side, *_explain(side, moved, other, behind=behind), behind, points, before, after)
    return None


def _find_shifted_means(pairs: PairedCurves) -> Shift | None:
    """Find the side whose means are taken a step later than they say, by all of their differences added up.

    Two means of k steps that lie a step apart differ by (loss after the last step - first loss) / k. Added up over
    means side by side that is the loss on the next step, less a constant: the course of the loss once, whatever k is,
    with the noise of single steps. Nothing else adds up so; what drifts adds up to more.
    """
    steps, levels = pairs.steps, (pairs.reference + pairs.candidate) / 2.0
    with np.errstate(over="ignore", invalid="ignore"):
        difference = pairs.candidate - pairs.reference
    apart = np.diff(steps)
    if len(steps) < SHIFTED_MEANS or apart.min() != apart.max() or not np.isfinite(difference).all():
        return None
    before = _mean(difference)
    if not before > float(np.mean(pairs.widening)):
        return None
    summed = np.cumsum(difference[:-1]) * int(apart[0])
    slope, left = _along(summed - summed.mean(), (levels[1:] + levels[:-1]) / 2.0)
    most_left = UNEXPLAINED_COURSE * _mean(summed - summed.mean())
    if not COURSE_ONCE[0] <= abs(slope) <= COURSE_ONCE[1] or not _mean(left) <= most_left:
        return None
    side: Side = "candidate" if slope > 0 else "reference"
    why = sentence("shift_reason.means_apart")
    return Shift(side, "", why, False, len(steps), before, _mean(np.diff(left)) / int(apart[0]))


def _along(values: Floats, course: Floats) -> tuple[float, Floats]:
    """Return how many times a course is in the values, by least squares, and what is left of them."""
    course = course - course.mean()
    spread = float(course @ course)
    times = float(course @ values) / spread if spread else 0.0
    return times, values - times * course


def _agree_first(moved: Curve, other: Curve, allowed: float) -> bool:
    """Tell whether both curves begin alike at step 1, and go on from there: then no first line is lost."""
    if not len(moved.steps) > 1 or moved.steps[:2].tolist() != [1, 2] or other.steps[0] != 1:
        return False
    if not np.isfinite([*moved.values[:2], other.values[0]]).all():
        return False
    start, going_on = abs(moved.values[0] - other.values[0]), abs(moved.values[1] - moved.values[0])
    return bool(start <= allowed < going_on)


def _explain(side: Side, moved: Curve, other: Curve, *, behind: bool) -> tuple[str, str]:
    """Return the option that would make the curves agree, "" if there is none, and what may be behind it."""
    other_side = "reference" if side == "candidate" else "candidate"
    if not is_loss(moved.metric):
        why = sentence("shift_reason.metric_ahead", metric=moved.metric, side=side)
        return (f"--{side}-base 0" if moved.base_guessed else ""), why
    if behind:
        return "", sentence("shift_reason.update_behind", side=other_side)
    if other.base_given == 0:
        option = f"--{other_side}-base"
        return without_option(option), sentence("shift_reason.base_given", option=option)
    if moved.base_guessed:
        option = f"--{side}-base 0"
        return option, sentence("shift_reason.counts_from_zero", option=option)
    return "", sentence("shift_reason.told_late")


def _one_later(moved: Curve, other: Curve, last: int) -> tuple[int, float]:
    """Return the number of common steps, up to `last`, and their mean difference if `moved` is counted one later."""
    at_moved, at_other = common_places(moved.steps + 1, steps_until(other.steps, last))
    return len(at_moved), _mean_difference(moved.values[at_moved], other.values[at_other])


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
    with np.errstate(over="ignore", invalid="ignore"):  # NaN where a side is not finite
        before, after = (float(np.mean(np.abs(two.candidate - two.reference))) for two in (pairs, grouped))
    scale = float(np.mean(np.abs(grouped.reference)))
    if not after <= min(allowed_difference(reference.metric, grouped, scale, preset), UNEXPLAINED_BY_RATIO * before):
        return None
    # What was taken together already counts as well.
    left, right = sizes[0] * reference.grouped, sizes[1] * candidate.grouped
    common = gcd(left, right)
    return Ratio(left // common, right // common, len(grouped.steps), before, after)


def allowed_difference(metric: str, pairs: PairedCurves, scale: float, preset: Preset) -> float:
    """Return the limit of the preset on a single point of such a size, widened by what rounding can add."""
    absolute, relative = limits_for(metric, scale, preset).of_each()
    return max(absolute, relative * scale) + float(np.mean(pairs.widening))


def _mean_difference(one: Floats, other: Floats) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return _mean(one - other)


def _mean(values: Floats) -> float:
    """Return the mean size of what is finite, infinity for nothing."""
    sizes = np.abs(values[np.isfinite(values)])
    with np.errstate(over="ignore"):
        return float(np.mean(sizes)) if len(sizes) else float("inf")


# Two curves whose epochs have unlike numbers of steps, put on the epochs of the reference.
#
# One side drops the last batch of an epoch, or has another batch size, number of devices, or part of the data. Global
# steps then drift apart with each epoch: a point belongs to its batch of its epoch. Where one batch is all that
# differs, it is the same batch on both sides; else a step is other data, and only means over equal shares of epochs
# are alike.


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
        how = "batches" if self.by_batch else "shares" if self.parts else "none"
        if self.kept:
            how = "kept" if self.by_batch else "steps"
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
        epochs = UnlikeEpochs(first, second, by_batch=True)
        moved = epochs.place(reference, "reference"), epochs.place(candidate, "candidate")
        common = [len(common_places(one.steps, other.steps)[0]) for one, other in ((reference, candidate), moved)]
        return replace(epochs, kept=common[0] > common[1], noise=_noise(*moved))
    parts = next((parts for parts in SHARES_OF_EPOCH if _have_points(reference, candidate, parts)), 0)
    epochs = UnlikeEpochs(first, second, by_batch=False, parts=parts)
    if reference.steps[-1] <= first and candidate.steps[-1] <= second and _agree_by_step(reference, candidate, epochs):
        return replace(epochs, kept=True, noise=_noise(reference, candidate))
    if not parts:
        raise UnlikeCurvesError(reference.label, candidate.label, epochs.reason, say("epochs_hint.log_every_step"))
    each = [_shares(curve, length, parts).counts for curve, length in ((reference, first), (candidate, second))]
    points = (float(np.median(counts[counts > 0])) for counts in each)
    return replace(epochs, noise=_noise(reference, candidate, *points))


def _agree_by_step(reference: Curve, candidate: Curve, epochs: UnlikeEpochs) -> bool:
    """Tell whether curves of one epoch agree at the same step rather than at the same share of their epochs."""

    def apart(one: Curve, other: Curve) -> float:
        at, at_other = common_places(one.steps, other.steps)
        return _mean_difference(one.values[at], other.values[at_other])

    by_step = apart(reference, candidate)
    if not epochs.parts:
        return by_step < np.inf
    return by_step <= apart(epochs.place(reference, "reference"), epochs.place(candidate, "candidate"))


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


# Commands `align loss` as sentences: the logs that they name, and their options, are facts, to be filled in later.


class _OfBoth(Sentence):
    """A command on both logs."""

    __slots__ = ()


class _OfOne(Sentence):
    """A command on one of them."""

    __slots__ = ()


class _Without(Sentence):
    """An option that a command is not given, however the logs were compared."""

    __slots__ = ()


def compare_logs(*options: str) -> str:
    """Return the command that compares both logs, with options such as `--metric lr`.

    >>> compare_logs("--metric lr")
    'align loss REFERENCE CANDIDATE --metric lr'
    """
    return _OfBoth.of(sentence("loss_command.compare", reference="REFERENCE", candidate="CANDIDATE", options=options))


def without_option(name: str) -> str:
    """Return what stands among the options of `compare_logs` where leaving out one that was 0 is the answer."""
    return _Without.of(sentence("loss_command.without", option=name))


def describe_log(side: Side) -> str:
    """Return the command that shows what is understood of the log of one side.

    >>> describe_log("candidate")
    'align loss CANDIDATE'
    """
    return _OfOne.of(sentence("loss_command.describe", log=side.upper()))


class LogsOnCommandLine(NamedTuple):
    """The two logs as they are given to `align loss`, and options by name: of the logs, and of what was asked.

    A log that is several files cannot be given so: its name is "".
    """

    reference: str
    candidate: str
    of_logs: Mapping[str, object]
    of_judging: Mapping[str, object]


def name_logs(commands: str, logs: LogsOnCommandLine) -> str:
    """Put the logs into the commands `align loss` of a sentence, with the options that they were read and judged by.

    An option of the command itself goes before; a command on another metric is not given how this one was judged.
    Models and checkpoints are not known here: `align forward REFERENCE CANDIDATE` keeps its two words.
    """
    return _named(commands, logs) if logs.reference and logs.candidate else commands


def _named(value: Any, logs: LogsOnCommandLine) -> Any:
    if isinstance(value, (list, tuple)):
        return [_named(part, logs) for part in value]
    if not isinstance(value, Sentence):
        return value
    if isinstance(value, _OfBoth):
        return _command(value.facts["options"], logs)
    if isinstance(value, _OfOne):
        return sentence("loss_command.describe", log=shlex.quote(getattr(logs, value.facts["log"].lower())))
    return sentence(value.key, **{name: _named(fact, logs) for name, fact in value.facts.items()})


def _command(own: tuple[str, ...], logs: LogsOnCommandLine) -> str:
    dropped = {one.facts["option"] for one in own if isinstance(one, _Without)}
    kept = [one for one in own if not isinstance(one, Sentence)]
    said = dropped | {one.split()[0] for one in kept}
    given = {**logs.of_logs, **({} if "--metric" in said else logs.of_judging)}
    asked = {name: shlex.quote(str(value)) for name, value in given.items() if value is not None}
    options = [f"{name} {value}" for name, value in asked.items() if name not in said]
    reference, candidate = shlex.quote(logs.reference), shlex.quote(logs.candidate)
    return sentence("loss_command.compare", reference=reference, candidate=candidate, options=[*kept, *options])
