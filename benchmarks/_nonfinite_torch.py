"""Small trainings in torch, with a fault that begins at a step, or none: what `nonfinite.py` plants and watches."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

INF = float("inf")


class Attention(nn.Module):
    """One head, masked by -inf; with `covered`, one row of the mask is whole."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.covered = False

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        mask = torch.ones(x.shape[1], x.shape[1]).tril() == 0
        if self.covered:
            mask[1, :] = True
        return x + self.out(torch.softmax(scores.masked_fill(mask, -INF), -1) @ v)


class HalfBlock(nn.Module):
    """Computes in float16: `gain` overflows the way forward, a loss scale the way back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.gain, self.back = 1.0, 1.0

    def forward(self, x: Any) -> Any:
        y = nn.functional.linear(x.half(), self.fc.weight.half(), self.fc.bias.half())
        if self.gain != 1.0:
            y = y * self.gain
        return x + y.float() * 0.1 * self.back / self.back


class Mlp(nn.Module):
    """With a normalisation, and `root`, a square root of what may be 0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.zero_root = False

    def forward(self, x: Any) -> Any:
        y = self.down(nn.functional.gelu(self.up(self.norm(x))))
        if self.zero_root:
            return x + torch.sqrt(torch.relu(y) * 0)
        return x + torch.sqrt(torch.relu(y) + 1e-3)


class Net(nn.Module):
    """Tokens of 8 numbers into 5 classes."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Linear(8, width)
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            self.blocks.append(nn.ModuleDict({"attn": Attention(width), "low": HalfBlock(width), "mlp": Mlp(width)}))
        self.head = nn.Linear(width, 5)
        self.idle = nn.Parameter(torch.zeros(3))

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = block["mlp"](block["low"](block["attn"](x)))
        return self.head(x.mean(1)) + 0.0 * self.idle.sum()


class Loss(nn.Module):
    """Cross entropy by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.zero = False

    def forward(self, logits: Any, y: Any) -> Any:
        p = torch.softmax(logits, -1)
        if self.zero:
            p = torch.where(p == p.max(), p * 0, p)
        else:
            p = p + 1e-6
        return -torch.log(p).mean() + nn.functional.cross_entropy(logits, y)


class Training:
    """A training whose fault begins at step `at`; `plant` names it, "" for none."""

    def __init__(self, seed: int, plant: str, at: int, place: int, optimizer: str = "adam") -> None:
        torch.manual_seed(seed)
        width, depth = 8 * (1 + seed % 3), 1 + seed % 3
        self.model, self.loss = Net(width, depth), Loss()
        self.plant, self.at = plant, at
        self.place = place % depth
        self.batch = 4 + seed % 5
        groups = [{"params": [one for one in self.model.parameters() if one is not self.model.idle]}]
        if optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD([*groups, {"params": [self.model.idle]}], 1e-2, momentum=0.9)
        else:
            kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer]
            self.optimizer = kind([*groups, {"params": [self.model.idle], "eps": 1e-8}], 1e-3)

    def expected(self) -> tuple[str, str]:
        """Layer and direction at which it is to be named."""
        block = f"blocks.{self.place}"
        return {
            "log": ("Loss", "forward"),
            "softmax": (f"{block}.attn", "forward"),
            "parameter": (f"{block}.mlp.up", "forward"),
            "sample": ("stem", "forward"),
            "half forward": (f"{block}.low", "forward"),
            "half backward": (f"{block}.low", "backward"),
            "root": (f"{block}.mlp", "backward"),
            "optimizer": ("", "update"),
            "explosion": (f"{block}.mlp.down", "forward"),
        }[self.plant]

    def run(self, steps: int) -> None:
        """Train."""
        self.model.train()
        for step in range(steps):
            x, y = torch.randn(self.batch, 6, 8), torch.randint(0, 5, (self.batch,))
            scale = self._begin(step, x)
            self.optimizer.zero_grad()
            (self.loss(self.model(x), y) * scale).backward()
            if scale != 1.0:
                for one in self.model.parameters():
                    if one.grad is not None:
                        one.grad /= scale
            self.optimizer.step()

    def _begin(self, step: int, x: Any) -> float:
        block = self.model.blocks[self.place]
        if step != self.at:
            return 1.0
        with torch.no_grad():
            if self.plant == "log":
                self.loss.zero = True
            elif self.plant == "softmax":
                block["attn"].covered = True
            elif self.plant == "parameter":
                block["mlp"].up.weight[1, 1] = float("nan")
            elif self.plant == "sample":
                x[self.batch - 2, 1, 3] = float("nan") if step % 2 else INF
            elif self.plant == "half forward":
                block["low"].gain = 6e5
            elif self.plant == "half backward":
                return 2.0**40
            elif self.plant == "root":
                block["mlp"].zero_root = True
            elif self.plant == "optimizer":
                self.optimizer.param_groups[1]["eps"] = 0.0
            elif self.plant == "explosion":
                block["mlp"].down.weight *= 1e7
        return 1.0
