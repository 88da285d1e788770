"""A small selective state space language model; the scan is a plain loop over time."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocab_size: int = 44
    d_model: int = 32
    n_layer: int = 3
    d_state: int = 8
    d_conv: int = 4
    expand: float = 1.5
    dt_rank: int = 4
    norm_eps: float = 1e-5

    @property
    def d_inner(self):
        return int(self.expand * self.d_model)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class MambaMixer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        inner = cfg.d_inner
        self.in_proj = nn.Linear(cfg.d_model, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, cfg.d_conv, groups=inner, padding=cfg.d_conv - 1)
        self.x_proj = nn.Linear(inner, cfg.dt_rank + 2 * cfg.d_state, bias=False)
        self.dt_proj = nn.Linear(cfg.dt_rank, inner)
        states = torch.arange(1, cfg.d_state + 1, dtype=torch.float32)
        self.A_log = nn.Parameter(states.log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, cfg.d_model, bias=False)

    def forward(self, hidden):
        length = hidden.shape[1]
        x, z = self.in_proj(hidden).chunk(2, dim=-1)
        x = self.conv1d(x.transpose(1, 2))[..., :length].transpose(1, 2)
        x = F.silu(x)
        y = self.scan(x)
        return self.out_proj(y * F.silu(z))

    def scan(self, x):
        cfg = self.cfg
        dt, b, c = self.x_proj(x).split([cfg.dt_rank, cfg.d_state, cfg.d_state], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        a = -self.A_log.exp()
        decay = torch.exp(dt.unsqueeze(-1) * a)
        drive = dt.unsqueeze(-1) * b.unsqueeze(2) * x.unsqueeze(-1)
        state = x.new_zeros(x.shape[0], cfg.d_inner, cfg.d_state)
        ys = []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + drive[:, t]
            ys.append((state * c[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(ys, dim=1) + x * self.D


class ResidualBlock(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm = RMSNorm(cfg.d_model, cfg.norm_eps)
        self.mixer = MambaMixer(cfg)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class MambaLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embedding = nn.Embedding(cfg.vocab_size, cfg.d_model)
        self.layers = nn.ModuleList([ResidualBlock(cfg) for _ in range(cfg.n_layer)])
        self.norm_f = RMSNorm(cfg.d_model, cfg.norm_eps)
        self.lm_head = nn.Linear(cfg.d_model, cfg.vocab_size, bias=False)
        self.lm_head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm_f(x))


def randomise(model):
    """No parameter keeps its first value; steps of time spread over a decade."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("norm.weight", "norm_f.weight", ".D")):
                p.copy_(1 + 0.3 * torch.randn_like(p))
            elif name.endswith("A_log"):
                p.add_(0.3 * torch.randn_like(p))
            elif name.endswith("dt_proj.bias"):
                p.uniform_(math.log(0.1), math.log(1.0))
            elif name.endswith("x_proj.weight"):
                p.normal_(0, 0.3)
            elif name.endswith(("dt_proj.weight", "embedding.weight")):
                p.normal_(0, 0.5)
            else:
                p.add_(0.05 * torch.randn_like(p))


def build():
    torch.manual_seed(1712)
    model = MambaLM(Config())
    randomise(model)
    return model.eval()
