"""How a wrong gradient follows from the right one, also where only some elements are looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.training.steps.judge_step import relate_gradients
from align.training.thresholds import RELATION_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable


def halves_silent(right: Any) -> Any:
    return np.where(np.arange(right.size) % 2 == 0, 0, right)


@pytest.mark.parametrize("size", [100, 2 * RELATION_ELEMENTS + 1])
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda right: 3 * right, "gradient-factor"),
        (lambda right: right.clip(-0.5, 0.5), "gradient-clipped"),
        (halves_silent, "gradient-masked"),
        (lambda right: 0 * right, "no-gradient"),
        (lambda right: right**2, ""),
    ],
)
def test_a_relation_is_the_same_for_large_and_small_gradients(
    size: int, change: Callable[[Any], Any], cause: str
) -> None:
    right = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    assert relate_gradients(right, change(right)).cause == cause


def test_a_gradient_of_few_elements_that_are_not_zero_has_no_wrong_relation() -> None:
    right, own = np.zeros(2 * RELATION_ELEMENTS, np.float32), np.zeros(2 * RELATION_ELEMENTS, np.float32)
    right[1], own[3] = 1, 1
    assert relate_gradients(right, own).cause == ""
