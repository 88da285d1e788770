"""Movement in multiples of a limit, and outputs whose differences are below it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from align.core.traces import Capture, Limit
from align.forward.measure_power import MovementSink, output_powers

RNG = np.random.default_rng(0)
LIMIT = Limit(1e-3, 1e-3, "noise")


class Kept:
    """A trace of one module's outputs, call by call."""

    def __init__(self, *values: Any) -> None:
        self.environment: dict[str, str] = {}
        named = list(enumerate(np.asarray(value) for value in values))
        self.captures = tuple(Capture(i, "layer", i, "", "Layer", v.shape, v.dtype.name) for i, v in named)
        self._values = {capture.key: value for capture, (_, value) in zip(self.captures, named, strict=True)}

    def value(self, capture: Capture) -> Any:
        return self._values[capture.key]


def moved(own: Any, other: Any, limit: Limit = LIMIT) -> float | None:
    """Factor of a lone output."""
    ordinary, again = Kept(own), Kept(other)
    sink = MovementSink(ordinary, {"layer#0": limit})
    sink.add(again.captures[0], again.value(again.captures[0]))
    (row,) = output_powers(ordinary, {"layer#0": limit}, [sink.factors])
    return row.factor


def state(value: Any, limit: Limit = LIMIT) -> str:
    (row,) = output_powers(Kept(value), {"layer#0": limit}, [])
    return row.state


def test_movement_counts_in_multiples_of_the_limit() -> None:
    assert moved(np.zeros(4), np.full(4, 5e-3)) == pytest.approx(5.0)
    assert moved(np.zeros(4), np.full(4, 5e-4)) == pytest.approx(0.5)


def test_another_shape_has_moved() -> None:
    assert moved(np.zeros(4), np.zeros(5)) == np.inf


def test_nan_that_a_strange_input_makes_is_no_movement() -> None:
    assert moved(np.zeros(4), np.array([0.0, np.nan, 0.0, 0.0])) == 0.0


def test_the_run_that_moves_it_most_counts() -> None:
    (row,) = output_powers(Kept(np.zeros(2)), {"layer#0": LIMIT}, [{"layer#0": 0.5}, {"layer#0": 7.0}, {}])
    assert row.factor == 7.0


def test_tensors_that_were_not_compared_have_no_row_and_uncalled_ones_no_factor() -> None:
    (row,) = output_powers(Kept(np.zeros(2), np.zeros(2)), {"layer#1": LIMIT}, [{}])
    assert (row.call, row.factor) == (1, None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.zeros((4, 50)), "constant"),
        (np.full((4, 50), 3.0) + RNG.uniform(0, 5e-4, (4, 50)), "constant"),
        (RNG.standard_normal((4, 50)), ""),
        (0.5 + 0.5 * np.tanh(1e4 * RNG.standard_normal(200)), "saturated"),
        (np.tanh(1e4 * RNG.standard_normal(200)), "saturated"),
        (np.tanh(RNG.standard_normal(200)), ""),
        (np.maximum(RNG.standard_normal(1000) - 2.5, 0), "saturated"),
        (np.maximum(RNG.standard_normal(1000), 0), ""),
        (np.array([0.0, 1.0]), "whole"),
        (np.array([2.0]), ""),
        (np.arange(200), "whole"),
        (np.full(200, np.nan), ""),
    ],
)
def test_the_state_of_an_output_is_seen_from_its_values(value: Any, expected: str) -> None:
    assert state(value) == expected
