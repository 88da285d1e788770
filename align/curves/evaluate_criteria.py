"""The criteria of a loss verdict: what was found, what is allowed, where the bound comes from.

Rounding to the printed digits widens every limit, and where that is more than the limit itself it is noted. A criterion
that cannot be evaluated is not made, so that it can never count as passed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from math import ceil, copysign, inf, sqrt
from typing import TYPE_CHECKING, NamedTuple, Union

import numpy as np
import scipy

from align.curves.change_test import find_stretch
from align.curves.curve_shapes import average_blocks, centred_times
from align.curves.judging_thresholds import (
    ALLOWED_OUTSIDE,
    FALSE_ALARM_RATE,
    FEWEST_RUNS,
    FIRST_ROUNDING,
    LIMIT_ROUNDINGS,
    POOLED_STEPS,
    PREDICTION_COVERAGE,
)
from align.curves.loss_log import Criterion, Curve, DriftTest, OtherMetric, PairedCurves, same_metric
from align.curves.place_on_axis import common_places, pair_curves
from align.curves.presets import GUIDE, limits_for
from align.errors import AlignError, UsageError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from align.curves.loss_log import Booleans, Floats, LossLog
    from align.curves.presets import CurveLimits, Preset

    Place = Callable[[LossLog, str], Curve]


@dataclass(frozen=True, slots=True, eq=False)
class JudgedPoints:
    """The figures of all common points, arrays of shape (common,); `limit` is NaN where a side is not finite.

    `first_compared` says whether global step 1 is common and finite on both sides, `first_agrees` whether it is equal
    there but for rounding. `hidden` is the largest widening that is more than the limit it widens, 0.0 if none is.
    """

    metric: str
    limits: CurveLimits
    difference: Floats
    limit: Floats
    finite: NDArray[np.bool_]
    within: NDArray[np.bool_]
    first_compared: bool
    first_agrees: bool
    hidden: float


class Ends(NamedTuple):
    """The last step of each curve, and the coarser of their cadences: ends closer than that lie together."""

    reference: int
    candidate: int
    coarser: int

    @property
    def together(self) -> bool:
        """True if neither curve ends before the other."""
        return abs(self.reference - self.candidate) < self.coarser


class _Form(NamedTuple):
    """One form of a criterion: the published bound, and the one in force after widening."""

    kind: str
    found: float
    published: float
    bound: float

    @property
    def passes(self) -> bool:
        return self.found < self.bound or self.found == 0.0

    @property
    def nearness(self) -> float:
        return 0.0 if self.found == 0.0 else self.found / self.bound if self.bound > 0.0 else float("inf")


def measure_points(
    metric: str, by_steps: bool, pairs: PairedCurves, preset: Preset = GUIDE, envelope: Envelope | None = None
) -> JudgedPoints:
    """Take the difference and the limit of every common point; NaN or Inf alike on both sides is within.

    The limit of a point is that of the preset, or the envelope of reference runs.
    """
    finite = np.isfinite(pairs.reference) & np.isfinite(pairs.candidate)
    equal = (pairs.reference == pairs.candidate) | (np.isnan(pairs.reference) & np.isnan(pairs.candidate))
    size = np.abs(pairs.reference)
    first = bool(by_steps and len(size) and pairs.steps[0] == 1 and finite[0])
    with np.errstate(invalid="ignore", over="ignore"):
        limits = limits_for(metric, float(np.mean(size[finite])) if finite.any() else 0.0, preset)
        difference = np.abs(pairs.candidate - pairs.reference)
        allowed = _own_limits(limits, size, first) if envelope is None else envelope.half_width
        limit = np.where(
            finite, allowed + pairs.widening if envelope is None else np.maximum(allowed, pairs.widening), np.nan
        )
        # Values that are printed alike or next to each other differ by a multiple of the last digit, but for rounding.
        below = difference < limit - LIMIT_ROUNDINGS * np.spacing(size)
    within = np.where(finite, below | (difference == 0.0), equal)
    agrees = first and bool(difference[0] <= max(FIRST_ROUNDING * size[0], pairs.widening[0]))
    hidden = float(pairs.widening[finite & (pairs.widening > allowed)].max(initial=0.0))
    return JudgedPoints(metric, limits, difference, limit, finite, within, first, agrees, hidden)


def _own_limits(limits: CurveLimits, size: Floats, first: bool) -> Floats:
    absolute, relative = limits.of_each()
    own = np.maximum(absolute, relative * size)
    if first and limits.asks("first"):
        own[0] = max(limits.first_abs, limits.first_rel * size[0])
    return own


def evaluate_values(
    pairs: PairedCurves,
    judged: JudgedPoints,
    drift: tuple[DriftTest, ...],
    envelope: Envelope | None = None,
    not_finite: int = 0,
) -> dict[str, Criterion]:
    """Evaluate what can be evaluated of the values: `first`, `mean`, `every`, `share`, `drift`, `non-finite`.

    `share` comes in place of the first three where there are reference runs. One point that is not the first loss makes
    no mean. `not_finite` counts the points, common or not, at which one side alone is NaN or Inf.
    """
    if not len(pairs.steps):
        return {}
    criteria: dict[str, Criterion] = {}
    limits, finite = judged.limits, judged.finite
    enough = judged.first_compared or np.count_nonzero(finite) > 1
    if envelope is not None and enough:
        share = judge_share(envelope, judged.within[finite])
        criteria |= {"share": share} if share is not None else {}
    elif envelope is None:
        if judged.first_compared and limits.asks("first"):
            criteria["first"] = _first(pairs, judged)
        if enough and limits.asks("mean"):
            criteria["mean"] = _mean(pairs, judged)
        if enough and limits.asks("every"):
            criteria["every"] = _every(judged)
    if drift and (limits.drift or envelope is not None):
        criteria["drift"] = _drift(drift, limits.source if envelope is None else sentence("loss_source.one_more_run"))
    name = sentence("loss_criterion.non_finite")
    criteria["non-finite"] = Criterion(name, not_finite, 0, not_finite == 0, _by_definition())
    return criteria


def evaluate_steps(ends: Ends, missing: int) -> dict[str, Criterion]:
    """Evaluate which steps there are: `holes` (`missing` points lack inside of a log) and `length`."""
    apart = abs(ends.reference - ends.candidate)
    return {
        "holes": Criterion(sentence("loss_criterion.holes"), missing, 0, missing == 0, _by_definition()),
        "length": Criterion(
            sentence("loss_criterion.length"), apart, ends.coarser - 1, ends.together, _by_definition()
        ),
    }


def _by_definition() -> str:
    return sentence("loss_source.by_definition")


def _first(pairs: PairedCurves, judged: JudgedPoints) -> Criterion:
    limits, widening, size = judged.limits, float(pairs.widening[0]), abs(float(pairs.reference[0]))
    difference = float(judged.difference[0])
    forms = [_Form("absolute", difference, limits.first_abs, limits.first_abs + widening)]
    if size:
        forms.append(_Form("relative", difference / size, limits.first_rel, limits.first_rel + widening / size))
    return replace(_either("loss_criterion.first", judged.metric, forms, limits), passed=bool(judged.within[0]))


def _mean(pairs: PairedCurves, judged: JudgedPoints) -> Criterion:
    limits, finite = judged.limits, judged.finite
    size, difference, widening = np.abs(pairs.reference[finite]), judged.difference[finite], pairs.widening[finite]
    with np.errstate(over="ignore"):
        mean, widened = float(np.mean(difference)), float(np.mean(widening))
        forms = [_Form("absolute", mean, limits.mean_abs, limits.mean_abs + widened)]
        if np.all(size > 0):
            mean, widened = float(np.mean(difference / size)), float(np.mean(widening / size))
            forms.append(_Form("relative", mean, limits.mean_rel, limits.mean_rel + widened))
    return _either("loss_criterion.mean", judged.metric, forms, limits)


def _every(judged: JudgedPoints) -> Criterion:
    limits, outside = judged.limits, int(np.count_nonzero(judged.finite & ~judged.within))
    bounds = {"absolute": limits.every_abs, "relative": limits.every_rel}
    asked = [_below(kind, bound) for kind, bound in bounds.items() if bound] or [sentence("loss_source.equal")]
    name = sentence("loss_criterion.every", metric=judged.metric)
    source = sentence("loss_source.limits", source=limits.source, asked=asked, widened=None)
    return Criterion(name, outside, 0, outside == 0, source)


def _drift(tests: tuple[DriftTest, ...], source: str) -> Criterion:
    found = sum(test.drifts for test in tests)
    held = sentence("loss_source.tests", source=source, count=len(tests), level=tests[0].level)
    return Criterion(sentence("loss_criterion.drift"), found, 0, found == 0, held)


def _either(key: str, metric: str, forms: list[_Form], limits: CurveLimits) -> Criterion:
    """Make a criterion of which one form has to pass, and show the form nearer to passing."""
    usable = [form for form in forms if form.published > 0.0] or forms
    nearer = min(usable, key=lambda form: form.nearness)
    asked = [_below(form.kind, form.published) for form in usable]
    added = nearer.bound - nearer.published
    widened = added if added > nearer.published / 1000 else None
    source = sentence("loss_source.limits", source=limits.source, asked=asked, widened=widened)
    name = sentence(key, metric=metric, kind=sentence(f"loss_form.{nearer.kind}"))
    return Criterion(name, nearer.found, nearer.bound, nearer.passes, source)


def _below(kind: str, bound: float) -> str:
    return sentence("loss_source.below", kind=sentence(f"loss_form.{kind}"), bound=bound)


# Several runs of the reference, and what one more run of the same kind may look like at each step.
#
# Each step gets a prediction interval about the mean of the runs: mean +- t s sqrt(1 + 1/runs). The runs are few, so
# their variance is pooled over the steps around: it has to change slowly, and all steps in the window count together
# for as many degrees of freedom as they are independent.
#
# Runs that start from other seeds can keep apart for as long as they last, and no number of steps makes up for few
# runs. So for drift each run gives one figure, its mean or its slope, whatever is alike inside it; only how many
# points are outside is counted by steps.


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """What the runs tell at the steps that all of them and the candidate have.

    `half_width`, shape (steps,), is half of the prediction interval in units of the metric, NaN where the runs are not
    finite. `deviations`, shape (runs, steps), are the runs without their mean. `correlated` is how many neighbouring
    steps are worth one independent step, at least 1.
    """

    labels: tuple[str, ...]
    half_width: Floats
    deviations: Floats
    correlated: float


def pair_with_runs(
    runs: Sequence[Curve], candidate: Curve, last_step: int | None = None
) -> tuple[PairedCurves, Envelope]:
    """Pair the mean of the runs with the candidate at the steps that all have, and give the envelope there.

    Raises UsageError for fewer than two runs, equal ones, or ones that are logged in unlike ways; UnlikeCurvesError.
    """
    if len(runs) < FEWEST_RUNS:
        raise UsageError.of("log_usage.one_run")
    pairs = [pair_curves(run, candidate, last_step) for run in runs]
    steps = reduce(lambda left, right: left[common_places(left, right)[0]], (pair.steps for pair in pairs))
    at = [common_places(pair.steps, steps)[0] for pair in pairs]
    values, candidates, widenings = (
        np.stack([getattr(pair, name)[places] for pair, places in zip(pairs, at, strict=True)])
        for name in ("reference", "candidate", "widening")
    )
    _check_runs(runs, values, candidates)
    usable = np.isfinite(values).all(0) | ~np.isfinite(values).any(0)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = values.mean(0)
        deviations = (values - mean)[:, usable]
    joined = PairedCurves(
        steps=steps[usable],
        reference=mean[usable],
        candidate=candidates[0, usable],
        widening=widenings[:, usable].mean(0),
        unmatched_reference=max(pair.unmatched_reference + len(pair.steps) for pair in pairs) - int(usable.sum()),
        unmatched_candidate=pairs[0].unmatched_candidate + len(pairs[0].steps) - int(usable.sum()),
        notes=(*_notes(pairs, usable), *dict.fromkeys(note for pair in pairs for note in pair.notes)),
    )
    return joined, make_envelope(tuple(run.label for run in runs), deviations)


def make_envelope(labels: tuple[str, ...], deviations: Floats) -> Envelope:
    """Make the envelope of runs whose deviations from their mean are known, shape (runs, steps)."""
    finite = np.isfinite(deviations).all(0)
    known, more = deviations[:, finite], len(labels) - 1
    spread = np.sqrt(_moving_mean(np.sum(known * known, axis=0) / more))
    correlated = _correlated_steps(np.divide(known, spread, out=np.zeros_like(known), where=spread > 0.0))
    freedom = more * max(1.0, min(POOLED_STEPS, known.shape[1]) / correlated)
    half_width = np.full(len(finite), np.nan)
    half_width[finite] = (
        scipy.special.stdtrit(freedom, (1 + PREDICTION_COVERAGE) / 2) * spread * sqrt(1 + 1 / len(labels))
    )
    return Envelope(labels, half_width, deviations, correlated)


def _moving_mean(values: Floats) -> Floats:
    """Average over `POOLED_STEPS` steps around each, fewer at the ends; sums of their own, so that nothing cancels."""
    if not len(values):
        return values
    window = np.ones(min(POOLED_STEPS, len(values) - (len(values) + 1) % 2))
    around = [np.convolve(column, window, "same") for column in (values, np.ones(len(values)))]
    mean: Floats = around[0] / around[1]
    return mean


def _correlated_steps(standardised: Floats) -> float:
    """Return the integrated autocorrelation time in steps, about zero: a run that keeps apart is all alike."""
    variance = float(np.mean(standardised**2)) if standardised.size else 0.0
    if variance == 0.0:
        return 1.0
    count, blocks = standardised.shape[1], average_blocks(standardised, 2, detrend=False)
    if blocks.correlation > 0.0:
        return float(count)
    return float(np.clip(blocks.length * np.mean(blocks.means**2) / variance, 1.0, count))


def _check_runs(runs: Sequence[Curve], values: Floats, candidates: Floats) -> None:
    equal = [
        f"{runs[one].label} and {runs[other].label}"
        for one, other in combinations(range(len(runs)), 2)
        if values.shape[1] and np.array_equal(values[one], values[other], equal_nan=True)
    ]
    if equal:
        raise UsageError.of("log_usage.equal_runs", equal=equal)
    if any(not np.array_equal(candidates[0], other, equal_nan=True) for other in candidates[1:]):
        raise UsageError.of("log_usage.unlike_runs")


def _notes(pairs: list[PairedCurves], usable: Booleans) -> Iterator[str]:
    if len(pairs) == FEWEST_RUNS:
        yield sentence("loss_note.two_runs")
    if any(len(pair.steps) > len(usable) for pair in pairs):
        lone = len(reduce(np.union1d, (pair.steps for pair in pairs))) - len(usable)
        yield sentence("loss_note.not_in_all_runs", count=lone)
    broken = int(np.count_nonzero(~usable))
    if broken:
        yield sentence("loss_note.run_not_finite", count=broken)


def judge_share(envelope: Envelope, within: Booleans) -> Criterion | None:
    """Judge how many of the points, shape (points,), are outside the envelope; None if they are worth too few to tell.

    A binomial test against `ALLOWED_OUTSIDE` at `FALSE_ALARM_RATE`, over as many points as are
    worth an independent one.
    """
    independent = max(1, int(len(within) / envelope.correlated))
    most = ceil(scipy.special.bdtrik(1 - FALSE_ALARM_RATE, independent, ALLOWED_OUTSIDE))
    if most >= independent:
        return None
    share, bound = float(np.mean(~within)), (most + 1) / independent
    facts = {"coverage": PREDICTION_COVERAGE, "allowed": ALLOWED_OUTSIDE, "level": FALSE_ALARM_RATE}
    source = sentence("loss_source.envelope", **facts, runs=len(envelope.labels), points=independent)
    return Criterion(sentence("loss_criterion.share"), share, bound, share < bound, source)


def drift_against_runs(envelope: Envelope, difference: Floats) -> tuple[DriftTest, ...]:
    """Test whether the mean and the slope of the candidate are those of one more run; () without points.

    `difference` is candidate - mean of the runs, shape (steps,). The t test for one more observation: exact for any
    correlation along the steps, if means and slopes of runs are normally distributed. Each is held to half of
    `FALSE_ALARM_RATE`.
    """
    finite = np.isfinite(difference) & np.isfinite(envelope.half_width)
    known, runs = difference[finite], envelope.deviations[:, finite]
    if not len(known):
        return ()
    scale = max(float(np.abs(known).max()), float(np.abs(runs).max())) or 1.0
    known, runs, times = known / scale, runs / scale, centred_times(len(known))
    change = scale * float(times @ known) / max(float(times @ times), 1.0) * len(known)
    return tuple(
        replace(
            _one_more_run(name, sentence(alike, count=len(runs)), runs @ weights, float(known @ weights), change),
            of_slope=weights is times,
        )
        for name, alike, weights in (
            (sentence("drift_test.mean_against_runs"), "drift_test.means_alike", np.ones(len(known))),
            (sentence("drift_test.slope_against_runs"), "drift_test.slopes_alike", times),
        )
        if weights.any()
    )


def _one_more_run(name: str, assumption: str, of_runs: Floats, of_candidate: float, change: float) -> DriftTest:
    """Test one figure of the candidate against those of the runs; both are differences from the mean of the runs."""
    count = len(of_runs)
    spread = sqrt(float(of_runs @ of_runs) / (count - 1) * (1 + 1 / count))
    statistic = of_candidate / spread if spread else copysign(inf, of_candidate) if of_candidate else 0.0
    p_value = 2.0 * float(scipy.special.stdtr(count - 1, -abs(statistic)))
    return DriftTest(name, statistic, p_value, FALSE_ALARM_RATE / 2, p_value < FALSE_ALARM_RATE / 2, change, assumption)


# The other metrics that two logs share, under whatever names, compared as the loss is: what they tell is evidence.
#
# A metric that cannot be placed or compared is left out with the reason, as the verdict is on another one.

Sides = tuple[Union[Curve, None], Union[Curve, None]]  # noqa: UP007 - evaluated at run time, on 3.10 too
# How long something took and how far the training has come are no results of it; speed is compared by itself.
TIMES = frozenset({"s", "ms", "time", "eta", "cost", "ips", "speed", "throughput", "second", "memory", "mem", "flops"})
COUNTERS = frozenset({"step", "epoch", "iter", "iteration", "global_step", "batch"})

OF_STEPS = ("lr", "loss_scale", "grad_norm")


@dataclass(frozen=True, slots=True, eq=False)
class OtherMetrics:
    """What two logs tell beside the compared metric; `losses` are those of training, where it is not these itself.

    They, `lr`, `loss_scale` and `grad_norm` are curves, None where a log lacks them.
    """

    others: tuple[OtherMetric, ...] = ()
    lr: Sides = (None, None)
    loss_scale: Sides = (None, None)
    losses: Sides = (None, None)
    grad_norm: Sides = (None, None)
    notes: tuple[str, ...] = ()


def read_other_metrics(
    reference: LossLog, candidate: LossLog, metric: str, place: Place, preset: Preset = GUIDE
) -> OtherMetrics:
    """Compare what both logs have besides `metric`, and take the learning rates, loss scales ... of either."""
    evidence = (*OF_STEPS, "loss") if metric != "loss" else OF_STEPS
    known: dict[tuple[int, str], Curve] = {}

    def place_once(log: LossLog, name: str) -> Curve:
        found = known.get((id(log), name)) or place(log, name)
        if name in evidence:
            known[id(log), name] = found
        return found

    others, notes = compare_others(reference, candidate, metric, place_once, preset)

    def placed(log: LossLog, name: str) -> Curve | None:
        try:
            return place_once(log, name)
        except AlignError:
            return None

    curves = {name: (placed(reference, name), placed(candidate, name)) for name in evidence}
    return OtherMetrics(
        others, **{"losses" if name == "loss" else name: pair for name, pair in curves.items()}, notes=notes
    )


def compare_others(
    reference: LossLog, candidate: LossLog, metric: str, place: Place, preset: Preset = GUIDE
) -> tuple[tuple[OtherMetric, ...], tuple[str, ...]]:
    """Compare every metric that both logs have besides `metric`, and say of which that could not be done.

    `place` puts a metric of a log on the axis.
    """
    metrics, notes = [], []
    for name in _shared(reference, candidate, metric):
        try:
            compared = _compare(place(reference, name), place(candidate, name), preset)
        except AlignError as error:
            notes.append(sentence("loss_note.metric_not_compared", metric=name, reason=error.message))
            continue
        if compared.compared:
            metrics.append(compared)
        else:
            notes.append(sentence("loss_note.metric_apart", metric=name))
    return tuple(metrics), tuple(notes)


def _shared(reference: LossLog, candidate: LossLog, metric: str) -> Iterator[str]:
    """Yield the names that find a metric in both logs, of training in both or of validation in both."""
    names = ("loss" if name == reference.loss_name else same_metric(name) for name in sorted(reference.table.metrics))
    for name in dict.fromkeys(names):
        left, right = reference.series(name), candidate.series(name)
        if left is None or right is None or name == same_metric(metric) or name in COUNTERS:
            continue
        if left.phase == right.phase and TIMES.isdisjoint(re.split(r"[\W_]+", name.lower())):
            yield name


def _compare(reference: Curve, candidate: Curve, preset: Preset) -> OtherMetric:
    pairs = pair_curves(reference, candidate)
    judged = measure_points(reference.metric, reference.axis == "step", pairs, preset)
    stretch = find_stretch(judged.difference, judged.limit, judged.within)
    sizes = np.where(np.isnan(judged.difference), np.where(judged.within, 0.0, np.inf), judged.difference)
    largest = int(np.argmax(sizes)) if len(sizes) else None
    return OtherMetric(
        metric=reference.metric,
        compared=len(pairs.steps),
        within=int(np.count_nonzero(judged.within)),
        first_divergent_step=None if stretch is None else int(pairs.steps[stretch.first]),
        largest_difference=0.0 if largest is None else float(sizes[largest]),
        largest_at=None if largest is None else int(pairs.steps[largest]),
        last_divergent_step=int(pairs.steps[stretch.last]) if stretch is not None and stretch.ended else None,
    )
