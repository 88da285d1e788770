"""The same as an engineer ports it: lists of blocks, norm and activation in one cell, attention over rows of pixels."""

import math

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


class TimeEmbedding(nn.Cell):
    def __init__(self, width, hidden):
        super().__init__()
        half = width // 2
        self.freqs = Tensor(np.exp(-math.log(10000) * np.arange(half) / half), ms.float32)
        self.dense0 = nn.Dense(width, hidden)
        self.dense1 = nn.Dense(hidden, hidden)

    def construct(self, t):
        args = t.astype(ms.float32).expand_dims(1) * self.freqs
        emb = ops.concat((ops.cos(args), ops.sin(args)), 1)
        return self.dense1(ops.silu(self.dense0(emb)))


class NormAct(nn.Cell):
    def __init__(self, channels):
        super().__init__()
        self.gn = nn.GroupNorm(4, channels, eps=1e-5)

    def construct(self, x):
        y = self.gn(x)
        return y * ops.sigmoid(y)


def conv3x3(inner, outer, stride=1):
    return nn.Conv2d(inner, outer, 3, stride=stride, pad_mode="pad", padding=1, has_bias=True)


class Residual(nn.Cell):
    def __init__(self, inner, outer, emb):
        super().__init__()
        self.in_layers = nn.SequentialCell(NormAct(inner), conv3x3(inner, outer))
        self.emb_proj = nn.Dense(emb, outer)
        self.out_layers = nn.SequentialCell(NormAct(outer), conv3x3(outer, outer))
        self.shortcut = nn.Conv2d(inner, outer, 1, has_bias=True) if inner != outer else None

    def construct(self, x, emb):
        y = self.in_layers(x)
        shift = self.emb_proj(ops.silu(emb))
        y = y + shift.expand_dims(-1).expand_dims(-1)
        y = self.out_layers(y)
        return y + (x if self.shortcut is None else self.shortcut(x))


class PixelAttention(nn.Cell):
    def __init__(self, channels):
        super().__init__()
        self.gn = nn.GroupNorm(4, channels, eps=1e-5)
        self.to_q = nn.Dense(channels, channels)
        self.to_k = nn.Dense(channels, channels)
        self.to_v = nn.Dense(channels, channels)
        self.to_out = nn.Dense(channels, channels)

    def construct(self, x):
        b, c, h, w = x.shape
        rows = self.gn(x).reshape(b, c, h * w).swapaxes(1, 2)
        q, k, v = self.to_q(rows), self.to_k(rows), self.to_v(rows)
        scores = ops.bmm(q, k.swapaxes(1, 2)) * c**-0.5
        y = self.to_out(ops.bmm(ops.softmax(scores, -1), v))
        return x + y.swapaxes(1, 2).reshape(b, c, h, w)


class DenoiseNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedder = TimeEmbedding(16, 32)
        self.conv_in = conv3x3(3, 16)
        self.encoder = nn.CellList([Residual(16, 16, 32), Residual(16, 32, 32)])
        self.pool = conv3x3(16, 16, 2)
        self.mid = PixelAttention(32)
        self.decoder = nn.CellList([Residual(64, 32, 32), Residual(48, 16, 32)])
        self.unpool = conv3x3(32, 32)
        self.tail = nn.SequentialCell(NormAct(16), conv3x3(16, 3))

    def construct(self, x, t):
        emb = self.embedder(t)
        first = self.encoder[0](self.conv_in(x), emb)
        second = self.encoder[1](self.pool(first), emb)
        y = self.mid(second)
        y = self.decoder[0](ops.concat((y, second), 1), emb)
        y = y.repeat_interleave(2, 2).repeat_interleave(2, 3)
        y = self.decoder[1](ops.concat((self.unpool(y), first), 1), emb)
        return self.tail(y)


def build():
    return DenoiseNet()
