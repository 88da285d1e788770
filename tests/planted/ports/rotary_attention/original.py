"""Grouped-query attention with rotary embeddings, as a torch model has it: much of it is no module."""

import numpy as np
import torch
from torch import nn


def rotate(x):
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(32, 32, bias=False)
        self.k = nn.Linear(32, 16, bias=False)
        self.v = nn.Linear(32, 16, bias=False)
        self.o = nn.Linear(32, 32, bias=False)
        inv = 1.0 / (100.0 ** (torch.arange(0, 8, 2) / 8))
        angles = torch.outer(torch.arange(12.0), inv)
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x):
        b, t, d = x.shape
        q = self.q(x).view(b, t, 4, 8).transpose(1, 2)
        k = self.k(x).view(b, t, 2, 8).transpose(1, 2)
        v = self.v(x).view(b, t, 2, 8).transpose(1, 2)
        q = q * self.cos + rotate(q) * self.sin
        k = k * self.cos + rotate(k) * self.sin
        k = k.repeat_interleave(2, 1)
        v = v.repeat_interleave(2, 1)
        s = q @ k.transpose(-1, -2) / 8**0.5
        m = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
        s = s.masked_fill(m, -1e9)
        y = torch.softmax(s, -1) @ v
        return self.o(y.transpose(1, 2).reshape(b, t, d))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 32)
        self.norm = nn.LayerNorm(32)
        self.attn = Attention()
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        x = self.embed(x)
        x = x + self.attn(self.norm(x))
        return self.head(x.mean(1))


def build():
    torch.manual_seed(0)
    return Net()


def inputs():
    return {"x": np.random.default_rng(0).standard_normal((2, 12, 16)).astype(np.float32)}
