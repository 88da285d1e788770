"""A candidate as one more run of the reference: alarms at the stated rate, planted differences found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import binom

from align.core.verdicts import Outcome
from align.curves.evaluate_criteria import Envelope, drift_against_runs, judge_share, make_envelope, pair_with_runs
from align.curves.judge_curves import judge_curves
from align.curves.judging_thresholds import FALSE_ALARM_RATE
from align.curves.loss_log import Curve
from align.curves.place_on_axis import pair_curves
from align.errors import UsageError

REPEATS = 250
LENGTH = 300
DESCENT = 2.0 * np.exp(-np.arange(LENGTH) / 100.0) + 0.3


def _curve(values: np.ndarray, label: str = "run.log", first: int = 1) -> Curve:
    steps = first + np.arange(len(values))
    return Curve(label, "loss", steps, np.asarray(values, np.float64), np.zeros(len(values)))


def _runs(count: int, seed: int = 0, size: float = 0.01) -> list[Curve]:
    source = np.random.default_rng(seed)
    return [_curve(DESCENT + size * source.standard_normal(LENGTH), f"run{i}.log") for i in range(count)]


def _judge(runs: list[Curve], candidate: Curve, **kwargs):
    return judge_curves(runs[0], candidate, pair_curves(runs[0], candidate), reference_runs=runs, **kwargs)


def _noise(kind: str, runs: int, points: int, source: np.random.Generator) -> np.ndarray:
    white = source.standard_normal((runs, points + 300))
    return {
        "white": lambda: white[:, 300:],
        "correlated": lambda: lfilter([1], [1, -0.9], white)[:, 300:],
        "walk": lambda: np.cumsum(white[:, 300:], axis=1),
        "shrinking": lambda: white[:, 300:] * np.exp(-3 * np.arange(points) / points),
        "kept apart": lambda: white[:, 300:] + source.standard_normal((runs, 1)),
    }[kind]()


def _too_many(envelope: Envelope, difference: np.ndarray) -> bool:
    share = judge_share(envelope, np.abs(difference) < envelope.half_width)
    return share is not None and not share.passed


def _alarms(kind: str, runs: int, points: int, repeats: int, change: float = 0.0, factor: float = 1.0) -> np.ndarray:
    """Return how often (the share, a drift) alarms for a candidate that is one more run, but for what is planted."""
    source, found = np.random.default_rng(5), np.zeros(2)
    for _ in range(repeats):
        *known, candidate = _noise(kind, runs + 1, points, source)
        mean = np.mean(known, axis=0)
        envelope, difference = make_envelope(("run",) * runs, known - mean), candidate * factor + change - mean
        drifts = any(test.drifts for test in drift_against_runs(envelope, difference))
        found += _too_many(envelope, difference), drifts
    return found / repeats


@pytest.mark.parametrize("runs", [2, 3, 5])
@pytest.mark.parametrize("kind", ["white", "correlated", "walk", "shrinking", "kept apart"])
def test_one_more_run_of_the_reference_alarms_no_more_than_stated(kind: str, runs: int) -> None:
    share, drift = _alarms(kind, runs, 200, REPEATS)
    most = binom.isf(1e-3, REPEATS, FALSE_ALARM_RATE) / REPEATS
    assert drift <= most
    # Two runs that are close to each other by chance cannot show how far runs keep apart: that is documented.
    assert share <= (0.08 if runs == 2 and kind in {"kept apart", "walk"} else most)


@pytest.mark.parametrize(
    ("runs", "change", "factor", "power"),
    [(2, 1.5, 1.0, 0.9), (2, 0.0, 1.5, 0.7), (3, 1.0, 1.0, 0.9), (3, 0.0, 1.5, 0.9), (5, 0.3, 1.0, 0.8)],
)
def test_a_planted_difference_from_the_runs_is_found(runs: int, change: float, factor: float, power: float) -> None:
    source, found = np.random.default_rng(6), 0
    for _ in range(150):
        known = source.standard_normal((runs, 1000))
        mean = known.mean(0)
        envelope = make_envelope(("run",) * runs, known - mean)
        difference = source.standard_normal(1000) * factor + change - mean
        drifts = any(test.drifts for test in drift_against_runs(envelope, difference))
        found += drifts or _too_many(envelope, difference)
    assert found / 150 >= power


def test_the_interval_holds_95_of_100_points_of_one_more_run() -> None:
    source, inside = np.random.default_rng(7), []
    for _ in range(20):
        *known, candidate = source.standard_normal((4, 2000))
        mean = np.mean(known, axis=0)
        inside.append(np.mean(np.abs(candidate - mean) < make_envelope(("run",) * 3, known - mean).half_width))
    assert np.mean(inside) == pytest.approx(0.95, abs=0.01)


def test_one_more_run_is_aligned_and_the_runs_are_named() -> None:
    *runs, candidate = _runs(4)
    comparison = _judge(runs, candidate)
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert comparison.reference_runs == ("run0.log", "run1.log", "run2.log")
    assert [criterion.name for criterion in comparison.criteria[:2]] == [
        "share of points outside the envelope", "tests that find a drift",
    ]  # fmt: skip
    assert [test.name for test in comparison.drift] == ["mean against the runs", "slope against the runs"]
    np.testing.assert_allclose(comparison.points.reference, np.mean([run.values for run in runs], axis=0))


def test_what_published_limits_would_pass_is_found_by_quieter_runs() -> None:
    *runs, candidate = _runs(4, size=0.0002)
    moved = _curve(candidate.values + 0.003)
    assert judge_curves(runs[0], moved, pair_curves(runs[0], moved)).verdict.outcome is Outcome.ALIGNED
    comparison = _judge(runs, moved)
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    assert comparison.first_divergent_step == 1
    assert comparison.trouble == "first loss differs"


def test_where_the_candidate_leaves_the_envelope_is_the_first_divergent_step() -> None:
    *runs, candidate = _runs(4)
    moved = candidate.values.copy()
    moved[150:] += 0.1
    comparison = _judge(runs, _curve(moved))
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    assert comparison.first_divergent_step == 151
    assert [(event.kind, event.step) for event in comparison.events] == [("change point", 151)]
    assert comparison.events[0].value == pytest.approx(0.1, abs=0.01)


def test_noisy_runs_pass_what_published_limits_would_fail() -> None:
    *runs, candidate = _runs(4, size=0.2)
    assert judge_curves(runs[0], candidate, pair_curves(runs[0], candidate)).verdict.outcome is Outcome.NOT_ALIGNED
    assert _judge(runs, candidate).verdict.outcome is Outcome.ALIGNED


def test_one_run_and_equal_runs_make_no_envelope() -> None:
    run, other, candidate = _runs(3)
    with pytest.raises(UsageError, match="one run of the reference does not show how much"):
        _judge([run], candidate)
    with pytest.raises(UsageError, match=r"reference runs are equal: run0\.log and run0\.log"):
        _judge([run, other, run], candidate)


def test_steps_that_not_all_runs_have_are_left_out_with_a_note() -> None:
    *runs, candidate = _runs(4)
    shorter = _curve(runs[1].values[10:], "late.log", first=11)
    pairs, envelope = pair_with_runs([runs[0], shorter, runs[2]], candidate)
    assert pairs.steps.tolist() == list(range(11, LENGTH + 1))
    assert envelope.half_width.shape == (LENGTH - 10,)
    assert (pairs.unmatched_reference, pairs.unmatched_candidate) == (10, 10)
    assert "10 steps are left out, as not all reference runs have them" in pairs.notes


def test_a_run_that_is_broken_at_a_step_leaves_it_out_and_nan_in_the_candidate_alone_fails() -> None:
    *runs, candidate = _runs(4)
    runs[1].values[20] = math.nan
    candidate.values[40] = math.nan
    comparison = _judge(runs, candidate)
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    assert (comparison.trouble, comparison.first_divergent_step) == ("NaN", 41)
    assert 21 not in comparison.points.step
    assert "1 step is left out, as some of the reference runs are NaN or Inf there" in comparison.notes


def test_runs_are_judged_up_to_the_last_step() -> None:
    *runs, candidate = _runs(4)
    moved = candidate.values.copy()
    moved[150:] += 1.0
    assert _judge(runs, _curve(moved), last_step=150).verdict.outcome is Outcome.ALIGNED


def test_a_run_that_broke_off_does_not_pass_the_rest_silently() -> None:
    *runs, candidate = _runs(4)
    comparison = _judge([runs[0], _curve(runs[1].values[:100], "cut.log"), runs[2]], candidate)
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert "over 100 common steps" in comparison.verdict.reason
    assert (
        "200 points of the candidate were not judged, as not all reference runs have them" in comparison.verdict.reason
    )


def test_two_runs_are_told_to_be_few() -> None:
    *runs, candidate = _runs(3)
    assert any("two reference runs" in note for note in _judge(runs, candidate).notes)


def test_no_common_step_with_the_runs_compares_nothing() -> None:
    *runs, candidate = _runs(4)
    far = _curve(candidate.values, first=1000)
    assert _judge(runs, far).verdict.outcome is Outcome.NOT_COMPARED


def test_the_envelope_is_never_narrower_than_the_printed_digits() -> None:
    rounded = [Curve(run.label, "loss", run.steps, np.round(run.values, 1), np.full(LENGTH, 0.1)) for run in _runs(3)]
    candidate = rounded.pop()
    assert _judge(rounded, candidate).points.limit.min() >= 0.1


def test_points_worth_a_single_one_are_no_criterion_and_told() -> None:
    apart = [_curve(DESCENT + offset, f"run{offset}.log") for offset in (0.0, 0.01, -0.02)]
    comparison = _judge(apart, _curve(DESCENT + 0.005))
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert comparison.preset == "reference runs"
    assert not any(criterion.name.startswith("share") for criterion in comparison.criteria)
    assert "how many points are outside could not be tested" in comparison.verdict.reason
    assert _judge(apart, _curve(DESCENT + 0.5)).verdict.outcome is Outcome.NOT_ALIGNED
