"""Equal names prove little: torch's values, moved by the rules, must give torch's outputs (gate order, axes)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from align.core.load_code import model_readers
from align.rules.layer_rules import rule_for

pytestmark = pytest.mark.frameworks

CASES = [
    ("nn.Linear(3, 4)", "nn.Dense(3, 4)", [(2, 3)]),
    ("nn.Bilinear(3, 4, 5)", "nn.BiDense(3, 4, 5)", [(2, 3), (2, 4)]),
    ("nn.Conv1d(3, 4, 5)", "nn.Conv1d(3, 4, 5, has_bias=True, pad_mode='valid')", [(2, 3, 9)]),
    ("nn.Conv2d(4, 8, 3, groups=2)", "nn.Conv2d(4, 8, 3, group=2, has_bias=True, pad_mode='valid')", [(2, 4, 6, 7)]),
    ("nn.Conv3d(3, 4, 2)", "nn.Conv3d(3, 4, 2, has_bias=True, pad_mode='valid')", [(1, 3, 4, 5, 6)]),
    ("nn.ConvTranspose1d(3, 4, 5)", "nn.Conv1dTranspose(3, 4, 5, has_bias=True, pad_mode='valid')", [(2, 3, 9)]),
    ("nn.ConvTranspose2d(3, 4, 5)", "nn.Conv2dTranspose(3, 4, 5, has_bias=True, pad_mode='valid')", [(2, 3, 6, 7)]),
    ("nn.ConvTranspose3d(3, 4, 2)", "nn.Conv3dTranspose(3, 4, 2, has_bias=True, pad_mode='valid')", [(1, 3, 4, 5, 6)]),
    ("nn.BatchNorm2d(4)", "nn.BatchNorm2d(4)", [(2, 4, 3, 3)]),
    ("nn.BatchNorm3d(4)", "nn.BatchNorm3d(4)", [(2, 4, 3, 3, 3)]),
    ("nn.LayerNorm(4)", "nn.LayerNorm((4,), epsilon=1e-5)", [(2, 4)]),
    ("nn.GroupNorm(2, 4)", "nn.GroupNorm(2, 4)", [(2, 4, 3, 3)]),
    ("nn.PReLU(4)", "nn.PReLU(4)", [(2, 4, 3, 3)]),
    ("nn.LSTM(3, 4, num_layers=2, bidirectional=True)", "nn.LSTM(3, 4, num_layers=2, bidirectional=True)", [(5, 2, 3)]),
    ("nn.GRU(3, 4, num_layers=2, bidirectional=True)", "nn.GRU(3, 4, num_layers=2, bidirectional=True)", [(5, 2, 3)]),
    ("nn.RNN(3, 4, num_layers=2, bidirectional=True)", "nn.RNN(3, 4, num_layers=2, bidirectional=True)", [(5, 2, 3)]),
    ("nn.GRUCell(3, 4)", "nn.GRUCell(3, 4)", [(2, 3), (2, 4)]),
    ("nn.RNNCell(3, 4)", "nn.RNNCell(3, 4)", [(2, 3), (2, 4)]),
    ("nn.MultiheadAttention(4, 2)", "nn.MultiheadAttention(4, 2)", [(5, 2, 4), (6, 2, 4), (6, 2, 4)]),
    ("nn.TransformerEncoderLayer(4, 2, 8)", "nn.TransformerEncoderLayer(4, 2, 8)", [(5, 2, 4)]),
    ("nn.TransformerDecoderLayer(4, 2, 8)", "nn.TransformerDecoderLayer(4, 2, 8)", [(5, 2, 4), (6, 2, 4)]),
]  # fmt: skip


@pytest.mark.parametrize(("reference", "candidate", "shapes"), CASES, ids=[case[0] for case in CASES])
def test_moved_values_compute_the_same(reference: str, candidate: str, shapes: list[tuple[int, ...]]) -> None:
    import mindspore
    import torch

    torch_layer = eval(reference, {"nn": torch.nn}).eval()
    port = eval(candidate, {"nn": mindspore.nn}).set_train(False)
    randomize(torch_layer)
    fill(port, moved_values(torch_layer))
    inputs = [np.random.default_rng(n).standard_normal(shape).astype(np.float32) for n, shape in enumerate(shapes)]
    with torch.no_grad():
        expected = first(torch_layer(*map(torch.from_numpy, inputs))).numpy()
    actual = first(port(*map(mindspore.Tensor, inputs))).asnumpy()
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-5)
    assert np.ptp(expected) > 1e-3


def randomize(layer: Any) -> None:
    import torch

    generator = torch.Generator().manual_seed(5)
    for name, value in layer.state_dict().items():
        if value.is_floating_point():
            noise = torch.rand(value.shape, generator=generator) - 0.5
            value.copy_(noise + 1.0 if name.endswith("running_var") else noise)


def moved_values(layer: Any, prefix: str = "") -> dict[str, np.ndarray]:
    reader = model_readers()["torch"]
    claim = rule_for(reader.read_parameters(layer, "layer").modules[0].classes)
    target = claim[0].families["nn"] if claim else None
    values: dict[str, np.ndarray] = {}
    if claim and target:
        roles = {attribute: role for role, attribute in claim[0].families["torch"].parameters.items()}
        for attribute, value in [(n, v) for n, v in layer.state_dict().items() if "." not in n]:
            role = roles[attribute]
            if role not in target.dropped:
                axis = target.insert_axis.get(role)
                array = value.numpy()
                values[prefix + target.parameters[role]] = array if axis is None else np.expand_dims(array, axis)
    for name, child in layer.named_children():
        renamed = target.children.get(name, name) if target else name
        if child.state_dict():
            values |= moved_values(child, f"{prefix}{renamed}.")
    return values


def fill(port: Any, values: dict[str, np.ndarray]) -> None:
    import mindspore

    class Net(mindspore.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.layer = port

    net = Net()
    model_readers()["mindspore"].load_values(net, {f"layer.{name}": value for name, value in values.items()})


def first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output
