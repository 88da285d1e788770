"""Where a difference leaves its limit and stays: exact without noise, near with it, no excursion."""

from __future__ import annotations

import numpy as np
import pytest

from align.curves.change_test import Stretch, find_stretch

POINTS = 40


def _stretch(difference: np.ndarray) -> Stretch | None:
    return find_stretch(difference, np.ones(len(difference)), np.abs(difference) < 1.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_without_noise_the_step_is_exact_wherever_it_is(sign: float) -> None:
    for first in range(POINTS):
        difference = np.zeros(POINTS)
        difference[first:] = 1.001 * sign
        assert _stretch(difference) == Stretch(first, POINTS - 1)


def test_a_difference_of_changing_sign_stays_too() -> None:
    difference = np.zeros(POINTS)
    difference[17:] = 1.5 * (-1.0) ** np.arange(POINTS - 17)
    assert _stretch(difference) == Stretch(17, POINTS - 1)


def test_a_steady_drift_starts_where_it_crosses_the_limit() -> None:
    assert _stretch(np.arange(POINTS) / 25.0) == Stretch(26, POINTS - 1)


@pytest.mark.parametrize("places", [[5], [5, 6], [5, 20, 30]])
def test_excursions_are_no_divergence(places: list[int]) -> None:
    difference = np.zeros(POINTS)
    difference[places] = 1000.0
    assert _stretch(difference) is None


def test_a_long_stretch_that_ends_is_found_from_its_first_to_its_last_point() -> None:
    difference = np.zeros(POINTS)
    difference[8:20] = 3.0
    difference[30] = 1e6
    assert _stretch(difference) == Stretch(8, 19, ended=True)


@pytest.mark.parametrize("first", [0, 8])
@pytest.mark.parametrize(
    ("after", "inside", "ended"), [(2, 0.0, False), (3, 0.0, True), (15, 0.4, True), (15, 0.7, False)]
)
def test_a_stretch_has_ended_if_more_than_two_points_after_it_agree_clearly(
    first: int, after: int, inside: float, ended: bool
) -> None:
    difference = np.zeros(POINTS)
    difference[first:] = -3.0
    difference[POINTS - after :] = inside
    assert _stretch(difference) == Stretch(first, POINTS - after - 1, ended)


@pytest.mark.parametrize("noise", [0.3, 0.5])
def test_a_difference_in_noise_that_stays_has_not_ended(noise: float) -> None:
    source = np.random.default_rng(4)
    for _ in range(100):
        difference = noise * source.standard_normal(1000)
        difference[600:] += 1.5
        found = _stretch(difference)
        assert found is not None
        assert not found.ended


def test_one_point_inside_does_not_end_a_stretch() -> None:
    difference = np.zeros(POINTS)
    difference[8:] = 3.0
    difference[15] = 0.0
    assert _stretch(difference) == Stretch(8, POINTS - 1)


def test_nothing_outside_has_no_stretch() -> None:
    assert _stretch(np.zeros(POINTS)) is None
    assert find_stretch(np.zeros(0), np.zeros(0), np.zeros(0, np.bool_)) is None


def test_points_without_a_limit_count_by_whether_they_are_alike() -> None:
    limit = np.ones(POINTS)
    limit[10:] = np.nan
    within = np.arange(POINTS) < 25
    assert find_stretch(np.where(within, 0.0, np.nan), limit, within) == Stretch(25, POINTS - 1)


@pytest.mark.parametrize(("noise", "offset", "error"), [(0.3, 1.2, 3), (0.3, 2.0, 1), (0.5, 2.0, 1), (0.5, 3.0, 1)])
def test_in_noise_nine_of_ten_are_near(noise: float, offset: float, error: int) -> None:
    source, errors = np.random.default_rng(3), []
    for _ in range(300):
        difference = noise * source.standard_normal(1000)
        difference[600:] += offset
        found = _stretch(difference)
        assert found is not None
        errors.append(abs(found.first - 600))
    assert np.quantile(errors, 0.9) <= error
