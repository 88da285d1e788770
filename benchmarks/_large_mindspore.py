"""The port of the model in `_large_torch.py`: the same parts in the same order."""

from __future__ import annotations

from typing import Any

from _large_torch import CLASSES, HEAD, PATCH, USUAL, WORDS
from mindspore import Parameter, nn, ops


class Norm(nn.Cell):
    """The norm of Llama."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight, self.epsilon = Parameter(ops.ones(width)), epsilon

    def construct(self, x: Any) -> Any:
        return self.weight * (x * ops.rsqrt((x * x).mean(-1, keep_dims=True) + self.epsilon))


class Attention(nn.Cell):
    """All positions see all others."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Dense(width, width, has_bias=bias) for _ in range(4))

    def construct(self, x: Any) -> Any:
        shape = (*x.shape[:2], x.shape[2] // HEAD, HEAD)
        q, k, v = (part(x).reshape(shape).swapaxes(1, 2) for part in (self.q, self.k, self.v))
        mixed = ops.matmul(ops.softmax(ops.matmul(q, k.swapaxes(2, 3)) / HEAD**0.5, -1), v)
        return self.o(mixed.swapaxes(1, 2).reshape(x.shape))


class Feed(nn.Cell):
    """The MLP of a block."""

    def __init__(self, gated: bool, width: int) -> None:
        super().__init__()
        self.gated, inner = gated, 8 * width // 3 if gated else 4 * width
        self.up = nn.Dense(width, inner, has_bias=not gated)
        if gated:
            self.gate = nn.Dense(width, inner, has_bias=False)
        self.down = nn.Dense(inner, width, has_bias=not gated)

    def construct(self, x: Any) -> Any:
        up = self.up(x)
        return self.down(ops.silu(self.gate(x)) * up if self.gated else ops.gelu(up, approximate="none"))


def norm(gated: bool, width: int, epsilon: float = USUAL) -> Any:
    """The norm of this kind of model."""
    return Norm(width, epsilon) if gated else nn.LayerNorm((width,), epsilon=epsilon)


class Block(nn.Cell):
    """Attention and MLP, each behind a norm."""

    def __init__(self, gated: bool, width: int) -> None:
        super().__init__()
        self.norm1, self.attention = norm(gated, width), Attention(width, not gated)
        self.norm2, self.feed = norm(gated, width), Feed(gated, width)

    def construct(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class Model(nn.Cell):
    """All of it; the last norm has `epsilon`."""

    def __init__(self, gated: bool, width: int, depth: int, epsilon: float = USUAL) -> None:
        super().__init__()
        self.gated, made = gated, WORDS if gated else CLASSES
        patches = nn.Conv2d(3, width, PATCH, PATCH, pad_mode="valid", has_bias=True)
        self.embed = nn.Embedding(WORDS, width) if gated else patches
        self.blocks = nn.CellList([Block(gated, width) for _ in range(depth)])
        self.norm, self.head = norm(gated, width, epsilon), nn.Dense(width, made, has_bias=not gated)

    def construct(self, x: Any) -> Any:
        x = self.embed(x) if self.gated else self.embed(x).flatten(start_dim=2).swapaxes(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x) if self.gated else self.norm(x).mean(1))
