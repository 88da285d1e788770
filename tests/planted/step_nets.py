"""Four small pairs that are trained on digits: an MLP with BatchNorm, a ResNet, a Transformer encoder, an LSTM.

A fifth one, of one layer, is for what no layer has a part in: losses, optimizers, loops.

`digits.npz` are the first 512 images, 8 x 8, of E. Alpaydin and C. Kaynak's Optical Recognition of Handwritten Digits
(UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, CC BY 4.0).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import align

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.training.step_result import StepComparison

NETS = ("mlp", "resnet", "encoder", "lstm")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")


def batch(samples: int = 16, start: int = 0) -> dict[str, Any]:
    """Images in 0..1 and their digits."""
    with np.load(Path(__file__).with_name("digits.npz")) as digits:
        images = digits["images"][start : start + samples].astype(np.float32) / 16
        return {"x": images, "label": digits["labels"][start : start + samples].astype(np.int64)}


@cache
def _torch_nets() -> dict[str, Any]:  # noqa: C901 - five classes, of two methods each
    import torch
    from torch import nn

    def same(_: Any, value: Any) -> Any:
        return value

    class Mlp(nn.Module):
        def __init__(self, between: Any = same) -> None:
            super().__init__()
            self.between = between
            self.fc1, self.norm, self.act = nn.Linear(64, 24), nn.BatchNorm1d(24), nn.ReLU()
            self.fc2, self.drop, self.head = nn.Linear(24, 16), nn.Dropout(0.2), nn.Linear(16, 10)

        def forward(self, x: Any) -> Any:
            hidden = self.act(self.norm(self.fc1(x.reshape(-1, 64))))
            return self.head(self.drop(self.between(self, torch.tanh(self.fc2(hidden)))))

    class Block(nn.Module):
        def __init__(self, inner: int, outer: int, stride: int, between: Any = same) -> None:
            super().__init__()
            self.between = between
            self.conv1, self.norm1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer)
            self.conv2, self.norm2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
            self.relu = nn.ReLU(inplace=True)
            self.skip = nn.Conv2d(inner, outer, 1, stride) if stride > 1 else nn.Identity()

        def forward(self, x: Any) -> Any:
            out = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
            return self.relu(out + self.between(self, self.skip(x)))

    class ResNet(nn.Module):
        def __init__(self, between: Any = same) -> None:
            super().__init__()
            self.stem, self.pool = nn.Conv2d(1, 8, 3, 1, 1), nn.MaxPool2d(2)
            self.block1, self.block2, self.head = Block(8, 8, 1), Block(8, 16, 2, between), nn.Linear(16, 10)

        def forward(self, x: Any) -> Any:
            x = self.pool(torch.relu(self.stem(x.reshape(-1, 1, 8, 8))))
            return self.head(self.block2(self.block1(x)).mean((2, 3)))

    class Encoder(nn.Module):
        def __init__(self, between: Any = same) -> None:
            super().__init__()
            self.between = between
            self.embed, self.norm, self.head = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 10)
            self.place = nn.Parameter(torch.randn(8, 16) * 0.02)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

        def forward(self, x: Any) -> Any:
            hidden = self.layer(self.embed(x.reshape(-1, 8, 8)) + self.place)
            return self.head(self.between(self, self.norm(hidden)).mean(1))

    class Lstm(nn.Module):
        def __init__(self, between: Any = same) -> None:
            super().__init__()
            self.between = between
            self.lstm, self.head = nn.LSTM(8, 12, batch_first=True), nn.Linear(12, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.between(self, self.lstm(x.reshape(-1, 8, 8))[0])[:, -1])

    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            return self.head(x.reshape(-1, 64))

    return {"mlp": Mlp, "resnet": ResNet, "encoder": Encoder, "lstm": Lstm, "one": One}


@cache
def _mindspore_nets() -> dict[str, Any]:  # noqa: C901 - five classes, of two methods each
    import mindspore
    from mindspore import nn, ops

    def conv(inner: int, outer: int, size: int, stride: int, padding: int, *, bias: bool) -> Any:
        return nn.Conv2d(inner, outer, size, stride, pad_mode="pad", padding=padding, has_bias=bias)

    def same(_: Any, value: Any) -> Any:
        return value

    class Mlp(nn.Cell):
        def __init__(self, between: Any = same) -> None:
            super().__init__()
            self.fc1, self.norm, self.act = nn.Dense(64, 24), nn.BatchNorm1d(24), nn.ReLU()
            self.fc2, self.drop, self.head = nn.Dense(24, 16), nn.Dropout(p=0.2), nn.Dense(16, 10)
            self.between = between

        def construct(self, x: Any) -> Any:
            hidden = self.act(self.norm(self.fc1(x.reshape(-1, 64))))
            return self.head(self.drop(self.between(self, ops.tanh(self.fc2(hidden)))))

    class Block(nn.Cell):
        def __init__(self, inner: int, outer: int, stride: int, between: Any = same) -> None:
            super().__init__()
            self.conv1, self.norm1 = conv(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer)
            self.conv2, self.norm2 = conv(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
            self.relu, self.between = nn.ReLU(), between
            self.skip = conv(inner, outer, 1, stride, 0, bias=True) if stride > 1 else None

        def construct(self, x: Any) -> Any:
            out = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
            return self.relu(out + self.between(self, x if self.skip is None else self.skip(x)))

    class ResNet(nn.Cell):
        def __init__(self, between: Any = same) -> None:
            super().__init__()
            self.stem, self.pool = conv(1, 8, 3, 1, 1, bias=True), nn.MaxPool2d(2, 2)
            self.block1, self.block2, self.head = Block(8, 8, 1), Block(8, 16, 2, between), nn.Dense(16, 10)

        def construct(self, x: Any) -> Any:
            x = self.pool(ops.relu(self.stem(x.reshape(-1, 1, 8, 8))))
            return self.head(self.block2(self.block1(x)).mean((2, 3)))

    class Encoder(nn.Cell):
        def __init__(self, between: Any = same) -> None:
            super().__init__()
            self.embed, self.norm, self.head = nn.Dense(8, 16), nn.LayerNorm((16,), epsilon=1e-5), nn.Dense(16, 10)
            self.place, self.between = mindspore.Parameter(ops.zeros((8, 16)), name="place"), between
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

        def construct(self, x: Any) -> Any:
            hidden = self.layer(self.embed(x.reshape(-1, 8, 8)) + self.place)
            return self.head(self.between(self, self.norm(hidden)).mean(1))

    class Lstm(nn.Cell):
        def __init__(self, between: Any = same) -> None:
            super().__init__()
            self.lstm, self.head, self.between = nn.LSTM(8, 12, batch_first=True), nn.Dense(12, 10), between

        def construct(self, x: Any) -> Any:
            return self.head(self.between(self, self.lstm(x.reshape(-1, 8, 8))[0])[:, -1])

    class One(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Dense(64, 10)

        def construct(self, x: Any) -> Any:
            return self.head(x.reshape(-1, 64))

    return {"mlp": Mlp, "resnet": ResNet, "encoder": Encoder, "lstm": Lstm, "one": One}


def torch_side(
    net: str = "mlp", optimizer: str = "sgd", seed: int = 0, *, between: Callable[[Any, Any], Any] | None = None
) -> align.Training:
    """The reference; `between` is what its code does to one tensor on the way."""
    import torch

    torch.manual_seed(seed)
    model = _torch_nets()[net](*(() if between is None else (between,)))
    made = {
        "sgd": lambda: torch.optim.SGD(model.parameters(), 0.1),
        "momentum": lambda: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
        "adam": lambda: torch.optim.Adam(model.parameters(), 1e-3),
        "adamw": lambda: torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01),
    }
    return align.Training(model, torch.nn.CrossEntropyLoss(), made[optimizer]())


def mindspore_side(
    net: str = "mlp",
    optimizer: str = "sgd",
    *,
    between: Callable[[Any, Any], Any] | None = None,
    change: Callable[[Any], object] | None = None,
    loss: Any = None,
) -> align.Training:
    """The port; `between` is what its code does to one tensor on the way, `change` is done to the network."""
    from mindspore import nn

    model = _mindspore_nets()[net](*(() if between is None else (between,)))
    if change is not None:
        change(model)
    weights = model.trainable_params()
    made = {
        "sgd": lambda: nn.SGD(weights, 0.1),
        "momentum": lambda: nn.Momentum(weights, 0.1, 0.9),
        "adam": lambda: nn.Adam(weights, 1e-3),
        "adamw": lambda: nn.AdamWeightDecay(weights, 1e-3, eps=1e-8, weight_decay=0.01),
    }
    return align.Training(model, loss or nn.CrossEntropyLoss(), made[optimizer]())


@cache
def clean_steps(net: str, optimizer: str) -> StepComparison:
    """Three steps of a clean pair, compared once for all tests that look at them, which stand in one file."""
    return align.compare_training_step(torch_side(net, optimizer), mindspore_side(net, optimizer), batch=batch())
