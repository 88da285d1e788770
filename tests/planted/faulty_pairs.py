"""More small real pairs, in forms that models really have: states, keywords, tuples, other layouts, cancelled errors.

As in pairs.py, a port takes its defect as a keyword, and is the clean twin without one.
"""

from __future__ import annotations

import mindspore
import torch
from mindspore import mint, ops
from mindspore import nn as mnn
from torch import nn

import align

WIDTH = 16
UNROLLED = 3  # calls of the layer that is called again and again


class TorchStates(nn.Module):
    """An LSTM that goes on with the state that it returned, and a layer called in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.again = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, state = self.lstm(x[:, :4])
        y, _ = self.lstm(x[:, 4:], state)
        for _ in range(UNROLLED):
            y = torch.tanh(self.again(self.norm(y)))
        return self.head(y)


class PortStates(mnn.Cell):
    def __init__(self, defect: str = "") -> None:
        super().__init__()
        self.recurrent = mnn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.scale = mnn.LayerNorm((WIDTH,), epsilon=1e-3 if defect == "repeated norm" else 1e-5)
        self.repeated = mnn.Dense(WIDTH, WIDTH)
        self.out = mnn.Dense(WIDTH, 4)
        self.defect = defect

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        _, (h, c) = self.recurrent(x[:, :4])
        y, _ = self.recurrent(x[:, 4:], (ops.zeros_like(h) if self.defect == "state lost" else h, c))
        for _ in range(UNROLLED):
            y = ops.tanh(self.repeated(self.scale(y)))
        return self.out(y)


class TorchScores(nn.Module):
    """Two heads on one base: with a keyword, a tuple of two and a mapping as outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        x = x * self.scale
        first = self.first(x).masked_fill(mask[..., None], -1.0)
        return first, {"second": torch.sigmoid(self.second(x))}


class TorchHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH)
        self.scores = TorchScores()
        self.join = nn.Linear(2 * WIDTH, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.base(x)
        first, others = self.scores(y, mask=x[..., 0] > 0)
        return {"logits": self.join(torch.cat([first, others["second"]], -1)), "first": first}


class PortScores(mnn.Cell):
    def __init__(self, defect: str) -> None:
        super().__init__()
        self.factor = mindspore.Parameter(ops.ones(WIDTH))
        self.one = mnn.Dense(WIDTH, WIDTH)
        self.other = mnn.Dense(WIDTH, WIDTH)
        self.inverted = defect == "mask inverted"

    def construct(
        self, x: mindspore.Tensor, *, keep: mindspore.Tensor
    ) -> tuple[mindspore.Tensor, dict[str, mindspore.Tensor]]:
        x = x * self.factor
        gone = keep > 0 if self.inverted else keep <= 0  # handed in another form: what stays, as numbers
        return ops.masked_fill(self.one(x), gone.expand_dims(-1), -1.0), {"second": ops.sigmoid(self.other(x))}


class PortHeads(mnn.Cell):
    def __init__(self, defect: str = "") -> None:
        super().__init__()
        self.start = mnn.Dense(WIDTH, WIDTH)
        self.both = PortScores(defect)
        self.union = mnn.Dense(2 * WIDTH, 4)
        self.crossed = defect == "outputs crossed"

    def construct(self, x: mindspore.Tensor) -> dict[str, mindspore.Tensor]:
        y = self.start(x)
        one, others = self.both(y, keep=(x[..., 0] <= 0).astype(mindspore.float32))
        two = others["second"]
        return {"logits": self.union(ops.cat((two, one) if self.crossed else (one, two), -1)), "first": one}


class TorchImages(nn.Module):
    """Channels first; its port computes channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.act = nn.GELU()
        self.mix = nn.Conv2d(WIDTH, WIDTH, 1)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.stem(x))
        x = self.norm1(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = x + self.mix(x)
        return self.head(x.mean((2, 3)))


class LastConv(mnn.Conv2d):
    """A convolution of images whose channels are last."""

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        return super().construct(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class PortImages(mnn.Cell):
    def __init__(self, defect: str = "") -> None:
        super().__init__()
        self.first = LastConv(3, WIDTH, 3, pad_mode="pad", padding=1, has_bias=True)
        self.act = mnn.GELU(approximate=defect == "gelu")
        self.scale = mnn.LayerNorm((WIDTH,), epsilon=1e-5)
        self.mixed = LastConv(WIDTH, WIDTH, 1, pad_mode="valid", has_bias=True)
        self.out = mnn.Dense(WIDTH, 4)
        self.residual = defect != "residual dropped"

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        x = self.scale(self.act(self.first(x.permute(0, 2, 3, 1))))
        y = self.mixed(x)
        return self.out((x + y if self.residual else y).mean((1, 2)))


class TorchRows(nn.Module):
    """(batch, length, features); its port works on rows, (batch * length, features)."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.act = nn.GELU()
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.down(self.act(self.up(x))) + x)


class PortRows(mnn.Cell):
    def __init__(self, defect: str = "") -> None:
        super().__init__()
        self.wide = mnn.Dense(WIDTH, 2 * WIDTH)
        self.act = mnn.GELU(approximate=defect == "gelu")
        self.narrow = mnn.Dense(2 * WIDTH, WIDTH)
        self.last = mnn.LayerNorm((WIDTH,), epsilon=1e-3 if defect == "layer norm eps" else 1e-5)

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        rows = x.reshape(-1, WIDTH)
        return self.last(self.narrow(self.act(self.wide(rows))) + rows).reshape(x.shape)


class TorchFused(nn.Module):
    """Its port has the activations inside the dense layers, and with a defect a layer more."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(WIDTH, WIDTH)
        self.act = nn.ReLU()
        self.two = nn.Linear(WIDTH, WIDTH)
        self.tanh = nn.Tanh()
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.tanh(self.two(self.act(self.one(x)))))


class PortFused(mnn.Cell):
    def __init__(self, defect: str = "") -> None:
        super().__init__()
        self.a = mnn.Dense(WIDTH, WIDTH, activation="relu")
        self.extra = mnn.Sigmoid() if defect == "extra layer" else None
        self.b = mnn.Dense(WIDTH, WIDTH, activation="sigmoid" if defect == "activation" else "tanh")
        self.c = mnn.Dense(WIDTH, 4)

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        x = self.a(x)
        return self.c(self.b(x if self.extra is None else self.extra(x)))


class TorchPooled(nn.Module):
    """Pools by a function, where the port has a cell."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, WIDTH, 3)
        self.mix = nn.Conv2d(WIDTH, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(nn.functional.avg_pool2d(self.conv(x), 3, 2, 1, count_include_pad=False))


class PortPooled(mnn.Cell):
    def __init__(self, defect: str = "") -> None:
        super().__init__()
        self.first = mnn.Conv2d(3, WIDTH, 3, pad_mode="valid", has_bias=True)
        self.pool = mnn.AvgPool2d(3, 2, pad_mode="pad", padding=1, count_include_pad=defect == "count")
        self.out = mnn.Conv2d(WIDTH, 4, 1, pad_mode="valid", has_bias=True)

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        return self.out(self.pool(self.first(x)))


class PortPicky(mnn.Cell):
    """The port of TorchFused, which refuses what its second layer returns if that is right."""

    def __init__(self, defect: str = "") -> None:
        super().__init__()
        self.a = mnn.Dense(WIDTH, WIDTH)
        self.act = mnn.ReLU()
        self.b = mnn.Dense(WIDTH, WIDTH)
        self.tanh = mnn.Tanh()
        self.c = mnn.Dense(WIDTH, 4)
        self.shift = 100.0 if defect == "refuses" else 0.0

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        y = self.b(self.act(self.a(x) + self.shift))
        if self.shift and float(y.abs().max()) < self.shift / 10:
            raise ValueError("these values are too small")
        return self.c(self.tanh(y))


def torch_cancelled() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, WIDTH, 3), nn.GroupNorm(2, WIDTH, eps=1e-8), nn.ReLU(), nn.Conv2d(WIDTH, 4, 1))


def port_cancelled() -> mnn.Cell:
    return mnn.SequentialCell(
        mnn.Conv2d(3, WIDTH, 3, pad_mode="valid", has_bias=True),
        mnn.GroupNorm(2, WIDTH, eps=1e-8),
        mnn.ReLU(),
        mnn.Conv2d(WIDTH, 4, 1, pad_mode="valid", has_bias=True),
    )


class PortHalf(mnn.Cell):
    """The port of TorchHalf, whose middle layer computes in float16 with the defect."""

    def __init__(self, defect: str = "") -> None:
        super().__init__()
        self.parts = mnn.SequentialCell([part for _ in range(4) for part in (mnn.Dense(WIDTH, WIDTH), mnn.Tanh())])
        if defect == "float16":
            self.parts[4].to_float(mindspore.float16)

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        for part in self.parts:
            x = part(x).astype(x.dtype)
        return x


class TorchHalf(nn.Module):
    """Dense layers in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class PortPassing(mnn.Cell):
    """The port of TorchFused, with a layer and a probe that only pass on what they are given."""

    def __init__(self, defect: str = "") -> None:
        super().__init__()
        self.a = mint.nn.Linear(WIDTH, WIDTH)
        self.drop = mnn.Dropout(p=0.1)
        self.b = mint.nn.Linear(WIDTH, WIDTH)
        self.c = mint.nn.Linear(WIDTH, 4)
        self.factor = 3.0 if defect == "scaled" else 1.0

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        x = self.drop(align.probe("first", ops.relu(self.a(x)) * self.factor))
        return self.c(ops.tanh(self.b(x)))


TorchPassing = TorchPicky = TorchFused
