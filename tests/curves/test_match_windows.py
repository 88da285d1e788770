"""The rawer curve is smoothed to exactly what the other log prints, by the literal definition of each kind of mean."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.curves.loss_log import EPOCH_MEAN, EPOCH_SO_FAR, RAW, SINCE_LAST_PRINT, Curve, Skips, Window
from align.curves.place_on_axis import pair_curves
from align.errors import UnlikeCurvesError
from align.words.catalogue import counted

NAN = math.nan
losses = st.one_of(st.floats(0.01, 20.0), st.sampled_from([NAN, math.inf]))


def _curve(steps: list[int], values: list[float], window: Window = RAW, length: int | None = None) -> Curve:
    at, resolution = np.array(steps, np.int64), np.zeros(len(steps))
    return Curve("some.log", "loss", at, np.array(values, float), resolution, window, steps_per_epoch=length)


def _dense(values: list[float]) -> Curve:
    return _curve(list(range(1, len(values) + 1)), values)


def _printed(values: list[float], every: int, window: Window, length: int) -> Curve:
    """Print what a logger with this window prints, by definition, from the losses of all steps."""
    spans = {
        "mean of last": lambda step: (max(0, step - window.length), step),
        "since last print": lambda step: (step - every, step),
        "epoch so far": lambda step: ((step - 1) // length * length, step),
        "epoch mean": lambda step: ((step - 1) // length * length, step),
    }
    distance = length if window == EPOCH_MEAN else every
    steps = list(range(distance, len(values) + 1, distance))
    cut = [values[slice(*spans[window.kind](step))] for step in steps]
    return _curve(steps, [float(np.mean(part)) for part in cut], window, length)


windows = st.one_of(
    st.sampled_from([SINCE_LAST_PRINT, EPOCH_SO_FAR, EPOCH_MEAN]),
    st.integers(2, 12).map(lambda length: Window("mean of last", length)),
)


@given(st.lists(losses, min_size=30, max_size=60), st.integers(1, 7), windows, st.integers(2, 9), st.booleans())
def test_every_step_against_any_mean_of_it_agrees_to_rounding(
    values: list[float], every: int, window: Window, length: int, swapped: bool
) -> None:
    raw, printed = _dense(values), _printed(values, every, window, length)
    pairs = pair_curves(printed, raw) if swapped else pair_curves(raw, printed)
    assert pairs.steps.tolist() == printed.steps.tolist()
    np.testing.assert_allclose(pairs.reference, pairs.candidate, rtol=1e-12)
    assert (pairs.unmatched_reference if swapped else pairs.unmatched_candidate) == 0
    means = window != Window("mean of last", 1) and (every > 1 or window.kind != "since last print")
    assert any("are averaged" in note for note in pairs.notes) == means


@given(st.lists(st.floats(0.01, 20.0), min_size=40, max_size=60), st.integers(1, 5), st.integers(2, 4))
def test_means_since_the_last_print_add_up_to_coarser_ones(values: list[float], every: int, times: int) -> None:
    fine = _printed(values, every, SINCE_LAST_PRINT, 1)
    wide = _printed(values, every * times, SINCE_LAST_PRINT, 1)
    pairs = pair_curves(fine, wide)
    assert pairs.steps.tolist() == wide.steps.tolist()
    np.testing.assert_allclose(pairs.reference, pairs.candidate, rtol=1e-12)


def test_a_mean_of_the_last_ten_every_ten_is_one_since_the_last_print() -> None:
    values = [float(i % 7) for i in range(60)]
    pairs = pair_curves(_printed(values, 10, Window("mean of last", 10), 1), _printed(values, 10, SINCE_LAST_PRINT, 1))
    assert pairs.reference.tolist() == pairs.candidate.tolist()
    assert pairs.notes == ()


@given(st.integers(2, 29), st.integers(1, 5))
def test_a_mean_that_lacks_a_step_is_left_out_and_counted(lost: int, every: int) -> None:
    values = [1.0 + i for i in range(30)]
    raw, printed = _dense(values), _printed(values, every, SINCE_LAST_PRINT, 1)
    pairs = pair_curves(raw.take(raw.steps != lost), printed)
    without = -(-lost // every) * every
    assert pairs.steps.tolist() == [step for step in printed.steps.tolist() if step != without]
    assert np.array_equal(pairs.reference, pairs.candidate)
    left_out = without <= printed.steps[-1]
    assert any("1 value of the candidate is left out" in note for note in pairs.notes) == left_out


def test_a_nan_stays_in_the_means_that_hold_it() -> None:
    values = [1.0, 2.0, NAN, 4.0, 5.0, 6.0]
    pairs = pair_curves(_dense(values), _curve([2, 4, 6], [1.5, NAN, 5.5], SINCE_LAST_PRINT))
    assert pairs.reference.tolist()[::2] == [1.5, 5.5]
    assert math.isnan(pairs.reference[1])


def test_a_huge_loss_spoils_no_mean_but_its_own() -> None:
    values = [1e300, 1.0, 0.1, 0.3, 0.5, 0.7]
    pairs = pair_curves(_dense(values), _curve([2, 4, 6], [5e299, 0.2, 0.6], SINCE_LAST_PRINT))
    np.testing.assert_allclose(pairs.reference, pairs.candidate, rtol=1e-15)


def _skips(ends: list[int], counts: list[int], width: int = 1) -> Skips:
    at = np.array(ends)
    return Skips(at - width, at, np.array(counts))


def _without(values: list[float], skipped: list[int], every: int) -> Curve:
    """Print means of the last `every` losses as Megatron does: without skipped steps, and none where all were."""
    ends = range(every, len(values) + 1, every)
    kept = {end: [values[at - 1] for at in range(end - every + 1, end + 1) if at not in skipped] for end in ends}
    told = [end for end in ends if kept[end]]
    counts = {end: every - len(kept[end]) for end in ends if len(kept[end]) < every}
    means = [float(np.mean(kept[end])) for end in told]
    curve = _curve(told, means, RAW if every == 1 else Window("mean of last", every))
    return replace(curve, skips=_skips(list(counts), list(counts.values()), every)) if counts else curve


@given(
    st.lists(st.floats(0.01, 20.0), min_size=24, max_size=48),
    st.sets(st.integers(1, 24)),
    st.sampled_from([1, 2, 3, 4]),
)
def test_means_without_skipped_steps_agree_with_finer_ones_that_skipped_the_same(
    values: list[float], skipped: set[int], times: int
) -> None:
    wide = _without(values, list(skipped), 2 * times)
    raw = replace(_dense(values), skips=_skips(sorted(skipped), [1] * len(skipped)) if skipped else None)
    for fine in (raw, _without(values, list(skipped), 1), _without(values, list(skipped), 2)):
        if len(wide.steps) and len(fine.steps):
            pairs = pair_curves(fine, wide)
            assert pairs.steps.tolist() == wide.steps.tolist()
            np.testing.assert_allclose(pairs.reference, pairs.candidate, rtol=1e-12)
            assert pairs.unmatched_candidate == 0
            assert any(
                f"{counted(len(skipped), 'step')} changed no weight on both" in note for note in pairs.notes
            ) == bool(skipped)


@pytest.mark.parametrize("only", ["reference", "candidate"])
def test_means_that_leave_out_what_the_other_side_does_not_are_left_out_and_counted(only: str) -> None:
    values = [1.0 + at for at in range(30)]
    raw, wide = _dense(values), _without(values, [12, 13] if only == "candidate" else [], 10)
    if only == "reference":
        raw = replace(raw, skips=_skips([12], [1]))
    pairs = pair_curves(raw, wide)
    assert any(f"changed no weight in the {only} only" in note for note in pairs.notes)
    assert pairs.steps.tolist() == ([10, 30] if only == "candidate" else [10, 20, 30])
    assert pairs.reference.tolist() == pairs.candidate.tolist()
    assert any("1 value of the candidate is left out" in note for note in pairs.notes) == (only == "candidate")


def test_where_all_means_leave_out_what_the_other_side_does_not_it_is_refused_with_the_reason() -> None:
    values = [1.0 + at for at in range(30)]
    with pytest.raises(UnlikeCurvesError, match="both sides did not skip the same"):
        pair_curves(_dense(values), _without(values, [5, 15, 25], 10))


def test_no_mean_is_made_of_printed_means_that_lack_skipped_steps_alone() -> None:
    fine = replace(_printed([1.0] * 40, 5, Window("mean of last", 5), 1), skips=_skips([10], [1], 5))
    assert pair_curves(fine, _printed([1.0] * 40, 10, SINCE_LAST_PRINT, 1)).steps.tolist() == [20, 30, 40]
    assert len(pair_curves(fine, _printed([1.0] * 40, 5, SINCE_LAST_PRINT, 1)).steps) == 8


def test_a_mean_is_rounded_no_more_than_the_losses_in_it() -> None:
    raw = replace(_dense([1.0, 1.25, 1.5, 1.75]), resolution=np.full(4, 0.25))
    assert pair_curves(raw, _curve([2, 4], [1.0, 1.5], SINCE_LAST_PRINT)).widening.tolist() == [0.125, 0.125]


def test_a_log_that_starts_late_tells_no_first_span() -> None:
    values = [float(i) for i in range(60)]
    late = _printed(values, 10, SINCE_LAST_PRINT, 1).take(slice(2, None))
    assert pair_curves(_dense(values), late).steps.tolist() == [40, 50, 60]


def test_the_first_mean_after_a_resume_is_over_steps_that_the_log_does_not_tell() -> None:
    values = [float(i) for i in range(60)]
    printed = _printed(values, 10, SINCE_LAST_PRINT, 1)
    resumed = replace(printed, resumed=printed.steps == 30)
    assert pair_curves(_dense(values), resumed).steps.tolist() == [10, 20, 40, 50, 60]


def test_points_that_went_into_no_mean_are_unmatched() -> None:
    pairs = pair_curves(_dense([1.0] * 25), _printed([1.0] * 20, 10, SINCE_LAST_PRINT, 1))
    assert (pairs.unmatched_reference, pairs.unmatched_candidate) == (5, 0)


@pytest.mark.parametrize(
    ("other", "said", "hint"),
    [
        (_curve([10, 20, 30], [1.0] * 3, SINCE_LAST_PRINT), "prints only every 4th step", "every step"),
        (_curve([10, 20, 30], [1.0] * 3, Window("mean of last", 5)), "the mean of the last 5 steps", "every step"),
        (_curve([10, 20, 30], [1.0] * 3, EPOCH_SO_FAR), "is not known", "--candidate-steps-per-epoch"),
    ],
)
def test_what_cannot_be_smoothed_is_refused_with_the_reason(other: Curve, said: str, hint: str) -> None:
    with pytest.raises(UnlikeCurvesError, match=said) as caught:
        pair_curves(_curve([4, 8, 12, 16, 20, 24], [1.0] * 6), other)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "other",
    [
        _dense([1.0] * 40),
        _curve([10, 20, 30, 40], [1.0] * 4, Window("mean of last", 20)),
        _curve([10, 20, 30, 40], [1.0] * 4, Window("median of last", 10)),
    ],
)
def test_a_median_is_compared_only_with_the_median_of_the_same_steps(other: Curve) -> None:
    medians = _curve([20, 40], [1.0, 2.0], Window("median of last", 20))
    assert pair_curves(medians, medians).steps.tolist() == [20, 40]
    for pair in ((medians, other), (other, medians)):
        with pytest.raises(UnlikeCurvesError, match="the median of the last 20 steps"):
            pair_curves(*pair)


def test_on_an_axis_of_epochs_a_mean_is_not_the_last_step() -> None:
    last = replace(_curve([1, 2], [1.0, 2.0]), axis="epoch")
    with pytest.raises(UnlikeCurvesError, match="the mean of an epoch"):
        pair_curves(last, replace(last, window=EPOCH_MEAN))


def test_curves_that_do_not_meet_have_no_common_step() -> None:
    assert len(pair_curves(_dense([1.0] * 5), _curve([110, 120], [1.0, 1.0], Window("mean of last", 10))).steps) == 0
