"""What a map comes to: unsure pairs and places in another order are no alignment."""

from __future__ import annotations

import numpy as np

import align
from align.core.verdicts import Outcome
from align.models.frameworks.arrays import ArrayLayer, ArrayModel


def blocks(family: str, *widths: int) -> ArrayModel:
    """Blocks of two linear layers; the inner width tells one from another."""
    kind = "torch.nn.Linear" if family == "torch" else "mindspore.nn.Dense"
    layers = []
    for n, width in enumerate(widths):
        for name, shape in (("up", (width, 4)), ("down", (4, width))):
            weight = {"weight": np.ones(shape, np.float32)}
            layers.append(ArrayLayer(f"layers.{n}.{name}", kind, lambda x, weight: x @ weight.T, weight))
    return ArrayModel(tuple(layers))


def test_two_blocks_in_another_order_are_named_and_all_is_paired() -> None:
    result = align.map_parameters(blocks("torch", 5, 6, 7, 8), blocks("nn", 5, 7, 6, 8))
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert "layers.1 and layers.2 are swapped" in result.verdict.reason
    pairs = {p.source: p.target for p in result.name_map.pairings}
    assert pairs["layers.1.up.weight"] == "layers.2.up.weight"
    assert result.name_map.complete


def test_blocks_in_one_order_are_aligned() -> None:
    assert align.map_parameters(blocks("torch", 5, 6, 7), blocks("nn", 5, 6, 7)).verdict.outcome is Outcome.ALIGNED


def test_blocks_that_only_moved_on_are_not_swapped() -> None:
    result = align.map_parameters(blocks("torch", 5, 6, 7), blocks("nn", 6, 7))
    assert "are swapped" not in result.verdict.reason
    assert {p.source: p.target for p in result.name_map.pairings}["layers.1.up.weight"] == "layers.0.up.weight"


def test_a_trial_that_cannot_run_proves_nothing_and_loses_no_map_that_names_settle() -> None:
    def fails(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        msg = "no kernel"
        raise RuntimeError(msg)

    def model(kind: str, name: str, function) -> ArrayModel:
        return ArrayModel((ArrayLayer(name, kind, function, {"weight": np.ones((4, 4), np.float32)}),))

    def linear(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x @ weight.T

    inputs = {"x": np.ones((2, 4), np.float32)}
    port = model("mindspore.nn.Dense", "fc", fails)
    result = align.map_parameters(model("torch.nn.Linear", "fc", linear), port, inputs=inputs, trial=True)
    assert result.name_map.complete
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert "the trial could not run" in result.verdict.reason
    assert "no kernel" in result.verdict.reason
