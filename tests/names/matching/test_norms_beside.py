"""Norms that no word tells apart pair by what is registered around them, where both sides agree on that."""

from __future__ import annotations

import numpy as np
import pytest

from align.core.thresholds import SURE
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.names.map_parameters import map_parameters

SHAPES = {"s": (8, 8), "c": (8, 8), "f": (16, 8), "1": (8,), "2": (8,), "3": (8,)}
TORCH = {"s": "self_attn.q", "c": "cross_attn.q", "f": "fc", "1": "norm1", "2": "norm2", "3": "norm3"}
PORT = {"s": "attn.wq", "c": "enc_attn.wq", "f": "dense", "1": "pre", "2": "mid", "3": "last"}
CLASSES = {
    "torch": ("torch.nn.Linear", "torch.nn.LayerNorm", "weight"),
    "nn": ("mindspore.nn.Dense", "mindspore.nn.LayerNorm", "gamma"),
}


def model(family: str, names: dict[str, str], order: str) -> ArrayModel:
    """Two blocks whose layers are registered in this order."""
    linear, norm, scale = CLASSES[family]
    layers = [
        ArrayLayer(f"blocks.{block}.{names[key]}", linear, len, {"weight": np.zeros(SHAPES[key], np.float32)})
        if key in "scf"
        else ArrayLayer(f"blocks.{block}.{names[key]}", norm, len, {scale: np.zeros(SHAPES[key], np.float32)})
        for block in range(2)
        for key in order
    ]
    return ArrayModel(tuple(layers))


@pytest.mark.parametrize("order", ["1s2c3f", "s1c2f3", "1s2cf3"])
def test_norms_that_stand_alike_beside_attentions_pair(order: str) -> None:
    found = map_parameters(model("torch", TORCH, order), model("nn", PORT, order)).name_map
    assert found.complete
    true = {f"blocks.{block}.{TORCH[key]}": f"blocks.{block}.{PORT[key]}" for block in range(2) for key in SHAPES}
    assert {p.source.rpartition(".")[0]: p.target.rpartition(".")[0] for p in found.pairings} == true
    norms = [p for p in found.pairings if ".norm" in p.source]
    assert all(p.confidence < SURE for p in norms)


@pytest.mark.parametrize(("left", "right"), [("1s2c3f", "s1c2f3"), ("1s2c3f", "c2s1f3"), ("scf123", "scf123")])
def test_norms_that_stand_otherwise_or_alone_stay_open(left: str, right: str) -> None:
    found = map_parameters(model("torch", TORCH, left), model("nn", PORT, right)).name_map
    assert not [p for p in found.pairings if ".norm" in p.source]
    assert {name for group in found.ambiguous for name in group.sources if ".norm" in name} == {
        f"blocks.{block}.norm{number}.weight" for block in range(2) for number in (1, 2, 3)
    }
