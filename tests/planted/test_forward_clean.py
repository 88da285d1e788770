"""Clean ports of several architectures, depths, seeds and dtypes raise no alarm, and stay well within limits."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from align.core.verdicts import Outcome
from align.forward.compare_forward import compare_forward

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.forward.forward_result import ForwardComparison

pytestmark = pytest.mark.frameworks

# The largest factor ever seen stands in docs/forward.md; a clean pair above this calls for a look at the limits.
WELL_WITHIN = 0.6
WELL_WITHIN_IN_HALF = 0.75


def check_aligned(pairs: Any, result: ForwardComparison, well_within: float = WELL_WITHIN) -> None:
    largest = max(result.layers, key=lambda layer: layer.factor or 0.0)
    assert result.verdict.outcome is Outcome.ALIGNED, (result.verdict.reason, pairs.largest_factor(result))
    assert result.first_divergent is None
    assert pairs.largest_factor(result) < well_within, largest


ARCHITECTURES = {
    "convolutions": lambda p, seed: (p.TorchConvNet(), p.PortConvNet, p.images(seed)),
    "wider and deeper": lambda p, seed: (
        p.TorchConvNet(width=16, depth=5), lambda: p.PortConvNet(width=16, depth=5), p.images(seed, batch=4, size=24),
    ),
    "attention": lambda p, seed: (p.TorchEncoder(), p.PortEncoder, p.tokens(seed)),
    "deep attention": lambda p, seed: (
        p.TorchEncoder(32, 6, 8), lambda: p.PortEncoder(32, 6, 8), p.tokens(seed, batch=4, length=24),
    ),
    "embedding and lstm": lambda p, seed: (p.TorchReader(), p.PortReader, p.tokens(seed)),
    "one number from one sequence": lambda p, seed: (p.TorchReader(), p.PortReader, p.tokens(seed, batch=1)),
    "one number from one row": lambda p, seed: (
        p.torch_mlp(32, 4, 1), lambda: p.port_mlp(32, 4, 1), p.vectors(32, seed),
    ),
    "two numbers from one row": lambda p, seed: (
        p.torch_mlp(32, 4, 2), lambda: p.port_mlp(32, 4, 2), p.vectors(32, seed),
    ),
    "sixteen layers": lambda p, seed: (
        p.torch_mlp(64, 16, 10), lambda: p.port_mlp(64, 16, 10), p.vectors(64, seed, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_clean_port_raises_no_alarm(pairs: Any, name: str, seed: int) -> None:
    reference, port, inputs = ARCHITECTURES[name](pairs, seed)
    result = pairs.compare(reference, port, inputs, seed=seed)
    check_aligned(pairs, result)
    assert not result.findings


def test_everything_that_both_sides_have_is_compared(pairs: Any) -> None:
    result = pairs.compare(pairs.TorchEncoder(), pairs.PortEncoder, pairs.tokens())
    assert not result.unpaired
    assert len({(layer.reference, layer.call, layer.output) for layer in result.layers}) == len(result.layers) == 29
    assert [layer.output for layer in result.layers if not layer.reference] == ["logits", "hidden"]


def built_in(name: str, width: int) -> tuple[Any, Any]:
    """One layer of each framework that does several things at once, between two others."""
    from mindspore import nn as mnn
    from torch import nn

    made: dict[str, Callable[[], tuple[Any, Any]]] = {
        "transformer layer": lambda: (
            nn.TransformerEncoderLayer(width, 4, 32, batch_first=True),
            mnn.TransformerEncoderLayer(width, 4, 32, batch_first=True),
        ),
        "softmax": lambda: (nn.Softmax(-1), mnn.Softmax(-1)),
        "log softmax": lambda: (nn.LogSoftmax(-1), mnn.LogSoftmax(-1)),
        "log sigmoid": lambda: (nn.LogSigmoid(), mnn.LogSigmoid()),
        "sigmoid": lambda: (nn.Sigmoid(), mnn.Sigmoid()),
        "elu": lambda: (nn.ELU(), mnn.ELU()),
        "mish": lambda: (nn.Mish(), mnn.Mish()),
        "gelu": lambda: (nn.GELU(), mnn.GELU(approximate=False)),
        "layer norm": lambda: (nn.LayerNorm(width), mnn.LayerNorm((width,), epsilon=1e-5)),
    }
    layers = made[name]()
    return (
        nn.Sequential(nn.Linear(width, width), layers[0], nn.Linear(width, width)),
        mnn.SequentialCell(mnn.Dense(width, width), layers[1], mnn.Dense(width, width)),
    )


@pytest.mark.parametrize(
    "name",
    [
        "transformer layer", "softmax", "log softmax", "log sigmoid", "sigmoid", "elu", "mish", "gelu", "layer norm",
    ],
)  # fmt: skip
def test_kernels_that_approximate_otherwise_raise_no_alarm(pairs: Any, name: str) -> None:
    import numpy as np

    reference, candidate = built_in(name, 16)
    inputs = {"x": np.random.default_rng(0).standard_normal((64, 64, 16)).astype(np.float32)}
    check_aligned(pairs, pairs.compare(reference, lambda: candidate, inputs))


def test_an_image_generator_raises_no_alarm(pairs: Any) -> None:
    from mindspore import nn as mnn
    from torch import nn

    reference = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.SiLU(),
        nn.ConvTranspose2d(8, 8, 2, 2), nn.BatchNorm2d(8), nn.LeakyReLU(0.2), nn.Conv2d(8, 3, 3, padding=1), nn.Tanh(),
    )  # fmt: skip
    padded = {"pad_mode": "pad", "padding": 1, "has_bias": True}
    candidate = mnn.SequentialCell(
        mnn.Conv2d(3, 8, 3, 2, **padded), mnn.GroupNorm(2, 8), mnn.SiLU(),
        mnn.Conv2dTranspose(8, 8, 2, 2, pad_mode="valid", has_bias=True), mnn.BatchNorm2d(8), mnn.LeakyReLU(0.2),
        mnn.Conv2d(8, 3, 3, **padded), mnn.Tanh(),
    )  # fmt: skip
    check_aligned(pairs, pairs.compare(reference, lambda: candidate, pairs.images()))


@pytest.mark.parametrize("sides", ["float32 and float16", "float16 and float16", "float16 and float32"])
@pytest.mark.parametrize("name", ["convolutions", "deep attention", "embedding and lstm", "sixteen layers"])
def test_half_precision_on_either_side_raises_no_alarm(pairs: Any, name: str, sides: str) -> None:
    import mindspore

    reference, port, inputs = ARCHITECTURES[name](pairs, 0)
    candidate = port()
    name_map = pairs.make_alike(reference, candidate, inputs)
    kinds = sides.split(" and ")
    if kinds[0] == "float16":
        reference = reference.half()
        pairs.transfer(copy.deepcopy(reference).float(), candidate, name_map)
    if kinds[1] == "float16":
        for parameter in candidate.get_parameters():
            parameter.set_dtype(mindspore.float16)
    result = compare_forward(reference, candidate, inputs=inputs, name_map=name_map, power=False)
    check_aligned(pairs, result, WELL_WITHIN_IN_HALF)
    assert {layer.reference_dtype for layer in result.layers} == {kinds[0]}
    assert {layer.candidate_dtype for layer in result.layers} == {kinds[1]}
    assert not result.findings


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_model_against_itself_in_another_precision_raises_no_alarm(pairs: Any, dtype: str) -> None:
    """MindSpore has no bfloat16 kernels on the CPU, so both sides are torch."""
    import torch

    reference = pairs.TorchEncoder(32, 4, 4)
    pairs.randomize(reference, 0)
    candidate = copy.deepcopy(reference).to(getattr(torch, dtype))
    result = compare_forward(reference, candidate, inputs=pairs.tokens(batch=4, length=16))
    check_aligned(pairs, result, WELL_WITHIN_IN_HALF)


def test_a_half_precision_port_with_a_defect_is_still_found(pairs: Any) -> None:
    import mindspore

    reference, inputs = pairs.TorchEncoder(), pairs.tokens(batch=4, length=16)
    name_map = pairs.make_alike(reference, pairs.PortEncoder(), inputs)
    candidate = pairs.PortEncoder(defect="heads")
    pairs.transfer(reference, candidate, name_map)
    for parameter in candidate.get_parameters():
        parameter.set_dtype(mindspore.float16)
    result = compare_forward(reference, candidate, inputs=inputs, name_map=name_map)
    assert pairs.first(result).reference == "layers.1.out"


def test_a_port_without_a_map_is_matched_by_the_order_of_its_run(pairs: Any) -> None:
    reference, candidate, inputs = pairs.TorchConvNet(), pairs.PortConvNet(), pairs.images()
    pairs.make_alike(reference, candidate, inputs)
    result = compare_forward(reference, candidate, inputs=inputs)
    check_aligned(pairs, result)
    assert not result.findings
    assert result.verdict.coverage.unmatched_candidate == 0


def test_modules_that_end_at_other_places_raise_no_alarm(pairs: Any) -> None:
    """torch's blocks hold conv, norm and activation; the port's hold conv and norm, and its parent activates."""
    import mindspore
    from mindspore import nn as mnn
    from torch import nn

    class Step(mnn.Cell):
        def __init__(self, wide: int, narrow: int) -> None:
            super().__init__()
            self.conv = mnn.Conv2d(wide, narrow, 1, has_bias=False)
            self.norm = mnn.BatchNorm2d(narrow)

        def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
            return self.norm(self.conv(x))

    class Port(mnn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Step(3, 8), Step(8, 4)

        def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
            return mindspore.ops.relu(self.two(mindspore.ops.relu(self.one(x))))

    def step(wide: int, narrow: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(wide, narrow, 1, bias=False), nn.BatchNorm2d(narrow), nn.ReLU())

    result = pairs.compare(nn.Sequential(step(3, 8), step(8, 4)), Port, pairs.images())
    check_aligned(pairs, result)
    outcomes = {layer.reference: layer.outcome for layer in result.layers}
    assert outcomes["0"] == outcomes["1"] == "not comparable"


def test_owners_of_one_parameter_that_hold_other_modules_are_not_one_layer(pairs: Any) -> None:
    """One model keeps its position embedding beside the words, the other one in the module around all layers."""
    import mindspore
    import torch
    from mindspore import nn as mnn
    from torch import nn

    class Embeddings(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Linear(8, 16)
            self.places = nn.Parameter(torch.randn(5, 16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.words(x) + self.places

    class Stack(mnn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.places = mindspore.Parameter(mindspore.ops.zeros((5, 16)), name="places")
            self.inner = mnn.SequentialCell(mnn.Dense(16, 16), mnn.LayerNorm((16,), epsilon=1e-5))

        def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
            return self.inner(x + self.places)

    reference = nn.Sequential(Embeddings(), nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16)))
    candidate = mnn.SequentialCell(mnn.Dense(8, 16), Stack())
    result = pairs.compare(reference, lambda: candidate, pairs.vectors(8, batch=5))
    check_aligned(pairs, result)
    assert ("0", "1") not in {(layer.reference, layer.candidate) for layer in result.layers}
    assert "0" in {one.module for one in result.unpaired}
