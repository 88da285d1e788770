"""One batch or several: one way to walk through them, and names that several can be told apart by in one file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from align.models.inputs import batches_from_names, batches_of, named_arrays

X, Y = np.zeros(1), np.ones(1)


def test_a_mapping_is_one_batch() -> None:
    assert batches_of({"x": X}) == ({"x": X},)
    assert batches_of([{"x": X}, {"x": Y}]) == ({"x": X}, {"x": Y})


def test_one_batch_keeps_its_names() -> None:
    assert named_arrays({"x": X}) == named_arrays([{"x": X}]) == {"x": X}


def test_several_batches_have_names_of_their_own_and_are_told_apart_by_them() -> None:
    batches: list[dict[str, Any]] = [{"x": X, "mask": Y}] + [{"x": Y}] * 10
    named = named_arrays(batches)
    assert list(named)[:3] == ["batch1/x", "batch1/mask", "batch2/x"]
    assert batches_from_names(named) == tuple(batches)


@pytest.mark.parametrize(
    "names", [["x", "batch1/x"], ["batch2/x"], ["batch1/x", "batch3/x"], ["batch0/x"], ["batch01/x"], ["batch1/"], []]
)
def test_other_names_are_one_batch(names: list[str]) -> None:
    arrays = dict.fromkeys(names, X)
    assert batches_from_names(arrays) == (arrays,)
