"""A small UNet that denoises: residual blocks with group norms, the time step embedded and added."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def timestep_embedding(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(10000.0) * torch.arange(half) / half)
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], -1)


class ResBlock(nn.Module):
    def __init__(self, inner, outer, emb):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, inner)
        self.conv1 = nn.Conv2d(inner, outer, 3, padding=1)
        self.emb = nn.Linear(emb, outer)
        self.norm2 = nn.GroupNorm(4, outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1)
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.emb(F.silu(emb))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return self.skip(x) + h


class SpatialAttention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.proj = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, c, h * w).unbind(1)
        weights = torch.softmax(q.transpose(1, 2) @ k / math.sqrt(c), dim=-1)
        return x + self.proj((v @ weights.transpose(1, 2)).reshape(b, c, h, w))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.down1 = ResBlock(16, 16, 32)
        self.shrink = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.down2 = ResBlock(16, 32, 32)
        self.middle = SpatialAttention(32)
        self.up2 = ResBlock(64, 32, 32)
        self.grow = nn.Conv2d(32, 32, 3, padding=1)
        self.up1 = ResBlock(48, 16, 32)
        self.norm = nn.GroupNorm(4, 16)
        self.out = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x, t):
        emb = self.time(timestep_embedding(t, 16))
        a = self.down1(self.stem(x), emb)
        b = self.down2(self.shrink(a), emb)
        h = self.middle(b)
        h = self.up2(torch.cat([h, b], 1), emb)
        h = self.grow(F.interpolate(h, scale_factor=2, mode="nearest"))
        h = self.up1(torch.cat([h, a], 1), emb)
        return self.out(F.silu(self.norm(h)))


def build():
    torch.manual_seed(0)
    return UNet()


def inputs():
    return {"x": np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32), "t": np.array([3, 410])}
