"""A small net with what exporters change, as a torch model, as a MindSpore port and as ONNX files of both exporters."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

SEED = 3


def torch_net(seed: int = SEED) -> Any:
    """Convolutions with norms, one of them in a Sequential, a layer norm and two linear layers; no value is usual."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(8)
            self.relu = nn.ReLU()
            self.layer = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
            self.norm = nn.LayerNorm(8)
            self.fc1 = nn.Linear(8, 16)
            self.act = nn.GELU()
            self.fc2 = nn.Linear(16, 5)

        def forward(self, x: Any) -> Any:
            x = self.relu(self.bn1(self.conv1(x)))
            x = self.relu(self.layer(x) + x)
            x = self.norm(x.flatten(2).transpose(1, 2))
            return self.fc2(self.act(self.fc1(x))).mean(1)

    net = Net().eval()
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in net.state_dict().items():
        if "running_var" in name:
            tensor.uniform_(0.5, 2.0, generator=generator)
        elif tensor.is_floating_point():
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.4 + (1.0 if tensor.ndim == 1 else 0.0))
    return net


def mindspore_net() -> Any:
    """The port of the net, with fresh weights."""
    from mindspore import nn, ops

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1, has_bias=False)
            self.bn1 = nn.BatchNorm2d(8)
            self.relu = nn.ReLU()
            self.layer = nn.SequentialCell(
                nn.Conv2d(8, 8, 3, pad_mode="pad", padding=1, has_bias=True), nn.BatchNorm2d(8)
            )
            self.norm = nn.LayerNorm((8,), epsilon=1e-5)
            self.fc1 = nn.Dense(8, 16)
            self.act = nn.GELU(approximate=False)
            self.fc2 = nn.Dense(16, 5)

        def construct(self, x: Any) -> Any:
            x = self.relu(self.bn1(self.conv1(x)))
            x = self.relu(self.layer(x) + x)
            x = self.norm(ops.swapaxes(x.reshape(x.shape[0], x.shape[1], -1), 1, 2))
            return self.fc2(self.act(self.fc1(x))).mean(1)

    return Net().set_train(False)


def pixels(seed: int = 0) -> dict[str, Any]:
    """What the net is given."""
    return {"x": np.random.default_rng(seed).standard_normal((2, 3, 6, 6)).astype(np.float32)}


def exported(path: Path, net: Any, *, dynamo: bool = False, **options: Any) -> Path:
    """The net as an ONNX file, by one of torch's exporters."""
    import torch

    more = {"external_data": False, "verbose": False} if dynamo else {"opset_version": 17}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, (torch.from_numpy(pixels()["x"]),), str(path), dynamo=dynamo, input_names=["x"], **more, **options
        )
    return path
