"""Planted differences found with the right class, clean twins passed, limits at their edges."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.curves.judge_curves import judge_curves
from align.curves.loss_log import Curve
from align.curves.place_on_axis import pair_curves

if TYPE_CHECKING:
    from align.curves.loss_log import CurveComparison

NAN, INF = math.nan, math.inf
STEPS = 100
DESCENT = 2.0 * np.exp(-np.arange(STEPS) / 40.0) + 0.3
WOBBLE = 0.004 * np.sin(np.arange(STEPS) * 1.7)


def _curve(values: object, *, first: int = 1, every: int = 1, metric: str = "loss", resolution: float = 0.0) -> Curve:
    numbers = np.asarray(values, np.float64)
    return Curve(
        "some.log", metric, first + every * np.arange(len(numbers)), numbers, np.full(len(numbers), resolution)
    )


def _judge(reference: Curve, candidate: Curve, last_step: int | None = None) -> CurveComparison:
    return judge_curves(reference, candidate, pair_curves(reference, candidate, last_step), last_step)


def _planted(at: int, value: float) -> Curve:
    changed = DESCENT.copy()
    changed[at] = value
    return _curve(changed)


def test_equal_curves_are_aligned_and_the_reason_tells_how_few_points_there_were() -> None:
    comparison = _judge(_curve(DESCENT), _curve(DESCENT + WOBBLE))
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert comparison.trouble == comparison.next_command == ""
    assert comparison.first_divergent_step is None
    assert "100 common steps (the source of the limits asks for 1000)" in comparison.verdict.reason


@pytest.mark.parametrize(
    ("candidate", "trouble", "first_step"),
    [
        (DESCENT + 0.05, "first loss differs", 1),
        (np.append(DESCENT[:1], DESCENT[1:] + 0.05), "differs from the second step", 2),
        (DESCENT + np.linspace(0.0, 0.3, STEPS), "slow drift", None),
        (np.append(DESCENT[:50], DESCENT[50:] + 0.05 * (-1.0) ** np.arange(50)), "differs later", 51),
        (np.append(DESCENT[:30], np.full(70, NAN)), "NaN", 31),
        (np.append(DESCENT[:30], np.full(70, INF)), "NaN", 31),
        (DESCENT[:60], "broken off", None),
        (np.append(DESCENT, DESCENT[-5:]), "broken off", None),
    ],
)
def test_a_planted_difference_gets_its_class(candidate: np.ndarray, trouble: str, first_step: int | None) -> None:
    comparison = _judge(_curve(DESCENT), _curve(candidate))
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    assert comparison.trouble == trouble
    assert comparison.next_command.startswith("align ") or "align loss" in comparison.next_command
    if first_step is not None:
        assert comparison.first_divergent_step == first_step


def test_nan_on_one_side_fails_whatever_else_agrees() -> None:
    for sides in ((_planted(40, NAN), _curve(DESCENT)), (_curve(DESCENT), _planted(40, NAN))):
        comparison = _judge(*sides)
        assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
        assert comparison.first_divergent_step == 41
        assert not comparison.points.within[40]


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_losses_that_are_no_numbers_on_both_sides_are_never_aligned(value: float) -> None:
    comparison = _judge(_planted(40, value), _planted(40, value))
    assert comparison.verdict.outcome is Outcome.NOT_COMPARED
    assert comparison.verdict.coverage.compared == STEPS - 1
    assert comparison.verdict.coverage.excluded == 1
    assert "NaN or Inf at 1 common step (first: 41)" in comparison.verdict.reason
    assert any("exception: NaN or Inf alike on both sides at 1 step, first 41" in note for note in comparison.notes)


def test_another_metric_that_is_no_number_on_both_sides_is_a_stated_exception() -> None:
    sides = [replace(_planted(40, NAN), metric="grad_norm") for _ in range(2)]
    comparison = _judge(*sides)
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert comparison.verdict.coverage.excluded == 1


@pytest.mark.parametrize(("left", "right"), [(INF, -INF), (NAN, INF), (NAN, -INF)])
def test_unlike_non_finite_values_are_a_difference(left: float, right: float) -> None:
    comparison = _judge(_planted(40, left), _planted(40, right))
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED


def test_nothing_but_nan_on_both_sides_compares_nothing() -> None:
    comparison = _judge(_curve([NAN, NAN]), _curve([NAN, NAN]))
    assert comparison.verdict.outcome is Outcome.NOT_COMPARED


def test_no_common_step_compares_nothing_and_says_where_both_are() -> None:
    comparison = _judge(_curve([1.0, 1.0], first=1), _curve([1.0, 1.0], first=11, every=10))
    assert comparison.verdict.outcome is Outcome.NOT_COMPARED
    assert comparison.verdict.exit_code == 2
    assert (
        "steps 1 to 2, every 1 in the reference, steps 11 to 21, every 10 in the candidate" in comparison.verdict.reason
    )
    assert (comparison.points.count, comparison.criteria) == (0, ())


@pytest.mark.parametrize(
    ("reference", "candidate", "passed"),
    [
        (2.0, 2.0099, True),
        (2.0, 2.0101, False),
        (0.5, 0.50499, True),
        (0.5, 0.50501, False),
        (10.0, 10.049, True),
        (10.0, 10.051, False),
    ],
)
def test_the_first_loss_may_differ_by_0_005_or_half_a_percent(reference: float, candidate: float, passed: bool) -> None:
    comparison = _judge(_curve([reference]), _curve([candidate]))
    assert comparison.criteria[0].name.startswith("first loss")
    assert comparison.criteria[0].passed is passed
    assert "MindSpore Transformers" in comparison.criteria[0].source


@pytest.mark.parametrize(("shift", "passed"), [(0.0099, True), (0.0101, False)])
def test_the_mean_may_differ_by_0_01(shift: float, passed: bool) -> None:
    values = np.full(STEPS, 0.5)
    moved = np.append(values[:1], values[1:] + shift * STEPS / (STEPS - 1))
    mean = next(c for c in _judge(_curve(values), _curve(moved)).criteria if c.name.startswith("mean"))
    assert mean.passed is passed


@pytest.mark.parametrize(("shift", "passed"), [(0.099, True), (0.101, False)])
def test_the_mean_of_a_large_loss_may_differ_by_one_percent(shift: float, passed: bool) -> None:
    values = np.full(STEPS, 10.0)
    mean = next(c for c in _judge(_curve(values), _curve(values + shift)).criteria if c.name.startswith("mean"))
    assert mean.passed is passed


def test_a_loss_smaller_than_the_absolute_limit_is_not_passed_by_it() -> None:
    small = DESCENT / 1000.0
    comparison = _judge(_curve(small), _curve(small * 2.0))
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    assert "capped at 10% of the mean loss" in comparison.criteria[0].source


def test_printed_digits_widen_the_limits() -> None:
    rounded = np.round(DESCENT + 0.012, 2)
    exact = _judge(_curve(DESCENT), _curve(rounded))
    widened = _judge(_curve(DESCENT), _curve(rounded, resolution=0.05))
    assert widened.points.limit[3] == pytest.approx(exact.points.limit[3] + 0.025)
    assert exact.verdict.outcome is Outcome.NOT_ALIGNED
    assert widened.verdict.outcome is Outcome.ALIGNED
    assert "hide differences of up to 0.025" in widened.verdict.reason
    assert "widened by 0.011 for printed digits" in widened.criteria[0].source


def test_a_first_loss_that_is_not_common_is_not_reported_as_passed() -> None:
    comparison = _judge(_curve(DESCENT), _curve(DESCENT[9::10], first=10, every=10))
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert not any(criterion.name.startswith("first") for criterion in comparison.criteria)
    assert "the first loss was not compared" in comparison.verdict.reason
    assert comparison.verdict.coverage.compared == 10
    assert comparison.verdict.coverage.unmatched_reference == 90


def test_single_points_beyond_their_limit_are_told_when_the_mean_passes() -> None:
    comparison = _judge(_curve(DESCENT), _planted(70, DESCENT[70] + 0.1))
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert "1 single point is beyond their own limit, first at step 71" in comparison.verdict.reason


def test_a_sparse_log_ends_together_with_a_dense_one_within_its_cadence() -> None:
    comparison = _judge(_curve(DESCENT), _curve(DESCENT[29::30], first=30, every=30))
    assert comparison.verdict.outcome is Outcome.ALIGNED


def test_logs_of_unequal_length_align_up_to_a_step_that_the_user_names() -> None:
    short = _judge(_curve(DESCENT), _curve(DESCENT[:60]))
    assert "--last-step 60 # if the logs are meant to differ in length; then align doctor --crash" in short.next_command
    assert _judge(_curve(DESCENT), _curve(DESCENT[:60]), last_step=60).verdict.outcome is Outcome.ALIGNED


def _at(steps: list[int], values: np.ndarray = DESCENT) -> Curve:
    numbers = np.array(steps)
    return Curve("some.log", "loss", numbers, values[numbers - 1], np.zeros(len(steps)))


def test_one_point_or_two_of_a_hundred_could_not_be_compared() -> None:
    for steps, said in (
        ([100], "only one common point, at 100, and no first loss"),
        ([1, 100], "only 2 common points, while 98 are missing between them in a log"),
        ([99, 100], "only 2 common points, and the candidate lacks the beginning"),
        ([60, 99, 100], "only 3 common points, and the candidate lacks the beginning"),
    ):
        comparison = _judge(_curve(DESCENT), _at(steps))
        assert comparison.verdict.outcome is Outcome.NOT_COMPARED
        assert said in comparison.verdict.reason
        assert comparison.trouble == ""
        assert comparison.first_divergent_step is None
        assert "align loss CANDIDATE" in comparison.next_command


def test_a_difference_at_two_points_of_a_hundred_is_still_one() -> None:
    comparison = _judge(_curve(DESCENT), _at([1, 100], DESCENT * 1.2))
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    assert comparison.trouble == "first loss differs"


def test_one_point_that_is_not_the_first_makes_no_mean() -> None:
    comparison = _judge(_curve(DESCENT), _at([100], DESCENT * 1.2))
    assert comparison.verdict.outcome is Outcome.NOT_COMPARED
    assert not any(criterion.name.startswith("mean") for criterion in comparison.criteria)


@pytest.mark.parametrize("lost", [{50}, {50, 51, 52}, {20, 40, 60, 80}, {i for i in range(2, 100) if i * i % 7 == 2}])
def test_points_missing_inside_a_dense_log_fail(lost: set[int]) -> None:
    holed = _at([step for step in range(1, STEPS + 1) if step not in lost])
    for sides in ((_curve(DESCENT), holed), (holed, _curve(DESCENT))):
        comparison = _judge(*sides)
        assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
        assert comparison.trouble == "points missing"
        assert f"points missing inside a log: {len(lost)}, allowed 0" in comparison.verdict.reason
        assert any("missing inside the" in note for note in comparison.notes)


def test_logs_that_lack_the_same_points_are_compared_at_the_others() -> None:
    holed = _at([step for step in range(1, STEPS + 1) if step % 13 not in (5, 6)])
    assert _judge(holed, holed).verdict.outcome is Outcome.ALIGNED


def test_a_log_that_ends_in_nan_is_not_broken_off() -> None:
    for ended in (np.append(DESCENT[:60], [NAN] * 40), np.append(DESCENT[:60], NAN)):
        assert _judge(_curve(DESCENT), _curve(ended)).trouble == "NaN"


def test_a_log_of_nothing_but_nan_is_compared_with_a_finite_one() -> None:
    comparison = _judge(_curve(DESCENT), _curve([NAN] * STEPS))
    assert (comparison.verdict.outcome, comparison.trouble) == (Outcome.NOT_ALIGNED, "NaN")
    assert comparison.first_divergent_step == 1


def _lost_first_line(guessed: bool = True) -> Curve:
    curve = _curve(DESCENT[1:] + WOBBLE[1:] / 100)
    return replace(curve, base_guessed=guessed)


def test_curves_that_agree_one_step_later_are_told_with_the_option_and_not_moved() -> None:
    noisy = _curve(DESCENT + WOBBLE * 5)
    moved = replace(_curve((DESCENT + WOBBLE * 5)[1:]), base_guessed=True)
    for side, sides in (("candidate", (noisy, moved)), ("reference", (moved, noisy))):
        comparison = _judge(*sides)
        assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
        assert comparison.trouble == "counted one step apart"
        assert f"--{side}-base 0" in comparison.next_command
        assert any(f"the {side} counted one later" in n and f"--{side}-base 0" in n for n in comparison.notes)


def test_a_base_that_is_settled_gets_no_option() -> None:
    comparison = _judge(_curve(DESCENT), _lost_first_line(guessed=False))
    assert comparison.trouble == "first loss differs"
    assert any("may print its losses a step late or early" in note for note in comparison.notes)


@pytest.mark.parametrize("candidate", [DESCENT, DESCENT + WOBBLE, DESCENT * 1.2, DESCENT[::-1].copy(), DESCENT[:7] + 1])
def test_curves_that_do_not_agree_one_step_later_are_not_said_to(candidate: np.ndarray) -> None:
    comparison = _judge(_curve(DESCENT), replace(_curve(candidate), base_guessed=True))
    assert not any("counted one later" in note for note in comparison.notes)


@pytest.mark.parametrize(("first", "forward"), [(0.0, False), (1e-6, False), (1e-4, True), (2e-3, True)])
def test_the_forward_pass_comes_first_unless_the_first_losses_agree_to_rounding(first: float, forward: bool) -> None:
    changed = np.append(DESCENT[:50], DESCENT[50:] + 0.05 * (-1.0) ** np.arange(50))
    changed[0] *= 1.0 + first
    comparison = _judge(_curve(DESCENT), _curve(changed))
    assert comparison.trouble == "differs later"
    assert comparison.next_command.startswith("align forward REFERENCE CANDIDATE") is forward
    assert "align loss REFERENCE CANDIDATE --metric lr" in comparison.next_command


def test_a_first_loss_equal_to_the_printed_digits_agrees() -> None:
    changed = np.append(DESCENT[:50], DESCENT[50:] + 0.05 * (-1.0) ** np.arange(50))
    changed[0] += 0.0004
    comparison = _judge(_curve(DESCENT), _curve(changed, resolution=0.001))
    assert "align forward" not in comparison.next_command


def test_a_first_loss_that_was_not_compared_sends_to_the_forward_pass_too() -> None:
    comparison = _judge(_curve(DESCENT), _at(list(range(10, 101, 10)), DESCENT + 0.1 * (-1.0) ** np.arange(STEPS)))
    assert "align forward REFERENCE CANDIDATE, as the losses of step 1 could not be compared" in comparison.next_command


def test_other_metrics_never_send_to_the_forward_pass() -> None:
    comparison = _judge(_curve([0.1] * 10, metric="lr"), _curve([0.15] * 10, metric="lr"))
    assert comparison.trouble == "another factor"
    assert "align forward" not in comparison.next_command


def test_a_single_point_outside_is_not_where_curves_part_that_only_end_apart() -> None:
    spiked = DESCENT.copy()
    spiked[30] += 0.1
    comparison = _judge(_curve(DESCENT), _curve(spiked[:90]))
    assert comparison.trouble == "broken off"
    assert comparison.first_divergent_step is None


def test_rounding_that_hides_more_than_a_relative_limit_allows_is_told() -> None:
    rates = _curve([0.01] * 10, metric="lr", resolution=0.01)
    comparison = _judge(rates, _curve([0.014] * 10, metric="lr", resolution=0.01))
    told = "the printed digits hide differences of up to 0.01, more than the limits without them"
    assert told in comparison.verdict.reason
    assert told in comparison.notes


def test_a_missing_step_in_the_middle_fails_and_is_told() -> None:
    comparison = _judge(_curve(DESCENT), _at([step for step in range(1, STEPS + 1) if step not in (6, 7)]))
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    assert comparison.verdict.coverage.unmatched_reference == 2
    assert any("2 steps are only in the reference (first: 6)" in note for note in comparison.notes)


@pytest.mark.parametrize(("metric", "factor", "passed"), [
    ("lr", 1.001, True), ("lr", 1.5, False), ("grad_norm", 1.09, True), ("grad_norm", 1.2, False),
    ("loss_scale", 2.0, False), ("val_loss", 1.009, True),
])  # fmt: skip
def test_other_metrics_are_judged_relatively(metric: str, factor: float, passed: bool) -> None:
    values = np.full(10, 1e-4) if metric == "lr" else np.full(10, 8.0)
    factor = 1.004 if metric == "val_loss" else factor
    comparison = _judge(_curve(values, metric=metric), _curve(values * factor, metric=metric))
    assert (comparison.verdict.outcome is Outcome.ALIGNED) is passed
    assert comparison.trouble != "first loss differs"


def test_zero_everywhere_is_equal_to_zero_only() -> None:
    zeros = np.zeros(5)
    assert _judge(_curve(zeros), _curve(zeros)).verdict.outcome is Outcome.ALIGNED
    assert _judge(_curve(zeros), _curve(zeros + 1e-9)).verdict.outcome is Outcome.NOT_ALIGNED


def test_huge_losses_overflow_into_a_difference() -> None:
    assert _judge(_curve([1e308, 1e308]), _curve([-1e308, -1e308])).verdict.outcome is Outcome.NOT_ALIGNED


def test_infinity_alike_early_does_not_hide_a_later_difference() -> None:
    left, right = DESCENT.copy(), DESCENT.copy()
    left[1] = right[1] = INF
    right[3:] += 0.2
    comparison = _judge(_curve(left), _curve(right))
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    assert (comparison.trouble, comparison.first_divergent_step) == ("differs later", 4)


def test_a_stretch_that_ends_says_so() -> None:
    for last, kinds in ((40, [("apart for a while", 21), ("together again", 41)]), (STEPS, [("change point", 21)])):
        moved = DESCENT.copy()
        moved[20:last] += 0.2
        events = _judge(_curve(DESCENT), _curve(moved)).events
        assert [(event.kind, event.step) for event in events] == kinds
        assert events[0].value == pytest.approx(0.2)
