"""Layers of both frameworks that users wrote, and that pad by functions: right ports and wrong ones."""

from __future__ import annotations

from typing import Any

import mindspore
from mindspore import nn as mnn
from mindspore import ops
from torch import nn
from torch.nn import functional as F


class Around(nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x)


class PadsOutside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, stride=2), nn.Conv2d(4, 5, 3, stride=2)
        self.tail = nn.Sequential(nn.Conv2d(5, 6, 3, stride=2), nn.ReLU())
        self.second = Around(self.second)

    def forward(self, x: Any) -> Any:
        x = F.pad(x, (1, 1, 1, 1))
        x = self.first(x)
        x = self.second(F.pad(x, (1, 1, 1, 1)))
        padded = F.pad(x, (1, 1, 1, 1))
        return self.tail(padded)


class PadsInside(mnn.Cell):
    def __init__(self) -> None:
        super().__init__()
        own = {"stride": 2, "pad_mode": "pad", "padding": 1, "has_bias": True}
        self.first, self.second = mnn.Conv2d(3, 4, 3, **own), mnn.Conv2d(4, 5, 3, **own)
        self.tail = mnn.SequentialCell(mnn.Conv2d(5, 6, 3, **own), mnn.ReLU())

    def construct(self, x: Any) -> Any:
        return self.tail(self.second(self.first(x)))


class PadsOne(nn.Module):
    """The second layer gets nothing that was padded."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, stride=2), nn.Conv2d(4, 5, 3, stride=2)
        self.tail = nn.Sequential(nn.Conv2d(5, 6, 3, stride=2, padding=1), nn.ReLU())

    def forward(self, x: Any) -> Any:
        x = self.first(F.pad(x, (1, 1, 1, 1)))
        return self.tail(self.second(x))


class Reflects(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")

    def forward(self, x: Any) -> Any:
        return self.conv(x)


class ReflectsOutside(mnn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv = mnn.Conv2d(3, 4, 3, pad_mode="valid", has_bias=True)

    def construct(self, x: Any) -> Any:
        return self.conv(ops.pad(x, (1, 1, 1, 1), mode="reflect"))


class RootNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(mindspore_free_ones(size)), eps

    def forward(self, x: Any) -> Any:
        return x * (x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon).rsqrt() * self.weight


def mindspore_free_ones(size: int) -> Any:
    import torch

    return torch.ones(size)


class RootNormCell(mnn.Cell):
    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = mindspore.Parameter(ops.ones(size, mindspore.float32), name="weight")
        self.epsilon = epsilon

    def construct(self, x: Any) -> Any:
        return x * ops.rsqrt(x.pow(2).mean(-1, keep_dims=True) + self.epsilon) * self.weight


class Smooth(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: Any) -> Any:
        return x * x / (x.abs() + self.eps)


class SmoothCell(mnn.Cell):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def construct(self, x: Any) -> Any:
        return x * x / (x.abs() + self.eps)


def written(eps: float, other: float) -> Any:
    return nn.Sequential(nn.Linear(3, 4), RootNorm(4, eps), Smooth(other), nn.Linear(4, 5), RootNorm(5, eps))


def written_port(eps: float, other: float) -> Any:
    return mnn.SequentialCell(
        mnn.Dense(3, 4), RootNormCell(4, eps), SmoothCell(other), mnn.Dense(4, 5), RootNormCell(5, eps)
    )


class TwoPadded(nn.Module):
    """Two layers that pad by themselves, with an activation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(n, n + 1, 3, stride=2, padding=1) for n in (3, 4))

    def forward(self, x: Any) -> Any:
        return self.second(F.relu(self.first(x)))


class TwoBare(mnn.Cell):
    """The same layers, that pad nothing: what is below hands them more or less of what is padded."""

    def __init__(self) -> None:
        super().__init__()
        own = {"stride": 2, "pad_mode": "valid", "has_bias": True}
        self.first, self.second = mnn.Conv2d(3, 4, 3, **own), mnn.Conv2d(4, 5, 3, **own)
        self.act, self.border = mnn.ReLU(), mnn.ZeroPad2d(1)

    def edge(self, x: Any) -> Any:
        return ops.pad(x, (1, 1, 1, 1))

    def last(self, x: Any) -> Any:
        return self.second(x)


def frame(x: Any) -> Any:
    return ops.pad(x, (1, 1, 1, 1))


class ThenActivates(TwoBare):
    def construct(self, x: Any) -> Any:
        x = self.first(ops.pad(x, (1, 1, 1, 1)))
        x = ops.pad(x, (1, 1, 1, 1))
        x = ops.relu(x)
        return self.second(x)


class InOneExpression(TwoBare):
    def construct(self, x: Any) -> Any:
        y = self.first(ops.cast(ops.pad(x, (1, 1, 1, 1)), mindspore.float32))
        return self.second(self.act(ops.pad(y, (1, 1, 1, 1))))


class ByOwnMethod(TwoBare):
    def construct(self, x: Any) -> Any:
        x = self.first(self.edge(x))
        return self.second(self.edge(ops.relu(x)))


class ByFunction(TwoBare):
    def construct(self, x: Any) -> Any:
        x = self.first(frame(x))
        x = frame(ops.relu(x))
        return self.last(x)


class Annotated(TwoBare):
    def construct(self, x: Any) -> Any:
        padded: Any = ops.pad(x, (1, 1, 1, 1))
        x = ops.relu(self.first(padded))
        if (y := ops.pad(x, (1, 1, 1, 1))) is not None:
            y += 0.0
        return self.second(y)


class BySharedLayer(TwoBare):
    def construct(self, x: Any) -> Any:
        x = self.first(self.border(x)); x = ops.relu(x); x = self.border(x); return self.second(x)  # noqa: E702 # fmt: skip


class OnlyTheFirst(TwoBare):
    def construct(self, x: Any) -> Any:
        x = self.first(ops.pad(x, (1, 1, 1, 1)))
        x = ops.relu(x)
        return self.second(x)


class OnlyTheFirstByMethod(TwoBare):
    def construct(self, x: Any) -> Any:
        return self.last(ops.relu(self.first(self.edge(x))))


class PadsTooLate(TwoBare):
    def construct(self, x: Any) -> Any:
        x = self.first(ops.pad(x, (1, 1, 1, 1)))
        y = self.second(ops.relu(x))
        x = ops.pad(x, (1, 1, 1, 1))
        return ops.pad(y, (1, 1, 1, 1)), x


class Overridden(ThenActivates):
    """What the base pads is not run."""

    def construct(self, x: Any) -> Any:
        return self.second(ops.relu(self.first(ops.pad(x, (1, 1, 1, 1)))))
