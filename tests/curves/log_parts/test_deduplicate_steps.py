"""Points kept, replaced and sorted: resumed runs, repeated lines, lines out of order, lines of several processes."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.curves.log_parts.table_builder import deduplicate_steps

NAN = math.nan


def _kept(steps: list[int], values: list[float]) -> tuple[list[tuple[int, float]], str]:
    kept = deduplicate_steps(np.array(steps), np.array(values))
    return [(steps[i], values[i]) for i in kept.index], " ".join(kept.notes)


def test_points_in_order_are_left_alone() -> None:
    assert _kept([1, 2, 3], [3.0, NAN, 1.0])[1] == ""


def test_the_same_point_twice_is_one_point() -> None:
    points, notes = _kept([1, 2, 2, 3, 3, 2], [3.0, NAN, NAN, 1.0, 1.0, NAN])
    assert [step for step, _ in points] == [1, 2, 3]
    assert "3 points are printed twice" in notes


def test_after_a_resume_the_later_point_replaces_the_earlier() -> None:
    points, notes = _kept([1, 2, 3, 4, 3, 4, 5], [1.0, 2.0, 3.0, 4.0, 3.5, 4.5, 5.5])
    assert points == [(1, 1.0), (2, 2.0), (3, 3.5), (4, 4.5), (5, 5.5)]
    assert "goes back 1 time (first to step 3)" in notes


def test_the_point_with_which_a_resumed_log_goes_on_is_marked() -> None:
    kept = deduplicate_steps(np.array([1, 2, 3, 4, 3, 4, 5]), np.arange(7) * 1.0)
    assert kept.resumed is not None
    assert kept.resumed.tolist() == [False, False, True, False, False]


def test_a_run_started_again_leaves_nothing_of_the_older_one() -> None:
    points, notes = _kept([1, 2, 3, 4, 1, 2], [1.0, 2.0, 3.0, 4.0, 1.5, 2.5])
    assert points == [(1, 1.5), (2, 2.5)]
    assert "2 steps of abandoned runs are left out" in notes


def test_a_step_printed_again_at_once_is_no_resumed_run() -> None:
    points, notes = _kept([1, 2, 3, 3, 4, 5], [1.0, 2.0, 3.0, 3.5, 4.0, 5.0])
    assert points == [(1, 1.0), (2, 2.0), (3, 3.5), (4, 4.0), (5, 5.0)]
    assert notes == "1 step is printed again at once with another value (first: step 3): the later is taken"


def test_a_step_printed_again_in_disorder_drops_no_other_step() -> None:
    assert [step for step, _ in _kept([1, 2, 5, 3, 3, 4], [1.0, 2.0, 5.0, 3.0, 3.5, 4.0])[0]] == [1, 2, 3, 4, 5]


def test_a_repeated_line_in_a_resumed_log_drops_no_step() -> None:
    points, notes = _kept([1, 2, 3, 2, 4, 5, 4, 5], [1.0, 2.0, 3.0, 2.0, 4.0, 5.0, 4.5, 5.5])
    assert points == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.5), (5, 5.5)]
    assert "goes back 1 time (first to step 4)" in notes


def _interleaved(processes: int, behind: int) -> tuple[np.ndarray, np.ndarray]:
    """Each process prints 40 steps, some later than others by up to `behind` lines of its own."""
    lines = [(step + behind * process / processes, process, step) for process in range(processes) for step in range(40)]
    steps = np.array([step for _, _, step in sorted(lines)])
    return steps, np.random.default_rng(0).normal(size=len(steps))


@pytest.mark.parametrize("behind", [0, 1, 3])
@pytest.mark.parametrize("processes", [2, 4, 8])
def test_lines_of_several_processes_are_told_from_a_resumed_run(processes: int, behind: int) -> None:
    assert deduplicate_steps(*_interleaved(processes, behind)).each == processes


def test_a_shuffled_log_is_sorted_unless_steps_have_several_values() -> None:
    order = np.random.default_rng(1).permutation(40)
    kept = deduplicate_steps(order, order * 1.0)
    assert (kept.each, kept.unclear, order[kept.index].tolist()) == (1, "", list(range(40)))
    assert any("sorted" in note for note in kept.notes)
    assert deduplicate_steps(np.append(order, 7), np.append(order * 1.0, 99.0)).unclear == "unlike values"


@pytest.mark.parametrize("steps", [[*range(1, 6), *range(3, 11)], [*range(1, 6)] * 2])
def test_a_short_log_out_of_order_with_unlike_values_is_refused(steps: list[int]) -> None:
    """Each step has a value of its own each time; of 200 orders, a few are such as resumed runs have."""
    orders = [np.random.default_rng(seed).permutation(len(steps)) for seed in range(200)]
    kept = [deduplicate_steps(np.array(steps)[order], order * 1.0) for order in orders]
    assert sum(one.each == 1 and not one.unclear for one in kept) < 10
    in_order = deduplicate_steps(np.array(steps), np.arange(len(steps)) * 1.0)
    assert (in_order.each, in_order.unclear) == (1, "")


def test_lines_out_of_order_beside_a_resumed_run_are_refused_and_a_few_are_sorted() -> None:
    steps = np.append(np.arange(60), np.arange(30, 90))
    values = np.arange(120) * 1.0
    near = np.argsort(np.arange(120) + np.random.default_rng(2).uniform(0, 3, 120))
    assert deduplicate_steps(steps[near], values[near]).unclear == "unlike values"
    swapped = np.arange(120)
    swapped[[10, 11, 100, 101]] = [11, 10, 101, 100]
    kept = deduplicate_steps(steps[swapped], values[swapped])
    assert (kept.unclear, len(kept.index)) == ("", 90)


def test_two_runs_that_print_other_steps_are_not_put_on_one_curve() -> None:
    steps = np.append(np.arange(10, 200, 10), np.arange(5, 200, 10))
    assert deduplicate_steps(steps, steps * 1.0).unclear == "steps between"
    turned = np.append(np.arange(100, 200), np.arange(100))
    assert deduplicate_steps(turned, turned * 1.0).unclear == ""


def test_points_below_counters_of_their_own_are_not_sorted() -> None:
    steps = np.array([1, 3, 2, 4])
    assert deduplicate_steps(steps, steps * 1.0, headed=True).unclear == "counters above"
    assert deduplicate_steps(np.tile(steps, 2)[[0, 2, 1, 3, 4, 6, 5, 7]], np.ones(8), headed=True).unclear == ""


def test_many_losses_of_the_only_step_are_of_several_processes() -> None:
    values = np.arange(8, dtype=np.float64)
    assert deduplicate_steps(np.full(8, 1875), values).each == 8
    assert deduplicate_steps(np.full(8, 1875), values * 0).each == 1


def test_processes_that_agree_are_as_good_as_one() -> None:
    steps, _ = _interleaved(4, 0)
    kept = deduplicate_steps(steps, 1.0 / (1.0 + steps))
    assert (kept.each, steps[kept.index].tolist()) == (1, list(range(40)))


def test_a_run_started_again_and_again_is_not_taken_for_processes() -> None:
    steps = np.tile(np.arange(1, 6), 20)
    kept = deduplicate_steps(steps, np.arange(100) * 1.0)
    assert (kept.each, kept.index.tolist()) == (1, [95, 96, 97, 98, 99])


values = st.sampled_from([1.0, 1.5, NAN])


@st.composite
def _passes(draw: st.DrawFn) -> list[dict[int, float]]:
    """Draw a run of 12 to 30 steps, resumed at most three times at any earlier step, with values often equal."""
    every, length = draw(st.integers(1, 4)), draw(st.integers(12, 30))
    passes = [{step * every: draw(values) for step in range(length)}]
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, max(passes[-1]) // every - 1))
        stop = draw(st.integers(start + 2, length + 6))
        passes.append({step * every: draw(values) for step in range(start, stop)})
    return passes


def _later_points(passes: list[dict[int, float]]) -> dict[int, float]:
    """Follow the passes one by one: the last value told of a step shows whether a pass is another run."""
    standing, told = {}, {}
    for points in passes:
        if any(step in told and repr(told[step]) != repr(value) for step, value in points.items()):
            standing = {step: value for step, value in standing.items() if step < min(points)}
        standing, told = {**points, **standing}, {**told, **points}
    return standing


@pytest.mark.parametrize(("processes", "each"), [(8, 8), (2, 2)])
def test_many_losses_of_each_of_two_steps_are_of_several_processes(processes: int, each: int) -> None:
    steps = np.repeat([55, 110], processes)
    kept = deduplicate_steps(steps, np.arange(len(steps), dtype=np.float64))
    assert (kept.each, kept.index.tolist()) == (each, [processes - 1, 2 * processes - 1])


@given(_passes())
def test_a_run_resumed_anywhere_gives_the_later_points_be_they_equal_or_not(passes: list[dict[int, float]]) -> None:
    steps = np.array([step for points in passes for step in points])
    told = np.array([value for points in passes for value in points.values()])
    kept = deduplicate_steps(steps, told)
    found = {int(step): repr(float(value)) for step, value in zip(steps[kept.index], told[kept.index], strict=True)}
    assert found == {step: repr(value) for step, value in sorted(_later_points(passes).items())}
    assert list(found) == sorted(found)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_points_out_of_order_are_sorted_whatever_the_order(order: tuple[int, ...]) -> None:
    points, notes = _kept([i + 1 for i in order], [float(i) for i in order])
    assert points == [(1, 0.0), (2, 1.0), (3, 2.0), (4, 3.0)]
    assert ("sorted" in notes) == (order != (0, 1, 2, 3))
