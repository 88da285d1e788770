"""Two implementations of ResNet-50 by different people: the published port differs at one layer, repaired it aligns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import align
from align.core.verdicts import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from align.forward.forward_result import ForwardComparison

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(resnet50: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The torch checkpoint, and the same converted by the map of the two live models."""
    folder = tmp_path_factory.mktemp("resnet50")
    resnet50.save_checkpoint(folder / "resnet50.pth")
    mapped = align.map_parameters(resnet50.torch_model(), resnet50.mindspore_model(), out=folder / "map.toml")
    mapped.verdict.require_aligned()
    align.convert_checkpoint(folder / "resnet50.pth", folder / "resnet50.ckpt", name_map=mapped.name_map)
    return folder


def compare(resnet50: Any, folder: Path, port: Any) -> ForwardComparison:
    return align.compare_forward(
        align.open_side(resnet50.torch_model(), folder / "resnet50.pth"),
        align.open_side(port, folder / "resnet50.ckpt"),
        inputs=resnet50.inputs(),
        name_map=folder / "map.toml",
    )


def test_the_published_port_first_differs_at_its_max_pooling(resnet50: Any, folder: Path) -> None:
    result = compare(resnet50, folder, resnet50.mindspore_model())
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert result.first_divergent is not None
    layer = result.layers[result.first_divergent]
    assert (layer.reference, layer.candidate) == ("resnet.embedder.pooler", "max_pool")
    assert (layer.reference_class, layer.candidate_class) == ("MaxPool2d", "MaxPool2d")
    assert result.layers[result.last_aligned or 0].candidate == "relu"
    assert not result.findings


def test_the_repaired_port_is_aligned_in_every_layer(resnet50: Any, folder: Path) -> None:
    result = compare(resnet50, folder, resnet50.repaired_model())
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.verdict.coverage.compared >= 175
    factors = [layer.factor for layer in result.layers if layer.factor is not None]
    assert max(factors) < 0.5
    assert all(layer.certain for layer in result.layers if layer.reference_class in {"ReLU", "MaxPool2d"})
