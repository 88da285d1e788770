"""A Conformer-like encoder: half feed-forward steps around attention and a gated convolution."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down(F.silu(self.up(self.norm(x))))


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, padding):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5
        scores = scores.masked_fill(padding[:, None, None, :], float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class GatedConv(nn.Module):
    def __init__(self, dim, width):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.expand = nn.Conv1d(dim, 2 * dim, 1)
        self.depthwise = nn.Conv1d(dim, dim, width, padding=width // 2, groups=dim)
        self.bn = nn.BatchNorm1d(dim)
        self.project = nn.Conv1d(dim, dim, 1)

    def forward(self, x):
        x = F.glu(self.expand(self.norm(x).transpose(1, 2)), dim=1)
        return self.project(F.silu(self.bn(self.depthwise(x)))).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ff1 = FeedForward(dim, 4 * dim)
        self.attn = SelfAttention(dim, 4)
        self.conv = GatedConv(dim, 7)
        self.ff2 = FeedForward(dim, 4 * dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, padding):
        x = x + 0.5 * self.ff1(x)
        x = x + self.attn(x, padding)
        x = x + self.conv(x)
        x = x + 0.5 * self.ff2(x)
        return self.norm(x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.subsample = nn.Conv2d(1, 8, 3, stride=2, padding=1)
        self.embed = nn.Linear(8 * 8, 32)
        self.blocks = nn.ModuleList(Block(32) for _ in range(2))
        self.head = nn.Linear(32, 11)

    def forward(self, x, padding):
        x = F.relu(self.subsample(x.unsqueeze(1)))
        x = self.embed(x.permute(0, 2, 1, 3).flatten(2))
        padding = padding[:, ::2]
        for block in self.blocks:
            x = block(x, padding)
        kept = (~padding).unsqueeze(-1).float()
        return self.head((x * kept).sum(1) / kept.sum(1))


def build():
    torch.manual_seed(0)
    net = Encoder()
    for block in net.blocks:
        nn.init.normal_(block.conv.bn.running_mean, std=0.2)
        nn.init.uniform_(block.conv.bn.running_var, 0.5, 1.5)
    return net


def inputs():
    rng = np.random.default_rng(0)
    padding = np.arange(20) >= np.array([[20], [14], [9]])
    return {"x": rng.standard_normal((3, 20, 16)).astype(np.float32), "padding": padding}
