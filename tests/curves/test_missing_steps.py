"""What a log's own cadence explains is no hole; what it does not is one, if the other log has points there."""

from __future__ import annotations

import numpy as np
import pytest

from align.curves.global_steps import MissingSteps, find_missing_steps, starts_late, usual_distance

DENSE = np.arange(1, 1001)


def _mindcv(interval: int, length: int, epochs: int) -> list[int]:
    """Print the first step of an epoch, every n-th and the last."""
    inside = sorted({1, length, *range(interval, length + 1, interval)})
    return [epoch * length + step for epoch in range(epochs) for step in inside]


def _inside_epochs(interval: int, length: int, epochs: int) -> list[int]:
    """Print every n-th step of an epoch, counted anew in each."""
    return [epoch * length + step for epoch in range(epochs) for step in range(interval, length + 1, interval)]


@pytest.mark.parametrize(
    "steps",
    [
        list(range(1, 101)),
        list(range(1, 101, 10)),
        list(range(10, 101, 10)),
        [50, 100],
        [1, 30, 60],
        [1, 100, 200, 300],
        _mindcv(100, 120, 2),
        _mindcv(100, 98, 3),
        _mindcv(100, 350, 2),
        _mindcv(2, 4, 2),
        _mindcv(3, 8, 3),
        _inside_epochs(10, 25, 2),
        _inside_epochs(10, 29, 2),
        _inside_epochs(50, 149, 5),
        [*range(1, 11), *range(20, 101, 10)],
        [*range(1, 11), *range(101, 902, 100)],
        [7],
        [],
    ],
)
def test_what_follows_a_cadence_has_no_holes(steps: list[int]) -> None:
    assert find_missing_steps(np.array(steps, np.int64), DENSE) == find_missing_steps(np.array(steps, np.int64)) == ()


@pytest.mark.parametrize(
    ("steps", "holes"),
    [
        ([1, 2, 3, 6, 7], [(3, 6, 2)]),
        ([1, 60], [(1, 60, 58)]),
        ([1, 2, 60], [(2, 60, 57)]),
        ([4, 60], [(4, 60, 13)]),
        ([10, 20, 40, 50], [(20, 40, 1)]),
        ([1, 20, 30, 40, 50], [(1, 20, 1)]),
        ([1, 2, 3, 6, 7, 8, 9, 12, 13, 14], [(3, 6, 2), (9, 12, 2)]),
        ([*range(1, 11), *range(20, 51, 10), 80, 90, 100], [(50, 80, 2)]),
    ],
)
def test_what_follows_none_is_a_hole(steps: list[int], holes: list[tuple[int, int, int]]) -> None:
    assert (
        find_missing_steps(np.array(steps), DENSE)
        == find_missing_steps(np.array(steps))
        == tuple(MissingSteps(*hole) for hole in holes)
    )


def test_where_the_other_log_has_no_points_either_nothing_is_missing() -> None:
    steps = np.array([1, 2, 3, 6, 7])
    assert find_missing_steps(steps, steps) == ()
    assert find_missing_steps(steps, np.array([3, 4, 6])) == (MissingSteps(3, 6, 1),)


def test_a_point_that_lacks_at_the_end_of_an_epoch_is_a_hole_too() -> None:
    whole = np.array(_inside_epochs(10, 25, 4))
    assert find_missing_steps(whole[whole != 35], whole) == (MissingSteps(20, 45, 1),)


def test_a_log_starts_late_if_its_distances_do_not_explain_it() -> None:
    assert starts_late(np.array([55, 56, 57]), DENSE)
    assert not starts_late(np.array([10, 20, 30]), DENSE)
    assert not starts_late(np.array([55, 56, 57]), np.array([55, 56, 57]))
    assert usual_distance(np.array([10])) == 1


def test_a_long_log_with_many_holes_is_searched_quickly() -> None:
    steps = np.flatnonzero(np.random.default_rng(0).random(1_000_000) < 0.9) + 1
    lost = 1_000_000 - len(steps)
    found = find_missing_steps(steps, np.arange(1, 1_000_001))
    assert 0.9 * lost < sum(hole.missing for hole in found) <= lost
