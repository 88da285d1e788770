from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from align.forward.bisect_port import INPUTS, find_wrong_stretches
from align.forward.bisect_precision import loss_movement, smallest_set
from align.forward.thresholds import LOSS_LIMIT


@given(st.integers(1, 40), st.data())
def test_what_is_found_shows_the_effect_and_nothing_of_it_can_be_left_out(count: int, data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4))
    calls = []

    def shows(items: tuple[int, ...]) -> bool:
        calls.append(items)
        return needed <= set(items)

    assert smallest_set(range(count), shows) == tuple(sorted(needed))
    assert len(needed) > 1 or len(calls) <= 2 * count.bit_length() + 1


def test_many_small_effects_are_summed_up_until_nothing_can_go() -> None:
    effects = np.linspace(0.1, 1.0, 10)
    found = smallest_set(range(10), lambda items: sum(effects[item] for item in items) > 2.0)
    total = sum(effects[item] for item in found)
    assert total > 2.0
    assert all(total - effects[item] <= 2.0 for item in found)


@given(st.integers(0, 60), st.data())
def test_every_faulty_stretch_between_points_is_found(count: int, data: st.DataObject) -> None:
    faults = data.draw(st.sets(st.integers(0, count), max_size=5))  # number n: between the points n - 1 and n
    asked = set()

    def judge(spliced: tuple[int, ...], target: int) -> float:
        asked.add(spliced)
        last = max((point for point in spliced if point < target), default=INPUTS)
        return 2.0 if any(last < fault <= target for fault in faults) else 0.5

    found = find_wrong_stretches(count, judge)
    assert [(one.start, one.end) for one in found.stretches] == [(n - 1, n) for n in sorted(faults, reverse=True)]
    assert len(asked) <= 1 + len(faults) * (2 * count.bit_length() + 2)
    assert len(faults) > 1 or len(asked) <= count.bit_length() + 3


def test_a_point_where_the_right_value_does_harm_is_dropped() -> None:
    def judge(spliced: tuple[int, ...], target: int) -> float:  # a fault before point 0, and a foreign value at 1
        last = max((point for point in spliced if point < target), default=INPUTS)
        return 2.0 if last in (INPUTS, 1) else 0.5

    found = find_wrong_stretches(3, judge)
    assert found.states == {1: "dropped"}
    assert [(one.start, one.end) for one in found.stretches] == [(INPUTS, 0)]


def test_a_loss_that_is_not_finite_has_moved_above_every_limit() -> None:
    assert loss_movement(2.0, float("nan"), None).factor == float("inf")
    assert loss_movement(2.0, 2.0, None).factor == 0.0
    assert np.isclose(loss_movement(2.0, 2.0 * (1 + LOSS_LIMIT), None).factor, 1.0)
    assert np.isclose(loss_movement(2.0, 1.8, 0.1).factor, 1.0)
