"""A recommender: bags of items and words, a factorization of pairs, and a deep part."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Tower(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(inner, 24), nn.Linear(24, 8)])
        self.norm = nn.BatchNorm1d(24)

    def forward(self, x):
        return self.layers[1](F.leaky_relu(self.norm(self.layers[0](x)), 0.1))


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(50, 12)
        self.history = nn.EmbeddingBag(80, 12, mode="mean", padding_idx=0)
        self.words = nn.EmbeddingBag(120, 12, mode="sum")
        self.item = nn.Embedding(80, 12)
        self.dense = nn.Linear(5, 12)
        self.tower = Tower(60)
        self.wide = nn.Linear(10, 1)
        self.final = nn.Linear(8, 1)

    def forward(self, user, history, words, item, features):
        dense = torch.log1p(features.clamp(min=0))
        fields = [self.user(user), self.history(history), self.words(words), self.item(item), self.dense(dense)]
        fields = torch.stack(fields, 1)
        pairs = fields @ fields.transpose(1, 2)
        rows, columns = torch.triu_indices(5, 5, 1)
        wide = self.wide(pairs[:, rows, columns])
        deep = self.final(self.tower(fields.flatten(1)))
        return torch.sigmoid(wide + deep).squeeze(-1)


def build():
    torch.manual_seed(0)
    net = Recommender()
    nn.init.normal_(net.tower.norm.running_mean, std=0.3)
    nn.init.uniform_(net.tower.norm.running_var, 0.5, 1.5)
    return net


def inputs():
    rng = np.random.default_rng(0)
    history = rng.integers(1, 80, (6, 7)) * (np.arange(7) < np.array([[7], [7], [4], [7], [1], [7]]))
    user, words = rng.integers(0, 50, 6), rng.integers(0, 120, (6, 5))
    features = 3 * rng.standard_normal((6, 5)).astype(np.float32)
    return {
        "user": user,
        "history": history,
        "words": words,
        "item": rng.integers(0, 80, 6),
        "features": features,
    }
