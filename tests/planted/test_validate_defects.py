"""Validation of real pairs: a clean port, and defects of its code, data, metric and weights that must be named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome

SAMPLES, BATCH = 48, 16


def batches(scale: float = 1.0, *, crossed: bool = False) -> list[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(0)
    images = generator.standard_normal((SAMPLES, 3, 16, 16)).astype(np.float32)
    labels = generator.integers(0, 5, SAMPLES)
    images = images[:, ::-1].copy() if crossed else images
    starts = range(0, SAMPLES, BATCH)
    return [(images[start : start + BATCH] * np.float32(scale), labels[start : start + BATCH]) for start in starts]


@pytest.fixture(scope="module")
def sides(pairs: Any) -> Any:
    """A torch model, and ports of it with its weights, by defect."""
    import torch

    torch.manual_seed(0)
    reference = pairs.TorchConvNet().eval()
    for module in reference.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_var, 0.01, 0.1)
            torch.nn.init.normal_(module.running_mean)

    def port(defect: str = "") -> Any:
        candidate = pairs.PortConvNet(defect=defect)
        carry(reference, candidate)
        return candidate

    return reference, port


def carry(reference: Any, candidate: Any) -> None:
    from align.traces.open_trace import TransferredWeights

    weights = TransferredWeights((align.open_side(reference), align.open_side(candidate)), None, {"x": batches()[0][0]})
    assert weights.exchangeable
    with weights.loaded():
        values = align.open_side(candidate).reader.read_values(candidate)
    align.open_side(candidate).reader.load_values(candidate, values)


@pytest.mark.frameworks
def test_a_clean_port_is_aligned_by_every_metric_that_fits(sides: Any) -> None:
    reference, port = sides
    candidate = port()
    for metric in ("accuracy", "top5"):
        result = align.validate_models(reference, candidate, data=batches(), metric=metric)
        assert result.verdict.outcome is Outcome.ALIGNED, result.verdict.reason
        assert (result.outputs.flipped - result.outputs.ties, result.findings) == (0, ())
        assert result.outputs.limit.source in ("noise", "rounding")


@pytest.mark.frameworks
@pytest.mark.parametrize("defect", ["batch norm eps", "max for average"])
def test_a_defect_of_the_code_is_no_fault_of_data_or_weights(sides: Any, defect: str) -> None:
    reference, port = sides
    result = align.validate_models(reference, port(defect), data=batches(), candidate_data=batches())
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert result.causes == ("model",)


@pytest.mark.frameworks
@pytest.mark.parametrize("changed", [{"scale": 1.01}, {"crossed": True}])
def test_a_defect_of_the_data_is_named(sides: Any, changed: dict[str, Any]) -> None:
    reference, port = sides
    result = align.validate_models(reference, port(), data=batches(), candidate_data=batches(**changed))
    assert result.causes == ("data",)
    assert "48 have other inputs, 0 other labels" in result.findings[0].message


@pytest.mark.frameworks
def test_stale_weights_are_named_and_put_back(sides: Any, pairs: Any) -> None:
    reference, _ = sides
    candidate = pairs.PortConvNet()
    before = align.open_side(candidate).reader.read_values(candidate)
    result = align.validate_models(reference, candidate, data=batches())
    assert result.causes == ("weights",)
    after = align.open_side(candidate).reader.read_values(candidate)
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.frameworks
def test_a_metric_that_counts_from_one_is_named(sides: Any) -> None:
    def counts_from_one(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return outputs.argmax(-1) + 1 == labels

    reference, port = sides
    result = align.validate_models(reference, port(), data=batches(), candidate_metric=counts_from_one)
    assert result.causes == ("metric",)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
