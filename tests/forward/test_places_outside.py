"""How many elements are outside their limit, and in which samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align
from align.core.documents import to_json_data
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.report.kinds.forward import first_divergent_block

X = {"x": np.random.default_rng(0).standard_normal((10, 10)).astype(np.float32)}


def compared(places: Any, change: Any) -> Any:
    def right(x: Any, weight: Any) -> Any:
        return np.tanh(x) * weight

    def wrong(x: Any, weight: Any) -> Any:
        y = right(x, weight) * np.float32(1 + 1e-7)
        y[places] = change(y[places])
        return y

    sides = [
        ArrayModel((ArrayLayer("fc", family, code, {"weight": np.arange(1, 11, dtype=np.float32)}),))
        for family, code in (("torch.nn.Linear", right), ("mindspore.nn.Dense", wrong))
    ]
    return align.compare_forward(*sides, inputs=X)


@pytest.mark.parametrize(
    ("places", "outside", "samples"),
    [((3,), 10, (3,)), ((slice(None), 4), 10, tuple(range(10))), ((slice(2, 4), slice(0, 3)), 6, (2, 3))],
)
def test_elements_outside_the_limit_and_their_samples(places: Any, outside: int, samples: tuple[int, ...]) -> None:
    result = compared(places, lambda y: y + 0.5)
    row = result.layers[0]
    assert (row.outside, row.samples) == (outside, samples)
    assert row.measurement.mismatched >= outside


def test_a_nan_on_one_side_is_outside() -> None:
    row = compared((1, 2), lambda y: y * np.nan).layers[0]
    assert (row.outside, row.samples) == (1, (1,))


def test_the_panel_counts_what_it_says_and_names_the_samples() -> None:
    told = str(first_divergent_block(to_json_data(compared((3,), lambda y: y + 0.5))))
    assert "10 of 100 elements" in told
    assert "in 1 sample of 10 (number 3, from 0)" in told
