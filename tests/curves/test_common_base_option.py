"""Logs without a common step that meet once one of them counts from 0."""

from __future__ import annotations

import numpy as np
import pytest

from align.curves.loss_log import Curve
from align.curves.other_axis import find_common_base


def _every_tenth(first: int, *, guessed: bool) -> Curve:
    steps = np.arange(first, 200, 10)
    return Curve("some.log", "loss", steps, np.ones(len(steps)), np.zeros(len(steps)), base_guessed=guessed)


@pytest.mark.parametrize(
    ("reference", "candidate", "option"),
    [
        (_every_tenth(9, guessed=True), _every_tenth(10, guessed=False), "--reference-base 0"),
        (_every_tenth(10, guessed=True), _every_tenth(9, guessed=True), "--candidate-base 0"),
        (_every_tenth(9, guessed=False), _every_tenth(10, guessed=True), ""),
        (_every_tenth(7, guessed=True), _every_tenth(10, guessed=True), ""),
    ],
)
def test_the_side_that_may_count_from_0_is_named_if_the_steps_meet_then(
    reference: Curve, candidate: Curve, option: str
) -> None:
    assert find_common_base(reference, candidate) == option
