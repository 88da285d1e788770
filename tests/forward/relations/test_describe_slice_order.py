"""Orders of slices have the names that people use for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.forward.relations.relation import describe_order, divisors

if TYPE_CHECKING:
    from align.forward.relations.relation import Fact

LINE = np.arange(12)


@pytest.mark.parametrize(
    ("order", "name", "facts"),
    [
        (LINE[::-1], "flipped", {}),
        (np.array([2, 1, 0]), "flipped", {}),
        (np.array([1, 0]), "swapped", {"first": 0, "second": 1}),
        (np.array([0, 4, 2, 3, 1]), "swapped", {"first": 1, "second": 4}),
        (np.roll(LINE, 1), "rolled", {"by": 1}),
        (np.roll(LINE, -5), "rolled", {"by": -5}),
        (LINE.reshape(4, 3)[[1, 0, 2, 3]].ravel(), "parts-reordered", {"parts": 4, "order": "1,0,2,3"}),
        (LINE.reshape(3, 4).T.ravel(), "interleaved", {"rows": 3, "columns": 4, "block": 1}),
        (LINE.reshape(2, 3, 2).swapaxes(0, 1).ravel(), "interleaved", {"rows": 2, "columns": 3, "block": 2}),
        (np.array([2, 0, 1, 4, 3]), "permuted", {"first": "0 holds 2, 1 holds 0, 2 holds 1, 3 holds 4, 4 holds 3"}),
        (np.array([-1, 0, 1, 2]), "displaced", {"by": 1}),
        (np.array([-1, 3, 1, 2]), "permuted", {"first": "1 holds 3, 2 holds 1, 3 holds 2"}),
    ],
)
def test_an_order_has_a_name(order: np.ndarray, name: str, facts: dict[str, Fact]) -> None:
    assert describe_order(order) == (name, facts)


@pytest.mark.parametrize("number", [1, 2, 7, 36, 768])
def test_divisors_are_all_and_in_order(number: int) -> None:
    assert divisors(number) == [one for one in range(1, number + 1) if number % one == 0]
