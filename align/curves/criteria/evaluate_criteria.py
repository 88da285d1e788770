"""The criteria of a loss verdict: what was found, what is allowed, where the bound comes from.

Rounding to the printed digits widens every limit, and where that is more than the limit itself it is noted. A criterion
that cannot be evaluated is not made, so that it can never count as passed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.criteria.runs_envelope import judge_share
from align.curves.criteria_thresholds import FIRST_ROUNDING, LIMIT_ROUNDINGS
from align.curves.curve_result import Criterion
from align.curves.presets import GUIDE, limits_for
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from align.curves.criteria.runs_envelope import Envelope
    from align.curves.curve_result import DriftTest
    from align.curves.loss_log import Floats, PairedCurves
    from align.curves.presets import CurveLimits, Preset


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
    alike = (pairs.reference == pairs.candidate) | (np.isnan(pairs.reference) & np.isnan(pairs.candidate))
    size = np.abs(pairs.reference)
    first = bool(by_steps and len(size) and pairs.steps[0] == 1 and finite[0])
    with np.errstate(invalid="ignore", over="ignore"):
        limits = limits_for(metric, float(np.mean(size[finite])) if finite.any() else 0.0, preset)
        difference = np.abs(pairs.candidate - pairs.reference)
        own = _own_limits(limits, size, first) if envelope is None else envelope.half_width
        limit = np.where(finite, own + pairs.widening if envelope is None else np.maximum(own, pairs.widening), np.nan)
        # Values that are printed alike or next to each other differ by a multiple of the last digit, but for rounding.
        below = difference < limit - LIMIT_ROUNDINGS * np.spacing(size)
    within = np.where(finite, below | (difference == 0.0), alike)
    agrees = first and bool(difference[0] <= max(FIRST_ROUNDING * size[0], pairs.widening[0]))
    hidden = float(pairs.widening[finite & (pairs.widening > own)].max(initial=0.0))
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
    found: dict[str, Criterion] = {}
    limits, finite = judged.limits, judged.finite
    enough = judged.first_compared or np.count_nonzero(finite) > 1
    if envelope is not None and enough:
        share = judge_share(envelope, judged.within[finite])
        found |= {"share": share} if share is not None else {}
    elif envelope is None:
        if judged.first_compared and limits.asks("first"):
            found["first"] = _first(pairs, judged)
        if enough and limits.asks("mean"):
            found["mean"] = _mean(pairs, judged)
        if enough and limits.asks("every"):
            found["every"] = _every(judged)
    if drift and (limits.drift or envelope is not None):
        found["drift"] = _drift(drift, limits.source if envelope is None else sentence("loss_source.one_more_run"))
    name = sentence("loss_criterion.non_finite")
    found["non-finite"] = Criterion(name, not_finite, 0, not_finite == 0, _by_definition())
    return found


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
