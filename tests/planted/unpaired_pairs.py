"""Pairs whose ports have layers that the reference has not: it calls functions, fuses, convolves where they multiply.

A port takes its defect as a keyword, and is the clean twin without one.
"""

from __future__ import annotations

import mindspore
import torch
from mindspore import nn as mnn
from mindspore import ops
from torch import nn

WIDTH = 8


class TorchUnit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)))


class TorchJoin(nn.Module):
    """Two units, their input added, and a pooled branch beside, all without a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.one = TorchUnit()
        self.two = TorchUnit()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.two(self.one(x)) + x)
        return torch.cat([y, nn.functional.max_pool2d(x, 3, 1, 1)], 1)


class TorchFunctions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.join = TorchJoin()
        self.head = nn.Linear(2 * WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.join(self.stem(x)).mean((2, 3)))


class PortUnit(mnn.Cell):
    def __init__(self, defect: str = "") -> None:
        super().__init__()
        self.conv = mnn.Conv2d(WIDTH, WIDTH, 3, pad_mode="pad", padding=1)
        self.norm = mnn.BatchNorm2d(WIDTH)
        self.act = mnn.LeakyReLU(0.2) if defect == "activation" else mnn.ReLU()

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        return self.act(self.norm(self.conv(x)))


class PortJoin(mnn.Cell):
    def __init__(self, defect: str) -> None:
        super().__init__()
        self.one = PortUnit()
        self.two = PortUnit(defect)
        self.act = mnn.ReLU()
        pool = mnn.AvgPool2d if defect == "pooling" else mnn.MaxPool2d
        self.pool = pool(3, 1, pad_mode="pad", padding=1)
        self.drops = defect == "residual dropped"

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        y = self.two(self.one(x))
        return ops.cat((self.act(y if self.drops else y + x), self.pool(x)), 1)


class PortFunctions(mnn.Cell):
    def __init__(self, defect: str = "") -> None:
        super().__init__()
        self.start = mnn.Conv2d(3, WIDTH, 3, pad_mode="pad", padding=1, has_bias=True)
        self.both = PortJoin(defect)
        self.out = mnn.Dense(2 * WIDTH, 4)

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        return self.out(self.both(self.start(x)).mean((2, 3)))


class TorchGated(nn.Module):
    """Squeeze and excitation by 1x1 convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.down = nn.Conv2d(WIDTH, 4, 1)
        self.act = nn.ReLU()
        self.up = nn.Conv2d(4, WIDTH, 1)
        self.gate = nn.Sigmoid()
        self.last = nn.Conv2d(WIDTH, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.last(x * self.gate(self.up(self.act(self.down(x.mean((2, 3), keepdim=True))))))


class PortGated(mnn.Cell):
    def __init__(self, defect: str = "") -> None:
        super().__init__()
        self.start = mnn.Conv2d(3, WIDTH, 3, pad_mode="pad", padding=1, has_bias=True)
        self.reduce = mnn.Dense(WIDTH, 4)
        self.act = mnn.ReLU()
        self.expand = mnn.Dense(4, WIDTH, has_bias=defect != "no bias")
        if defect == "unused bias":
            self.expand.has_bias = False
        self.gate = mnn.Sigmoid()
        self.end = mnn.Conv2d(WIDTH, 4, 3, pad_mode="valid", has_bias=True)

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        x = self.start(x)
        scale = self.gate(self.expand(self.act(self.reduce(x.mean((2, 3))))))
        return self.end(x * scale.expand_dims(-1).expand_dims(-1))


class TorchFusedHeads(nn.Module):
    """Attention of one head on a projection to all three."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.shares = nn.Softmax(-1)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.stem(x)).chunk(3, -1)
        return self.proj(self.shares(q @ k.transpose(1, 2) / WIDTH**0.5) @ v)


class PortFusedHeads(mnn.Cell):
    def __init__(self, defect: str = "") -> None:
        super().__init__()
        self.start = mnn.Dense(WIDTH, WIDTH)
        self.q = mnn.Dense(WIDTH, WIDTH, has_bias=defect != "no bias")
        if defect == "unused bias":
            self.q.has_bias = False
        self.k = mnn.Dense(WIDTH, WIDTH)
        self.v = mnn.Dense(WIDTH, WIDTH)
        self.shares = mnn.Softmax(-1)
        self.out = mnn.Dense(WIDTH, WIDTH)

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        x = self.start(x)
        q, k, v = self.q(x), self.k(x), self.v(x)
        return self.out(ops.matmul(self.shares(ops.matmul(q, k.swapaxes(1, 2)) / WIDTH**0.5), v))
