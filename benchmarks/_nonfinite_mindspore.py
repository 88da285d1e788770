"""The same small trainings in MindSpore (PYNATIVE): what `nonfinite.py` plants and watches."""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

INF = float("inf")


class Attention(nn.Cell):
    """One head, masked by -inf; with `covered`, one row of the mask is whole."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Dense(width, width), nn.Dense(width, width), nn.Dense(width, width)
        self.out = nn.Dense(width, width)
        self.covered, self.width = False, width

    def construct(self, x: Any) -> Any:
        scores = ops.matmul(self.q(x), self.k(x).swapaxes(-1, -2)) / self.width**0.5
        mask = np.triu(np.ones((x.shape[1], x.shape[1]), bool), 1)
        if self.covered:
            mask[1, :] = True
        scores = ops.masked_fill(scores, Tensor(mask), -INF)
        powers = ops.exp(scores - scores.max(-1, keepdims=True))
        return x + self.out(ops.matmul(powers / powers.sum(-1, keepdims=True), self.v(x)))


class HalfBlock(nn.Cell):
    """Computes in float16: `gain` overflows the way forward, a loss scale the way back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Dense(width, width)
        self.gain = 1.0

    def construct(self, x: Any) -> Any:
        half = mindspore.float16
        y = ops.matmul(x.astype(half), self.fc.weight.astype(half)) + self.fc.bias.astype(half)
        if self.gain != 1.0:
            y = y * self.gain * self.gain
        return x + y.astype(mindspore.float32) * 0.1


class Mlp(nn.Cell):
    """With a normalisation, and `root`, a square root of what may be 0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm((width,)), nn.Dense(width, 2 * width), nn.Dense(2 * width, width)
        self.zero_root = False

    def construct(self, x: Any) -> Any:
        y = self.down(ops.gelu(self.up(self.norm(x))))
        if self.zero_root:
            return x + ops.sqrt(ops.relu(y) * 0)
        return x + ops.sqrt(ops.relu(y) + 1e-3)


class Block(nn.Cell):
    """One of each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attn, self.low, self.mlp = Attention(width), HalfBlock(width), Mlp(width)

    def construct(self, x: Any) -> Any:
        return self.mlp(self.low(self.attn(x)))


class Net(nn.Cell):
    """Tokens of 8 numbers into 5 classes."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Dense(8, width)
        self.blocks = nn.CellList([Block(width) for _ in range(depth)])
        self.head = nn.Dense(width, 5)
        self.idle = Parameter(Tensor(np.zeros(3, np.float32)), name="idle")

    def construct(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1)) + 0.0 * self.idle.sum()


class Loss(nn.Cell):
    """Cross entropy by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.zero = False
        self.entropy = nn.CrossEntropyLoss()

    def construct(self, logits: Any, y: Any) -> Any:
        p = ops.softmax(logits, -1)
        p = ops.where(p == p.max(), p * 0, p) if self.zero else p + 1e-6
        return -ops.log(p).mean() + self.entropy(logits, y)


class Training:
    """A training whose fault begins at step `at`; `plant` names it, "" for none."""

    def __init__(self, seed: int, plant: str, at: int, place: int, optimizer: str = "adam") -> None:
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
        mindspore.set_seed(seed)
        self._random = np.random.default_rng(seed)
        width, depth = 8 * (1 + seed % 3), 1 + seed % 3
        self.model, self.loss = Net(width, depth), Loss()
        self.plant, self.at, self.place, self.batch = plant, at, place % depth, 4 + seed % 5
        own = [one for one in self.model.trainable_params() if one is not self.model.idle]
        idle = [self.model.idle]
        if optimizer == "sgd":
            self.optimizers: list[Any] = [nn.Momentum(own, 1e-2, 0.9), nn.Momentum(idle, 1e-2, 0.9)]
        else:
            kind = {"adam": nn.Adam, "adamw": nn.AdamWeightDecay}[optimizer]
            self.optimizers = [kind(own, 1e-3), nn.Adam(idle, 1e-3, eps=1e-50 if plant == "optimizer" else 1e-8)]
        self._counts = [len(own), 1]
        weights = own + idle
        self._grads = mindspore.value_and_grad(self._forward, None, weights)

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
        self.model.set_train()
        for step in range(steps):
            x = self._random.standard_normal((self.batch, 6, 8)).astype(np.float32)
            y = Tensor(self._random.integers(0, 5, self.batch), mindspore.int32)
            scale = self._begin(step, x)
            _, gradients = self._grads(Tensor(x), y, scale)
            if scale != 1.0:
                gradients = tuple(one / scale for one in gradients)
            own = self._counts[0]
            self.optimizers[0](gradients[:own])
            if self.plant != "optimizer" or step >= self.at:
                self.optimizers[1](gradients[own:])

    def _forward(self, x: Any, y: Any, scale: float) -> Any:
        loss = self.loss(self.model(x), y)
        return loss * scale if scale != 1.0 else loss

    def _begin(self, step: int, x: Any) -> float:
        block = self.model.blocks[self.place]
        if step != self.at:
            return 1.0
        if self.plant == "log":
            self.loss.zero = True
        elif self.plant == "softmax":
            block.attn.covered = True
        elif self.plant == "parameter":
            value = block.mlp.up.weight.asnumpy().copy()
            value[1, 1] = np.nan
            block.mlp.up.weight.set_data(Tensor(value))
        elif self.plant == "sample":
            x[self.batch - 2, 1, 3] = np.nan if step % 2 else INF
        elif self.plant == "half forward":
            block.low.gain = 6e4
        elif self.plant == "half backward":
            return 2.0**40
        elif self.plant == "root":
            block.mlp.zero_root = True
        elif self.plant == "explosion":
            block.mlp.down.weight.set_data(block.mlp.down.weight * 1e7)
        return 1.0
