"""What a slow port is slow in, from step times of any unit and window; and what logs do not tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.curves.compare_losses import compare_speed
from align.curves.loss_log import RAW, SINCE_LAST_PRINT, LogTable, LossLog, Series, Window
from align.curves.read_logs import read_log

if TYPE_CHECKING:
    from align.curves.loss_log import SpeedComparison

DATA = Path(__file__).parent / "data"
STEPS = 400


def _log(times: np.ndarray, waits: np.ndarray | None = None, *, every: int = 1, window: Window = RAW) -> LossLog:
    """A log of milliseconds that prints every so many steps, from step 1 on if that is every one."""
    count = len(times)
    columns = {"step_time_ms": times} | ({} if waits is None else {"data_time_ms": waits})
    rows = np.arange(count)
    metrics = {name: Series(rows, values, np.zeros(count), window) for name, values in columns.items()}
    table = LogTable(rows + 1, (rows + 1) * every, None, metrics)
    return LossLog("some.log", "made", table, "loss", "global step", 1)


def _times(median: float, *, first: float | None = None, slow: float = 0.0, seed: int = 0) -> np.ndarray:
    """Steps of about `median` ms, a slow first one, and every twentieth slower by `slow`."""
    times = median * np.random.default_rng(seed).normal(1.0, 0.03, STEPS)
    times[::20] += slow
    times[0] = median if first is None else first
    return times


def _speed(reference: LossLog, candidate: LossLog, steps_per: tuple[int, int] = (1, 1)) -> SpeedComparison:
    found = compare_speed(reference, candidate, steps_per)
    assert found is not None
    return found


WAITS = np.full(STEPS, 5.0)


@pytest.mark.parametrize("unit", [0.1, 10.0, 5000.0])
@pytest.mark.parametrize(
    ("times", "waits", "slow_in"),
    [
        (_times(100.0, first=110.0, seed=1), WAITS, "none"),
        (_times(108.0, seed=1), WAITS, "none"),
        (_times(50.0, seed=1), WAITS, "none"),
        (_times(100.0, first=60_000.0, seed=1), WAITS, "start"),
        (_times(150.0, seed=1), WAITS, "compute"),
        (_times(150.0, first=60_000.0, seed=1), WAITS, "compute"),
        (_times(150.0, seed=1), WAITS + 50.0, "data"),
        (_times(150.0, seed=1), WAITS + 20.0, "compute"),
        (_times(100.0, slow=1500.0, seed=1), WAITS, "tail"),
        (_times(100.0, slow=1500.0, seed=1), WAITS + np.where(np.arange(STEPS) % 20, 0.0, 1500.0), "data"),
    ],
)
def test_what_a_slow_port_is_slow_in(times: np.ndarray, waits: np.ndarray, slow_in: str, unit: float) -> None:
    waits = np.minimum(waits, 0.99 * times)
    found = _speed(_log(_times(100.0, first=110.0) * unit, WAITS * unit), _log(times * unit, waits * unit))
    assert found.slow_in == slow_in
    assert found.candidate.median == pytest.approx(np.median(times) * unit / 1000.0, rel=0.02)
    assert found.ratio == pytest.approx(np.median(times) / 100.0, rel=0.03)


@pytest.mark.parametrize("seed", range(20))
def test_logs_of_equal_speed_are_slow_in_nothing(seed: int) -> None:
    left, right = (_log(_times(100.0, first=3000.0, slow=40.0, seed=2 * seed + side)) for side in (0, 1))
    assert _speed(left, right).slow_in == "none"


def test_the_first_steps_are_left_out_and_told() -> None:
    times = _times(100.0)
    times[:3] = 9000.0, 700.0, 300.0
    found = _speed(_log(_times(100.0)), _log(times))
    assert (found.candidate.warm_up, found.reference.warm_up) == (3, 1)
    assert found.candidate.first_step == 9.0
    assert found.ratio == pytest.approx(1.0, abs=0.02)
    assert found.candidate.total == pytest.approx(times.sum() / 1000.0)


def test_the_first_step_of_a_mean_is_what_it_is_above_the_others() -> None:
    times = np.full(20, 100.0)
    times[0] = 1000.0
    found = _speed(_log(times), _log(times, every=10, window=SINCE_LAST_PRINT))
    assert found.candidate.first_step == pytest.approx(9.1)
    assert found.candidate.total == pytest.approx(10 * times.sum() / 1000.0)
    assert any("the first mean of the candidate is above the others" in note for note in found.notes)


def test_the_time_of_all_steps_since_the_last_print_is_divided_among_them() -> None:
    times = _times(100.0).reshape(-1, 20)
    log = _log(times.mean(1), every=20, window=SINCE_LAST_PRINT)
    together = Series(np.arange(len(times)), times.sum(1) / 1000.0, np.zeros(len(times)))
    table = replace(log.table, metrics={"interval_time_s": together})
    found = _speed(log, replace(log, table=table))
    assert found.candidate == found.reference
    assert found.slow_in == "none"


def test_a_log_that_begins_later_does_not_know_its_first_step() -> None:
    times = np.full(40, 100.0)
    assert _speed(_log(times), _log(times, every=10)).candidate.first_step is None


def test_twice_the_steps_for_the_same_samples_take_twice_the_time() -> None:
    fast, slow = _log(_times(100.0)), _log(_times(200.0, seed=1))
    assert _speed(fast, slow, (2, 1)).ratio == pytest.approx(1.0, abs=0.02)
    assert _speed(fast, slow, (2, 1)).slow_in == "none"
    assert _speed(slow, fast, (1, 2)).slow_in == "none"
    assert _speed(fast, fast, (1, 2)).slow_in == "compute"


def test_means_hide_single_slow_steps_and_that_is_told() -> None:
    smooth = _log(_times(100.0).reshape(-1, 20).mean(1), every=20, window=SINCE_LAST_PRINT)
    found = _speed(smooth, _log(_times(100.0, slow=1500.0, seed=1)))
    assert found.slow_in == "compute"
    assert any("means over different numbers of steps" in note for note in found.notes)


def test_without_data_times_computing_may_be_loading_and_that_is_told() -> None:
    for waits in (None, _times(150.0) + 1.0):  # unknown, or more than the step took: not a part of it
        found = _speed(_log(_times(100.0), WAITS), _log(_times(150.0, first=200.0), waits))
        assert found.slow_in == "compute"
        assert any("may include loading" in note for note in found.notes)
    assert found.reference.data_share == pytest.approx(0.05, rel=0.02)


def test_logs_without_times_have_no_speed() -> None:
    log = _log(np.ones(5))
    bare = LossLog("bare.log", "made", LogTable(log.table.lines, log.table.steps, None, {}), "loss", "global step", 1)
    assert compare_speed(log, bare) is compare_speed(bare, log) is None
    assert compare_speed(log, _log(np.array([np.nan, 0.0, -1.0]))) is None


def test_few_times_are_told() -> None:
    assert any("only 4 step times" in note for note in _speed(_log(np.ones(5)), _log(np.ones(100))).notes)


def test_times_of_an_epoch_stand_for_all_its_steps() -> None:
    log = read_log(DATA / "mindspore_lossmonitor.log")
    found = _speed(log, log)
    assert found.reference.median == pytest.approx(0.011726)
    assert found.reference.warm_up == 4
    assert found.reference.total == pytest.approx(4 * (0.017024 + 0.011726))
    assert found.slow_in == "none"


def test_a_log_of_times_since_the_last_print_tells_the_time_of_a_step() -> None:
    log = read_log(DATA / "mindcv_rank0.log")
    found = _speed(log, log).reference
    assert (found.first_step, found.warm_up) == (pytest.approx(0.745625), 1)
    assert found.median == pytest.approx(np.median([0.098966, 0.184711 / 2, 0.091885, 0.131907, 0.259738 / 2]))
    assert found.total == pytest.approx(0.745625 + 0.098966 + 0.184711 + 0.091885 + 0.131907 + 0.259738)


@pytest.mark.parametrize("window", [RAW, SINCE_LAST_PRINT, Window("mean of last", 10)])
@pytest.mark.parametrize("first", [10, 91, 1000])
def test_a_log_that_begins_late_tells_nothing_of_step_1(window: Window, first: int) -> None:
    late = _log(_times(100.0, first=500.0), window=window)
    late = replace(late, table=replace(late.table, steps=late.table.steps * 10 + first * 10))
    comparison = compare_speed(_log(_times(100.0)), late)
    assert comparison is not None
    assert comparison.candidate.first_step is None
    assert not any("first step of the candidate" in note for note in comparison.notes)
    assert comparison.candidate.warm_up <= 100


def test_a_mean_that_begins_after_step_1_tells_nothing_of_it() -> None:
    last_ten = Window("mean of last", 10)
    for every, told in ((100, False), (10, True)):
        log = _log(_times(100.0, first=300.0), every=every, window=last_ten)
        comparison = compare_speed(_log(_times(100.0), every=10), log)
        assert comparison is not None
        assert (comparison.candidate.first_step is not None) is told
