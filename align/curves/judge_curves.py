"""Two paired curves judged: all criteria have to pass, and the reason says what a pass does not cover.

A difference is a difference however few points show it. To pass takes more: a few points out of many, of a log whose
own cadence does not explain that there are so few, could not be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.core.verdicts import Coverage, Outcome, Verdict
from align.curves.change_test import Onset, find_onset
from align.curves.classify_trouble import classify_trouble
from align.curves.event_rules import NOTHING_BESIDE, gather_evidence
from align.curves.examined_curves import ExaminedCurves, drift_note, examine_curves
from align.curves.global_steps import printed_steps
from align.curves.judging_thresholds import (
    CUT_NOISES,
    DRIFT_BLOCKS,
    NOISES_APART,
    OF_NORMAL,
    ONSET_CONFIDENCE,
    ONSET_POINTS,
    POINTS_BEFORE,
    SURE_NOISES,
)
from align.curves.loss_log import CurveComparison, CurveEvent, CurvePoints, DivergentSteps, is_loss
from align.curves.other_axis import compare_logs, describe_log, find_common_base
from align.curves.place_on_axis import cadence
from align.curves.presets import GUIDE
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.curves.evaluate_criteria import JudgedPoints, OtherMetrics
    from align.curves.loss_log import Criterion, Curve, Floats, PairedCurves
    from align.curves.other_axis import UnlikeEpochs
    from align.curves.presets import Preset


def judge_curves(  # noqa: PLR0913 - one argument for each thing that a verdict may rest on
    reference: Curve,
    candidate: Curve,
    pairs: PairedCurves,
    last_step: int | None = None,
    preset: Preset = GUIDE,
    reference_runs: Sequence[Curve] = (),
    beside: OtherMetrics = NOTHING_BESIDE,
    epochs: UnlikeEpochs | None = None,
    caveats: Sequence[str] = (),
) -> CurveComparison:
    """Judge two curves up to `last_step`, by the limits of a preset or against several runs of the reference.

    `beside` is what the logs tell beside these curves: evidence for the class of trouble, not for the verdict. `epochs`
    says how the epochs of both differ, where they do: the curves are those on the reference's. `caveats` are said
    first. Without a common point that can be judged, or with too few of them to pass, the outcome is NOT_COMPARED.
    Raises UsageError for reference runs that make no envelope (one, equal ones), UnlikeCurvesError.
    """
    examined = examine_curves(reference, candidate, pairs, last_step, preset, reference_runs)
    verdict = _verdict(examined, epochs, caveats)
    judged = verdict.outcome is not Outcome.NOT_COMPARED
    points = _points(examined)
    failed = _failed(examined)
    divergence = locate_divergence(examined, failed, points)
    divergent = None if divergence.point is None else int(points.step[divergence.point])
    evidence = gather_evidence(examined, failed, divergent, last_step, beside, epochs)
    trouble, command = classify_trouble(evidence) if judged else ("", _look_again(examined))
    finite = points.difference[np.isfinite(points.difference)]
    drift = drift_note(examined.drift, finite, within_limits=not examined.values_differ)
    return CurveComparison(
        metric=reference.metric,
        preset="reference runs" if examined.envelope else preset.name,
        reference=reference,
        candidate=candidate,
        points=points,
        criteria=tuple(examined.criteria.values()),
        first_divergent_step=divergent,
        trouble=trouble,
        next_command=command,
        verdict=verdict,
        notes=(*_curve_notes(examined), *_untested(examined), *filter(None, (drift,))),
        reference_runs=examined.envelope.labels if examined.envelope else (),
        drift=examined.drift,
        events=change_events(examined, divergence.changed, points),
        divergent_steps=divergence.steps,
    )


def _look_again(examined: ExaminedCurves) -> str:
    """Return what to run where nothing could be compared."""
    option = "" if len(examined.pairs.steps) else find_common_base(examined.reference, examined.candidate)
    if option:
        return sentence("loss_next.counts_from_zero", command=compare_logs(option))
    return sentence("loss_next.look_at_each", reference=describe_log("reference"), candidate=describe_log("candidate"))


def _untested(examined: ExaminedCurves) -> list[str]:
    """Say what was to be tested and could not be; drift is where there are points enough."""
    asked = examined.judged.limits.drift or len(examined.pairs.steps) >= DRIFT_BLOCKS
    untested: list[str] = []
    if asked and examined.criteria and not examined.drift:
        untested.append(sentence("loss_note.drift_untested"))
    if examined.envelope and examined.criteria and "share" not in examined.criteria:
        untested.append(sentence("loss_note.share_untested"))
    return untested


def _failed(examined: ExaminedCurves) -> frozenset[str]:
    """Return the keys of the criteria that failed, and "first" and "mean" where others failed for these points."""
    failed = examined.failed
    if failed.isdisjoint({"every", "share", "drift"}):
        return failed
    stays = examined.envelope is None or (examined.stretch is not None and examined.stretch.first == 0)
    first = examined.judged.first_compared and not examined.judged.within[0] and stays
    return failed | {"mean"} | ({"first"} if first else set())


def _points(examined: ExaminedCurves) -> CurvePoints:
    pairs, judged = examined.pairs, examined.judged
    with np.errstate(invalid="ignore", over="ignore"):
        difference = pairs.candidate - pairs.reference
    return CurvePoints(
        len(pairs.steps), pairs.steps, pairs.reference, pairs.candidate, difference, judged.limit, judged.within
    )


def _verdict(examined: ExaminedCurves, epochs: UnlikeEpochs | None, caveats: Sequence[str]) -> Verdict:
    excluded = int(np.count_nonzero(~examined.judged.finite & examined.judged.within))
    coverage = Coverage(
        unit="steps" if examined.reference.axis == "step" else "epochs",
        compared=len(examined.pairs.steps) - excluded,
        excluded=excluded,
        unmatched_reference=examined.pairs.unmatched_reference,
        unmatched_candidate=examined.pairs.unmatched_candidate,
    )
    outcome, reasons = _outcome(examined, coverage, epochs)
    return Verdict(outcome, joined("; ", [*caveats, *([epochs.reason] if epochs else []), *reasons]), coverage)


def _outcome(examined: ExaminedCurves, coverage: Coverage, epochs: UnlikeEpochs | None) -> tuple[Outcome, list[str]]:
    failed = [criterion for criterion in examined.criteria.values() if not criterion.passed]
    if not coverage.compared and not len(examined.not_finite):
        return Outcome.NOT_COMPARED, [_why_not_compared(examined.reference, examined.candidate, coverage.excluded)]
    if examined.too_few and not examined.values_differ:
        return Outcome.NOT_COMPARED, [sentence("loss_verdict.too_little", reason=examined.too_few)]
    if failed and epochs is not None and _is_noise(examined, epochs):
        return Outcome.NOT_COMPARED, [*map(_said_of, failed), sentence("epochs_verdict.noise")]
    if failed:
        return Outcome.NOT_ALIGNED, [*map(_said_of, failed)]
    if coverage.excluded and is_loss(examined.reference.metric):
        first = examined.pairs.steps[~examined.judged.finite][0]
        return Outcome.NOT_COMPARED, [sentence("loss_verdict.both_not_finite", count=coverage.excluded, first=first)]
    return Outcome.ALIGNED, _what_a_pass_covers(examined, coverage)


def _is_noise(examined: ExaminedCurves, epochs: UnlikeEpochs) -> bool:
    """Tell whether the curves are no further apart than the noise of unlike batches makes them, and to neither side."""
    if not examined.failed <= {"first", "mean", "every", "drift"}:
        return False
    finite = examined.judged.finite
    apart = (examined.pairs.candidate - examined.pairs.reference)[finite]
    mean = SURE_NOISES * epochs.noise / len(apart) ** 0.5
    return bool(np.mean(np.abs(apart)) <= NOISES_APART * epochs.noise and abs(np.mean(apart)) <= mean)


def _said_of(failed: Criterion) -> str:
    """Tell a criterion in as many digits as show that it failed; counts in all."""
    for digits in (3, 6, 17):
        value, bound = (
            f"{one:,.0f}" if float(one).is_integer() and abs(one) >= 1 else f"{one:.{digits}g}"
            for one in (failed.value, failed.bound)
        )
        if value != bound:
            break
    return sentence("loss_verdict.failed", criterion=failed.name, value=value, bound=bound)


def _why_not_compared(reference: Curve, candidate: Curve, alike: int) -> str:
    if alike:
        return sentence("loss_verdict.none_finite", count=alike)

    def where(curve: Curve) -> str:
        every = cadence(curve.steps) if len(curve.steps) > 1 else None
        key = "loss_verdict.span_of_steps" if curve.axis == "step" else "loss_verdict.span_of_epochs"
        return sentence(key, first=curve.steps[0], last=curve.steps[-1], every=every)

    return sentence("loss_verdict.no_common_step", reference=where(reference), candidate=where(candidate))


def _what_a_pass_covers(examined: ExaminedCurves, coverage: Coverage) -> list[str]:
    """Say over how much the curves agree, and what the reader should know before relying on it."""
    judged = examined.judged
    few = examined.envelope is None and coverage.compared < judged.limits.points
    asked = judged.limits.points if few else None
    unit = sentence("unit.steps") if coverage.unit == "steps" else sentence("unit.epochs")
    within = sentence("loss_verdict.within", count=coverage.compared, unit=unit, asked=asked)
    said: list[str] = [*filter(None, (examined.part,)), within]
    if examined.envelope and coverage.unmatched_candidate:
        said.append(sentence("loss_verdict.not_in_all_runs", count=coverage.unmatched_candidate))
    if not judged.first_compared and examined.envelope is None and judged.limits.asks("first"):
        by_steps = examined.reference.axis == "step"
        key = "loss_verdict.first_not_finite" if by_steps else "loss_verdict.first_of_epochs"
        said.append(sentence(key, metric=judged.metric))
    if len(examined.outside):
        first = examined.pairs.steps[examined.outside[0]]
        said.append(sentence("loss_verdict.single_points", count=len(examined.outside), step=first))
    return [*said, *_untested(examined), *_hidden_by_rounding(judged)]


def _curve_notes(examined: ExaminedCurves) -> Iterator[str]:
    """Yield all notes on two curves, those of their pairing first."""
    yield from examined.pairs.notes
    yield from _cadence_notes(examined.reference, examined.candidate)
    for side, holes in examined.holes.items():
        if holes:
            missing, first = sum(hole.missing for hole in holes), holes[0]
            yield sentence("loss_note.missing", count=missing, side=side, before=first.before, after=first.after)
    alike = examined.pairs.steps[~examined.judged.finite & examined.judged.within]
    if len(alike):
        yield sentence("loss_note.non_finite_alike", count=len(alike), first=alike[0])
    yield from _hidden_by_rounding(examined.judged)
    yield from (found.note for found in (*examined.other_axis, examined.means) if found)


def _hidden_by_rounding(judged: JudgedPoints) -> list[str]:
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


# Where two curves part, as the step that is most likely and the steps between which it lies.
#
# A fact has its place: a first loss outside its limit, NaN on one side, any point where each has to be inside. All
# else is a change in noise, which is known only within an interval; and what noise alone explains parts nowhere.


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
    onset = find_onset(points.difference, points.limit, examined.stretch)
    few = int(np.count_nonzero(np.isfinite(points.difference))) < ONSET_POINTS
    usual = not few and _first_is_usual(points.difference, onset)
    facts = _facts(examined, failed - {"first"} if usual else failed)
    if onset is not None and (inside := [fact for fact in facts if onset.first <= fact <= onset.last]):
        onset = Onset(inside[0], inside[0], inside[0])
    if onset is None and few and examined.stretch is not None:
        changed = examined.stretch.first
        # The steps of a fact are known if it is not later than a change of unknown noise.
        fact = Onset(facts[0], facts[0], facts[0]) if facts and facts[0] <= changed else None
        return Divergence(min([*facts, changed]), fact and _in_steps(examined, fact, 1.0), changed)
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


def _in_steps(examined: ExaminedCurves, onset: Onset, confidence: float) -> DivergentSteps:
    """Tell the steps: since the common step before the first point, and of what grows, with that step."""
    steps = examined.pairs.steps
    before = onset.first - 1
    first = int(steps[before]) + 1 if before >= 0 else min(1, int(steps[0]))
    if onset.gradual and before >= 0:
        first -= 1
    return DivergentSteps(first, int(steps[onset.last]), int(steps[onset.likely]), confidence)
