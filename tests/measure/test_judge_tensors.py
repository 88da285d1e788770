"""Elements that share their error: a channel of one value is not judged apart, and its noise is one draw."""

from __future__ import annotations

import numpy as np
import pytest

from align.measure.limits import measure_parts, slices_of


@pytest.mark.parametrize("unlike", [1, 2, 3])
def test_a_channel_of_few_unlike_values_is_not_judged_apart(unlike: int) -> None:
    values = np.random.default_rng(0).standard_normal((2, 8, 12, 12)).astype(np.float32)
    values[:, 5] = 1e-4 * (1 + np.arange(2 * 144).reshape(2, 12, 12) % unlike)
    assert "index 5 of axis 1" not in [one.label for one in slices_of(values)]
    values[:, 5] = 1e-4 * np.random.default_rng(1).standard_normal((2, 12, 12))
    assert "index 5 of axis 1" in [one.label for one in slices_of(values)]


@pytest.mark.parametrize("draws", [1, 2, 5])
def test_the_noise_of_elements_that_share_their_error_is_of_so_many_draws(draws: int) -> None:
    exact = np.tile(np.linspace(0.1, 0.2, draws), 100)
    found = measure_parts("x", exact, exact.astype(np.float32))
    assert found["x"].count == draws


def test_noise_of_unlike_elements_counts_all_of_them() -> None:
    exact = np.random.default_rng(0).standard_normal(500)
    assert measure_parts("x", exact, exact.astype(np.float32))["x"].count == 500
