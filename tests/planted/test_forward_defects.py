"""A defect planted in a real port is found at its layer; without it each port passes (test_forward_clean.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.forward.compare_forward import compare_forward

if TYPE_CHECKING:
    from align.forward.forward_result import ForwardComparison

pytestmark = pytest.mark.frameworks


def place(pairs: Any, result: ForwardComparison) -> tuple[str, str]:
    """Both paths of the first divergent layer; the verdict must name it."""
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    layer = pairs.first(result)
    assert f"{layer.reference or 'the output'} (" in result.verdict.reason
    return layer.reference, layer.candidate


def unpaired(result: ForwardComparison) -> set[str]:
    return {one.module for one in result.unpaired}


@pytest.mark.parametrize(
    ("defect", "reference", "candidate"),
    [
        ("padding", "stem.0", "first"),
        ("conv stride", "stem.0", "first"),
        ("batch norm eps", "stem.1", "first_norm"),
        ("pool pad mode", "pool", "shrink"),
        ("pool stride", "pool", "shrink"),
        ("activation", "blocks.1.relu", "layers.1.act"),
        ("max for average", "average", "gather"),
    ],
)
def test_a_wrong_setting_of_a_convolutional_net_is_found_at_its_layer(
    pairs: Any, defect: str, reference: str, candidate: str
) -> None:
    result = pairs.compare(pairs.TorchConvNet(), pairs.PortConvNet, pairs.images(), defect=defect)
    assert place(pairs, result) == (reference, candidate)
    assert not [finding for finding in result.findings if finding.code == "weights-differ"]


@pytest.mark.parametrize(
    ("defect", "reference", "candidate"),
    [
        ("layer norm eps", "layers.1.ln1", "stack.1.before"),
        ("gelu", "layers.1.gelu", "stack.1.act"),
        ("heads", "layers.1.out", "stack.1.merge"),
        ("scale forgotten", "layers.1.out", "stack.1.merge"),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_setting_of_a_transformer_is_found_at_its_layer(
    pairs: Any, defect: str, reference: str, candidate: str, seed: int
) -> None:
    """What has no module of its own (heads, scale of the scores) shows at the first layer that it feeds."""
    inputs = pairs.tokens(seed, batch=4, length=16)
    result = pairs.compare(pairs.TorchEncoder(), pairs.PortEncoder, inputs, seed=seed, defect=defect)
    assert place(pairs, result) == (reference, candidate)
    assert pairs.first(result).factor > 1.5


def test_a_dropped_residual_shows_where_the_sum_is_used(pairs: Any) -> None:
    result = pairs.compare(pairs.TorchConvNet(), pairs.PortConvNet, pairs.images(), defect="residual dropped")
    layer = pairs.first(result)
    assert (layer.reference, layer.candidate, layer.call) == ("blocks.1.relu", "layers.1.act", 1)
    assert result.layers[result.last_aligned or 0].reference == "blocks.1.bn2"


def test_a_skipped_block_is_told_and_the_next_layer_is_the_first_to_differ(pairs: Any) -> None:
    result = pairs.compare(pairs.TorchConvNet(), pairs.PortConvNet, pairs.images(), defect="block skipped")
    assert place(pairs, result) == ("average", "gather")
    assert result.layers[result.last_aligned or 0].reference == "blocks.0"
    reasons = {one.module: one.reason for one in result.unpaired}
    assert "layers.1.a is not called" in reasons["blocks.1.conv1"]
    assert "layers.1 is not called" in reasons["blocks.1"]
    assert result.verdict.coverage.unmatched_reference >= 6


def filled(pairs: Any, kind: str, **sizes: int) -> tuple[Any, Any, Any, dict[str, Any]]:
    """A pair that is alike, with its map and inputs."""
    inputs = pairs.images() if kind == "ConvNet" else pairs.tokens(batch=4, length=16)
    reference, candidate = getattr(pairs, f"Torch{kind}")(**sizes), getattr(pairs, f"Port{kind}")(**sizes)
    return reference, candidate, pairs.make_alike(reference, candidate, inputs), inputs


@pytest.mark.parametrize(
    ("kind", "first", "second", "reference"),
    [
        ("Encoder", "stack.1.q.weight", "stack.1.k.weight", "layers.1.query"),
        ("Encoder", "stack.0.v.weight", "stack.1.v.weight", "layers.0.value"),
        ("ConvNet", "layers.0.a.weight", "layers.0.b.weight", "blocks.0.conv1"),
        ("ConvNet", "first_norm.gamma", "layers.1.b_norm.gamma", "stem.1"),
        ("ConvNet", "layers.1.a_norm.moving_mean", "layers.1.a_norm.beta", "blocks.1.bn1"),
    ],
)
def test_two_swapped_weights_of_one_shape_are_found_and_named(
    pairs: Any, kind: str, first: str, second: str, reference: str
) -> None:
    original, candidate, name_map, inputs = filled(pairs, kind)
    pairs.swap(candidate, first, second)
    result = compare_forward(original, candidate, inputs=inputs, name_map=name_map)
    assert place(pairs, result)[0] == reference
    named = {finding.subject.partition(" -> ")[2] for finding in result.findings if finding.code == "weights-differ"}
    assert named == {first, second}


def test_a_transposed_square_weight_is_found_and_named(pairs: Any) -> None:
    original, candidate, name_map, inputs = filled(pairs, "Encoder")
    pairs.change(candidate, "stack.1.merge.weight", lambda value: value.T)
    result = compare_forward(original, candidate, inputs=inputs, name_map=name_map)
    assert place(pairs, result) == ("layers.1.out", "stack.1.merge")
    assert [finding.subject for finding in result.findings] == ["layers.1.out.weight -> stack.1.merge.weight"]


def test_stale_statistics_of_a_batch_norm_are_found_and_named(pairs: Any) -> None:
    original, candidate, name_map, inputs = filled(pairs, "ConvNet")
    pairs.change(candidate, "layers.1.b_norm.moving_mean", np.zeros_like)
    pairs.change(candidate, "layers.1.b_norm.moving_variance", np.ones_like)
    result = compare_forward(original, candidate, inputs=inputs, name_map=name_map)
    assert place(pairs, result) == ("blocks.1.bn2", "layers.1.b_norm")
    assert {finding.subject.partition(" -> ")[2] for finding in result.findings} == {
        "layers.1.b_norm.moving_mean",
        "layers.1.b_norm.moving_variance",
    }


def test_weights_that_no_output_shows_are_still_named(pairs: Any) -> None:
    """A row of the embedding that the inputs do not use."""
    original, candidate, name_map, inputs = filled(pairs, "Encoder")
    unused = next(word for word in range(pairs.WORDS) if word not in inputs["tokens"])

    def disturb(value: Any) -> Any:
        value[unused] += 1.0
        return value

    pairs.change(candidate, "embed.embedding_table", disturb)
    result = compare_forward(original, candidate, inputs=inputs, name_map=name_map)
    assert result.first_divergent is None
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert "words.weight -> embed.embedding_table" in result.verdict.reason


def test_a_scale_that_a_later_norm_cancels_is_still_found(pairs: Any) -> None:
    from mindspore import nn as mnn
    from torch import nn

    reference = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8, eps=1e-8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    candidate = mnn.SequentialCell(
        mnn.Conv2d(3, 8, 3, pad_mode="valid", has_bias=True),
        mnn.GroupNorm(2, 8, eps=1e-8),
        mnn.ReLU(),
        mnn.Conv2d(8, 4, 1, pad_mode="valid", has_bias=True),
    )
    inputs = pairs.images()
    name_map = pairs.make_alike(reference, candidate, inputs)
    for name in ("0.weight", "0.bias"):
        pairs.change(candidate, name, lambda value: value * 2)
    result = compare_forward(reference, candidate, inputs=inputs, name_map=name_map)
    outcomes = {layer.reference: layer.outcome for layer in result.layers}
    assert outcomes == {"0": "not aligned", "1": "aligned", "2": "aligned", "3": "aligned", "": "aligned"}
    assert place(pairs, result) == ("0", "0")


def test_a_layer_that_only_the_port_has_is_told(pairs: Any) -> None:
    from mindspore import nn as mnn
    from torch import nn

    reference = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))
    candidate = mnn.SequentialCell(mnn.Dense(8, 8), mnn.Sigmoid(), mnn.Dense(8, 3))
    result = pairs.compare(reference, lambda: candidate, pairs.vectors(8, batch=4))
    assert place(pairs, result) == ("1", "2")
    assert unpaired(result) == {"1"}
    assert result.layers[0].outcome == "aligned"


def test_an_output_of_another_size_is_not_aligned(pairs: Any) -> None:
    from mindspore import nn as mnn
    from torch import nn

    reference = nn.Sequential(nn.Linear(8, 8), nn.Flatten(0))
    candidate = mnn.SequentialCell(mnn.Dense(8, 8), mnn.MaxPool1d(2, 2))
    result = pairs.compare(reference, lambda: candidate, pairs.vectors(8, batch=4))
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert pairs.first(result).note == "shapes [32] and [4, 4] differ"


def test_an_output_of_the_same_size_in_another_layout_could_not_be_compared(pairs: Any) -> None:
    from mindspore import nn as mnn
    from torch import nn

    reference = nn.Sequential(nn.Linear(8, 8), nn.Flatten(0))
    result = pairs.compare(reference, lambda: mnn.SequentialCell(mnn.Dense(8, 8)), pairs.vectors(8, batch=4))
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert result.layers[0].outcome == "aligned"
