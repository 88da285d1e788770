"""Spikes, explosions, lost and skipped points, and changes of learning-rate schedules of many shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from align.curves.event_rules import find_boundaries, find_events
from align.curves.judging_thresholds import MOST_EVENTS
from align.curves.loss_log import Curve, Skips

if TYPE_CHECKING:
    from align.curves.loss_log import CurveEvent

STEPS = 600
TIMES = np.arange(STEPS)
DESCENT = 8.0 * np.exp(-TIMES / 60.0) + 2.0


def _curve(values: object, *, every: int = 1, unit: float = 0.0, metric: str = "loss") -> Curve:
    numbers = np.asarray(values, np.float64)
    count = len(numbers)
    return Curve("some.log", metric, every * (1 + np.arange(count)), numbers, np.full(count, unit))


def _noisy(size: float, seed: int = 0, values: np.ndarray = DESCENT) -> np.ndarray:
    return values * (1.0 + size * np.random.default_rng(seed).normal(size=len(values)))


def _events(candidate: Curve, **others: object) -> list[CurveEvent]:
    events, _ = find_events(_curve(DESCENT), candidate, **others)  # type: ignore[arg-type]
    assert all(event.side == "candidate" for event in events)
    return list(events)


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("at", [50, 300, 560])
@pytest.mark.parametrize("length", [1, 3, 30])
def test_a_spike_goes_up_and_comes_back(noise: float, at: int, length: int) -> None:
    values = _noisy(noise)
    values[at : at + length] += 3.0 * DESCENT[at] * np.exp(-np.arange(length) / 10.0)
    (event,) = _events(_curve(values))
    assert (event.kind, event.step) == ("spike", at + 1)
    assert event.value == values[at : at + length].max()


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("at", [50, 300, 560])
@pytest.mark.parametrize("shape", ["stays", "grows", "ends in NaN"])
def test_an_explosion_goes_up_and_stays(noise: float, at: int, shape: str) -> None:
    values, after = _noisy(noise), np.arange(STEPS - at)
    values[at:] += 3.0 * DESCENT[at] * (1.2 ** np.minimum(after, 30) if shape == "grows" else 1.0)
    if shape == "ends in NaN":
        values[at + 8 :] = np.nan
    event, *rest = _events(_curve(values))
    assert (event.kind, event.step) == ("explosion", at + 1)
    assert [(one.kind, one.step, one.value) for one in rest] == (
        [("not finite", at + 9, STEPS - at - 8)] if shape == "ends in NaN" else []
    )


@pytest.mark.parametrize("count", [1, 3, 20, 60, STEPS])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05])
def test_descending_curves_have_hardly_any_spikes(count: int, noise: float) -> None:
    shapes = (8.0 * np.exp(-np.arange(count) * 8 / count) + 2.0, 3.0 - 2.0 * np.arange(count) / count)
    found = [bool(find_events(*[_curve(_noisy(noise, seed, shape))] * 2)[0]) for shape in shapes for seed in range(50)]
    assert np.mean(found) <= 0.05


def test_a_slow_rise_is_neither_a_spike_nor_an_explosion() -> None:
    assert _events(_curve(_noisy(0.01, values=2.0 + TIMES / STEPS * 4.0))) == []


def test_a_rate_or_an_accuracy_that_goes_up_is_no_spike() -> None:
    steps = np.where(TIMES < 300, 0.1, 1.0)
    assert find_events(*[_curve(steps, metric="accuracy")] * 2) == ((), ())


def test_of_points_and_steps_in_a_row_the_first_is_told_with_their_number() -> None:
    values, at = DESCENT.copy(), np.array([5, 6, 7, 100])
    values[[40, 41, 599]] = np.nan, np.inf, np.nan
    curve = _curve(values)
    events = _events(
        Curve(curve.label, "loss", curve.steps, values, curve.resolution, skips=Skips(at, at + 1, np.ones(4, int)))
    )
    assert [(event.kind, event.step, event.value) for event in events] == [
        ("skipped", 6, 3), ("not finite", 41, 2), ("skipped", 101, 1), ("not finite", 600, 1),
    ]  # fmt: skip


def test_of_many_events_the_first_are_listed_and_all_counted() -> None:
    values = DESCENT.copy()
    values[::4] = np.nan
    events, notes = find_events(_curve(DESCENT), _curve(values))
    assert len(events) == MOST_EVENTS
    assert notes == (f"not finite in the candidate: 150 times, of which the first {MOST_EVENTS} are listed",)


WARM_UP = np.minimum(1.0, (TIMES + 1) / 60)
COSINE = 0.5 * (1.0 + np.cos(np.pi * np.clip(TIMES - 60, 0, None) / (STEPS - 60)))
SCHEDULES = {
    "constant": (np.ones(STEPS), []),
    "cosine": (0.5 * (1.0 + np.cos(np.pi * TIMES / STEPS)), []),
    "exponential": (0.995**TIMES, []),
    "polynomial": ((1.0 - TIMES / STEPS) ** 0.9, []),
    "warm-up, constant": (WARM_UP, [61]),
    "warm-up, cosine": (WARM_UP * COSINE, [61]),
    "warm-up, inverse root": (np.minimum(WARM_UP, (60.0 / (TIMES + 1)) ** 0.5), [61]),
    "steps": (0.1 ** (TIMES // 200), [201, 401]),
    "warm restarts": (0.5 * (1.0 + np.cos(np.pi * (TIMES % 150) / 150)), [151, 301, 451]),
    "warm-up, stable, decay": (np.minimum(WARM_UP, (STEPS - TIMES) / 200), [61, 402]),
}


@pytest.mark.parametrize("largest", [1e-5, 0.1])
@pytest.mark.parametrize("printed", ["all digits", "float32", "four digits", "every fifth"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_changes_where_its_level_jumps_or_its_slope_breaks(name: str, printed: str, largest: float) -> None:
    rates, changes = SCHEDULES[name]
    rates, unit, every = rates * largest, 0.0, 1
    if printed == "float32":
        rates = rates.astype(np.float32)
    if printed == "four digits":
        unit = 1e-3 * largest
        rates = np.round(rates / unit) * unit
    if printed == "every fifth":
        rates, every = rates[4::5], 5
    curve = _curve(rates, every=every, unit=unit, metric="lr")
    found = curve.steps[find_boundaries(curve)]
    assert len(found) == len(changes)
    assert np.all(np.abs(found - np.array(changes)) <= (6 if every > 1 else 1))


def test_boundaries_are_events_with_the_new_rate() -> None:
    rate = _curve(SCHEDULES["steps"][0], metric="lr")
    events = _events(_curve(DESCENT), lr=(None, rate))
    assert [(event.kind, event.step, event.value) for event in events] == [
        ("schedule boundary", 201, rate.values[200]), ("schedule boundary", 401, rate.values[400]),
    ]  # fmt: skip


@pytest.mark.parametrize("rates", [[], [0.1], [0.1, 0.2], [np.nan] * 9])
def test_too_few_rates_have_no_boundary(rates: list[float]) -> None:
    assert len(find_boundaries(_curve(rates, metric="lr"))) == 0


@given(st.lists(st.floats(), max_size=40), st.lists(st.floats(), max_size=40))
@settings(max_examples=100, deadline=None)
def test_whatever_the_curves_are_events_lie_on_their_steps(losses: list[float], rates: list[float]) -> None:
    curve, rate = _curve(losses), _curve(rates, metric="lr")
    for event in find_events(curve, curve, (rate, None))[0]:
        assert event.step in (rate if event.kind == "schedule boundary" else curve).steps


@pytest.mark.usefixtures("guarded")
def test_a_million_points_are_not_looked_at_one_by_one(growth) -> None:
    def find(count: int) -> None:
        times = np.arange(count) / count
        losses = _noisy(0.03, values=8.0 * np.exp(-times * 10) + 2.0)
        rate = _curve(np.minimum(1.0, times * 100) * 0.5 * (1.0 + np.cos(np.pi * times)), metric="lr")
        find_events(_curve(losses), _curve(losses[::-1].copy()), (rate, rate))

    assert growth(find, 100_000) < 1.1
    find(1_000_000)


def test_where_a_resumed_run_begins_is_told() -> None:
    curve = _curve(DESCENT)
    (event,) = _events(Curve(curve.label, "loss", curve.steps, DESCENT, curve.resolution, resumed=TIMES == 99))
    assert (event.kind, event.step, event.value) == ("resumed", 100, DESCENT[99])
