"""A small net most of whose work is done by its code: joins, functions over axes, reshapes, a residual, numbers."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, dim=8, heads=2):
        super().__init__()
        self.heads = heads
        self.qk = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def split(self, x):
        b, n, d = x.shape
        return x.reshape(b, n, self.heads, d // self.heads).transpose(1, 2)

    def forward(self, x):
        b, n, d = x.shape
        keys = self.split(self.qk(x))
        weights = F.softmax(keys @ keys.transpose(-2, -1) * 0.7, dim=-1)
        return self.out((weights @ self.split(x)).transpose(1, 2).reshape(b, n, d))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.attention = Attention()
        self.fc1 = nn.Linear(8, 6)
        self.fc2 = nn.Linear(6, 5)

    def forward(self, x):
        a = F.relu(self.conv1(x))
        x = torch.cat([a, self.conv2(a)], dim=1)
        x = x.flatten(2).transpose(1, 2)
        x = x + self.attention(x)
        x = F.gelu(self.fc1(x.mean(dim=1)))
        return self.fc2(x) * 3.0


class Shared(nn.Module):
    """One method is right for the first layer; for the second it is not, in the port."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 4)
        self.fc2 = nn.Linear(4, 4)

    def forward(self, x):
        return F.softmax(self.fc2(F.softmax(self.fc1(x), dim=1)), dim=2)


class Acted(Shared):
    """One layer is right behind the first layer; behind the second it is not, in the port."""

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


def block(width):
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 1), nn.ReLU())


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(block(4), block(6))
        self.head = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 5), nn.Sigmoid(), nn.Tanh())

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def build(kind=Net):
    torch.manual_seed(0)
    return kind()


def inputs():
    return {"x": np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)}
