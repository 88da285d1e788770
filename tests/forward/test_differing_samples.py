"""Samples that carry a difference are named where the others agree."""

from __future__ import annotations

import numpy as np
import pytest

from align import compare_forward
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

INPUTS = {"x": np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)}


def model(path, layer, scale):
    def compute(x, weight):
        return (x @ weight.T) * scale

    weights = {"weight": np.eye(3, 4, dtype=np.float32)}
    return ArrayModel((ArrayLayer(path, layer, compute, weights),))


def culprit(scale):
    ones = np.ones((8, 1), np.float32)
    sides = model("fc", "torch.nn.Linear", ones), model("fc", "mindspore.nn.Dense", scale)
    (found,) = compare_forward(*sides, inputs=INPUTS).culprits
    return found


@pytest.mark.parametrize(("wrong", "entries"), [([2, 5], "2, 5"), ([7], "7")])
def test_the_samples_that_differ_are_named(wrong, entries):
    scale = np.ones((8, 1), np.float32)
    scale[wrong] = 0.5
    facts = culprit(scale).facts
    assert (facts["entries"], facts["wrong"], facts["axis_length"]) == (entries, len(wrong), 8)


def test_no_samples_are_named_where_all_differ():
    assert "entries" not in culprit(np.full((8, 1), 0.5, np.float32)).facts
