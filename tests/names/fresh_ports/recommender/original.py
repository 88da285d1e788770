"""Ranking model: embedded fields, factorisation machine, cross network, gated mixture of experts for three tasks."""

import torch
import torch.nn.functional as F
from torch import nn

FIELD_SIZES = (12, 7, 12, 20, 7)
TASKS = ("click", "cart", "order")


class StackedEmbedding(nn.Module):
    """One table for all fields; a field's rows begin at its offset."""

    def __init__(self, sizes, dim):
        super().__init__()
        self.embedding = nn.Embedding(sum(sizes), dim)
        self.register_buffer("offsets", torch.tensor([0, *sizes[:-1]]).cumsum(0))
        nn.init.normal_(self.embedding.weight, std=0.25)

    def forward(self, ids):
        return self.embedding(ids + self.offsets)


class CrossNetwork(nn.Module):
    def __init__(self, dim, layers):
        super().__init__()
        self.w = nn.ParameterList([nn.Parameter(torch.randn(dim) * dim**-0.5) for _ in range(layers)])
        self.b = nn.ParameterList([nn.Parameter(torch.zeros(dim)) for _ in range(layers)])

    def forward(self, x):
        x0 = x
        for w, b in zip(self.w, self.b, strict=True):
            x = x0 * (x @ w).unsqueeze(-1) + b + x
        return x


class MMoE(nn.Module):
    def __init__(self, dim, hidden, out, experts, tasks):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(experts, dim, hidden) * dim**-0.5)
        self.b1 = nn.Parameter(torch.zeros(experts, hidden))
        self.w2 = nn.Parameter(torch.randn(experts, hidden, out) * hidden**-0.5)
        self.b2 = nn.Parameter(torch.zeros(experts, out))
        self.gates = nn.ModuleList(nn.Linear(dim, experts) for _ in range(tasks))

    def forward(self, x):
        h = torch.einsum("bd,edh->ebh", x, self.w1) + self.b1[:, None]
        y = torch.einsum("ebh,eho->beo", F.relu(h), self.w2) + self.b2
        return [(gate(x).softmax(-1).unsqueeze(-1) * y).sum(1) for gate in self.gates]


class Recommender(nn.Module):
    def __init__(self, sizes=FIELD_SIZES, items=30, n_dense=6, dim=24, cross=3, experts=4, hidden=40, tasks=TASKS):
        super().__init__()
        self.sparse = StackedEmbedding(sizes, dim)
        self.sparse_linear = StackedEmbedding(sizes, 1)
        self.history = nn.EmbeddingBag(items, dim, mode="mean", padding_idx=0)
        nn.init.normal_(self.history.weight, std=0.3)
        self.dense_bn = nn.BatchNorm1d(n_dense)
        self.dense_mlp = nn.Sequential(nn.Linear(n_dense, 32), nn.ReLU(), nn.Linear(32, dim))
        self.dense_linear = nn.Linear(n_dense, 1)
        width = (len(sizes) + 2) * dim
        self.cross = CrossNetwork(width, cross)
        self.mmoe = MMoE(width, hidden, dim, experts, len(tasks))
        self.heads = nn.ModuleDict(
            {task: nn.Sequential(nn.Linear(dim, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)) for task in tasks}
        )

    def forward(self, dense, sparse, history):
        dense = self.dense_bn(dense)
        fields = torch.cat(
            [self.sparse(sparse), self.history(history).unsqueeze(1), self.dense_mlp(dense).unsqueeze(1)], dim=1
        )
        wide = self.sparse_linear(sparse).sum(1) + self.dense_linear(dense)
        fm = 0.5 * (fields.sum(1).pow(2) - fields.pow(2).sum(1)).sum(-1, keepdim=True)
        mixed = self.mmoe(self.cross(fields.flatten(1)))
        deep = torch.cat([head(y) for head, y in zip(self.heads.values(), mixed, strict=True)], dim=-1)
        return deep + wide + fm


def build():
    torch.manual_seed(211)
    model = Recommender()
    with torch.no_grad():
        for name, p in model.named_parameters():
            shift = p.dim() < 2 or name in ("mmoe.b1", "mmoe.b2", "sparse_linear.embedding.weight")
            p.add_(torch.randn_like(p) * (0.3 if shift else 0.05))
        model.dense_bn.running_mean.normal_(0, 0.3)
        model.dense_bn.running_var.uniform_(0.5, 1.5)
    return model.eval()
