"""A model like Llama (gated: words, norms by the root mean square, a gated MLP) or like ViT, in torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

WORDS, CLASSES, PATCH, HEAD, USUAL = 8000, 1000, 16, 64, 1e-5


class Norm(nn.Module):
    """The norm of Llama."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

    def forward(self, x: Any) -> Any:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


class Attention(nn.Module):
    """All positions see all others."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=bias) for _ in range(4))

    def forward(self, x: Any) -> Any:
        shape = (*x.shape[:2], x.shape[2] // HEAD, HEAD)
        q, k, v = (part(x).reshape(shape).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = torch.matmul(torch.softmax(torch.matmul(q, k.transpose(2, 3)) / HEAD**0.5, -1), v)
        return self.o(mixed.transpose(1, 2).reshape(x.shape))


class Feed(nn.Module):
    """The MLP of a block."""

    def __init__(self, gated: bool, width: int) -> None:
        super().__init__()
        self.gated, inner = gated, 8 * width // 3 if gated else 4 * width
        self.up = nn.Linear(width, inner, bias=not gated)
        if gated:
            self.gate = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=not gated)

    def forward(self, x: Any) -> Any:
        up = self.up(x)
        return self.down(functional.silu(self.gate(x)) * up if self.gated else functional.gelu(up))


def norm(gated: bool, width: int, epsilon: float = USUAL) -> Any:
    """The norm of this kind of model."""
    return Norm(width, epsilon) if gated else nn.LayerNorm(width, epsilon)


class Block(nn.Module):
    """Attention and MLP, each behind a norm."""

    def __init__(self, gated: bool, width: int) -> None:
        super().__init__()
        self.norm1, self.attention = norm(gated, width), Attention(width, not gated)
        self.norm2, self.feed = norm(gated, width), Feed(gated, width)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class Model(nn.Module):
    """All of it; the last norm has `epsilon`."""

    def __init__(self, gated: bool, width: int, depth: int, epsilon: float = USUAL) -> None:
        super().__init__()
        self.gated = gated
        self.embed = nn.Embedding(WORDS, width) if gated else nn.Conv2d(3, width, PATCH, PATCH)
        self.blocks = nn.ModuleList(Block(gated, width) for _ in range(depth))
        self.norm, self.head = norm(gated, width, epsilon), nn.Linear(width, WORDS if gated else CLASSES, not gated)

    def forward(self, x: Any) -> Any:
        x = self.embed(x) if self.gated else self.embed(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x) if self.gated else self.norm(x).mean(1))
