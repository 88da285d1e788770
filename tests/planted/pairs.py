"""Small real pairs: each model written once in torch.nn and once, with other names, in mindspore.nn.

The port takes its defect as a keyword; without one it is the clean twin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mindspore
import numpy as np
import torch
from mindspore import nn as mnn
from mindspore import ops
from torch import nn

from align.core.load_code import model_readers
from align.forward.compare_forward import compare_forward
from align.names.map_parameters import map_parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.name_map import NameMap
    from align.forward.forward_result import ForwardComparison, LayerComparison

WORDS = 50


class TorchConvNet(nn.Module):
    """Stem with pooling, `depth` residual blocks, a linear head."""

    def __init__(self, width: int = 8, depth: int = 2, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.ModuleList([TorchBlock(width) for _ in range(depth)])
        self.average = nn.AvgPool2d(2)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(self.average(x).mean((2, 3)))


class TorchBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        return self.relu(y)


class PortConvNet(mnn.Cell):
    """The port of TorchConvNet; `defect` is one of the names that appear below."""

    def __init__(self, width: int = 8, depth: int = 2, classes: int = 5, defect: str = "") -> None:
        super().__init__()
        padding = {"padding": 0, "pad_mode": "valid"} if defect == "padding" else {"padding": 1, "pad_mode": "pad"}
        stride = 2 if defect == "conv stride" else 1
        self.first = mnn.Conv2d(3, width, 3, stride=stride, has_bias=False, **padding)
        self.first_norm = mnn.BatchNorm2d(width, eps=1e-3 if defect == "batch norm eps" else 1e-5)
        self.act = mnn.ReLU()
        self.shrink = self._pool(defect)
        self.layers = mnn.CellList([PortBlock(width, defect if number == 1 else "") for number in range(depth)])
        self.gather = (mnn.MaxPool2d if defect == "max for average" else mnn.AvgPool2d)(2, 2)
        self.classifier = mnn.Dense(width, classes)
        self.skipped = 1 if defect == "block skipped" else None

    @staticmethod
    def _pool(defect: str) -> mnn.Cell:
        if defect == "pool pad mode":
            return mnn.MaxPool2d(3, 2, pad_mode="same")
        if defect == "pool stride":
            return mnn.MaxPool2d(3, 1, pad_mode="pad", padding=1)
        return mnn.MaxPool2d(3, 2, pad_mode="pad", padding=1)

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        x = self.shrink(self.act(self.first_norm(self.first(x))))
        for number, layer in enumerate(self.layers):
            if number != self.skipped:
                x = layer(x)
        return self.classifier(self.gather(x).mean((2, 3)))


class PortBlock(mnn.Cell):
    def __init__(self, width: int, defect: str) -> None:
        super().__init__()
        options = {"pad_mode": "pad", "padding": 1, "has_bias": False}
        self.a = mnn.Conv2d(width, width, 3, **options)
        self.a_norm = mnn.BatchNorm2d(width)
        self.b = mnn.Conv2d(width, width, 3, **options)
        self.b_norm = mnn.BatchNorm2d(width)
        self.act = mnn.LeakyReLU(0.2) if defect == "activation" else mnn.ReLU()
        self.residual = defect != "residual dropped"

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        y = self.act(self.a_norm(self.a(x)))
        y = self.b_norm(self.b(y))
        return self.act(y + x if self.residual else y)


class TorchEncoder(nn.Module):
    """Embeddings, `depth` pre-norm transformer layers written out, a linear head."""

    def __init__(self, width: int = 16, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList([TorchLayer(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, WORDS, bias=False)

    def forward(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x)
        return {"logits": self.head(self.norm(x)), "hidden": x}


class TorchLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.ln2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU()
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.ln1(x)
        q, k, v = (
            part(y).unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        weights = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + self.dropout(self.out((weights @ v).transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(self.gelu(self.up(self.ln2(x)))))


class PortEncoder(mnn.Cell):
    """The port of TorchEncoder; `defect` is one of the names that appear below."""

    def __init__(self, width: int = 16, depth: int = 2, heads: int = 4, defect: str = "") -> None:
        super().__init__()
        self.embed = mnn.Embedding(WORDS, width)
        self.stack = mnn.CellList([PortLayer(width, heads, defect if number == 1 else "") for number in range(depth)])
        self.final = mnn.LayerNorm((width,), epsilon=1e-5)
        self.project = mnn.Dense(width, WORDS, has_bias=False)

    def construct(self, tokens: mindspore.Tensor) -> tuple[mindspore.Tensor, mindspore.Tensor]:
        x = self.embed(tokens)
        for layer in self.stack:
            x = layer(x)
        return self.project(self.final(x)), x


class PortLayer(mnn.Cell):
    def __init__(self, width: int, heads: int, defect: str) -> None:
        super().__init__()
        self.heads = heads // 2 if defect == "heads" else heads
        self.before = mnn.LayerNorm((width,), epsilon=1e-7 if defect == "layer norm eps" else 1e-5)
        self.q = mnn.Dense(width, width)
        self.k = mnn.Dense(width, width)
        self.v = mnn.Dense(width, width)
        self.merge = mnn.Dense(width, width)
        self.between = mnn.LayerNorm((width,), epsilon=1e-5)
        self.wide = mnn.Dense(width, 4 * width)
        self.act = mnn.GELU(approximate=defect == "gelu")
        self.narrow = mnn.Dense(4 * width, width)
        self.drop = mnn.Dropout(p=0.1)
        self.scaled, self.residual = defect != "scale forgotten", defect != "residual dropped"

    def construct(self, x: mindspore.Tensor) -> mindspore.Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        y = self.before(x)
        q, k, v = (part(y).reshape(split).swapaxes(1, 2) for part in (self.q, self.k, self.v))
        scores = ops.matmul(q, k.swapaxes(2, 3))
        weights = ops.softmax(scores / split[3] ** 0.5 if self.scaled else scores, -1)
        y = self.drop(self.merge(ops.matmul(weights, v).swapaxes(1, 2).reshape(batch, length, width)))
        x = x + y if self.residual else y
        return x + self.drop(self.narrow(self.act(self.wide(self.between(x)))))


class TorchReader(nn.Module):
    """Embedding, stacked LSTM, one number a sequence."""

    def __init__(self, width: int = 8, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.lstm = nn.LSTM(width, 2 * width, layers, batch_first=True)
        self.score = nn.Linear(2 * width, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.words(tokens))
        return self.score(states[:, -1])


class PortReader(mnn.Cell):
    def __init__(self, width: int = 8, layers: int = 2) -> None:
        super().__init__()
        self.table = mnn.Embedding(WORDS, width)
        self.recurrent = mnn.LSTM(width, 2 * width, layers, batch_first=True)
        self.out = mnn.Dense(2 * width, 1)

    def construct(self, tokens: mindspore.Tensor) -> mindspore.Tensor:
        states, _ = self.recurrent(self.table(tokens))
        return self.out(states[:, -1])


def torch_mlp(width: int, depth: int, outputs: int) -> nn.Module:
    hidden = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(*hidden, nn.Linear(width, outputs))


def port_mlp(width: int, depth: int, outputs: int) -> mnn.Cell:
    hidden = [part for _ in range(depth) for part in (mnn.Dense(width, width), mnn.Tanh())]
    return mnn.SequentialCell(*hidden, mnn.Dense(width, outputs))


def images(seed: int = 0, batch: int = 2, size: int = 16) -> dict[str, Any]:
    return {"x": np.random.default_rng(seed).standard_normal((batch, 3, size, size)).astype(np.float32)}


def tokens(seed: int = 0, batch: int = 2, length: int = 7) -> dict[str, Any]:
    return {"tokens": np.random.default_rng(seed).integers(0, WORDS, (batch, length))}


def vectors(width: int, seed: int = 0, batch: int = 1) -> dict[str, Any]:
    return {"x": np.random.default_rng(seed).standard_normal((batch, width)).astype(np.float32)}


def make_alike(reference: nn.Module, candidate: mnn.Cell, inputs: dict[str, Any], seed: int = 0) -> NameMap:
    """Give the reference distinct random values everywhere, and the clean port the same by the tool's own map."""
    randomize(reference, seed)
    mapped = map_parameters(reference, candidate, inputs=inputs)
    assert mapped.name_map.complete, mapped.verdict
    transfer(reference, candidate, mapped.name_map)
    return mapped.name_map


def transfer(reference: nn.Module, candidate: mnn.Cell, name_map: NameMap) -> None:
    """Give the candidate the reference's values, by a map that was made before."""
    readers = model_readers()
    values = readers["torch"].read_values(reference)
    moved = {p.target: p.transform.apply(values[p.source]) for p in name_map.pairings}
    readers["mindspore"].load_values(candidate, moved)


def randomize(model: nn.Module, seed: int) -> None:
    """Initialise afresh, then make norms and statistics distinct too: what is all ones hides a swap."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
            if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0.0, 0.2)
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0.0, 0.2)
                module.running_var.uniform_(0.3, 1.5)


def swap(candidate: mnn.Cell, first: str, second: str) -> None:
    """Exchange the values of two parameters of a network."""
    reader = model_readers()["mindspore"]
    values = reader.read_values(candidate)
    reader.load_values(candidate, {**values, first: values[second], second: values[first]})


def change(candidate: mnn.Cell, name: str, function: Any) -> None:
    """Replace the value of one parameter by what a function makes of it."""
    reader = model_readers()["mindspore"]
    values = reader.read_values(candidate)
    reader.load_values(candidate, {**values, name: np.ascontiguousarray(function(values[name]))})


def compare(
    reference: nn.Module, port: Callable[..., mnn.Cell], inputs: dict[str, Any], *, seed: int = 0, defect: str = ""
) -> ForwardComparison:
    """Map and fill the clean port, then compare with the port that has the defect, if any, and the same values."""
    candidate = port()
    name_map = make_alike(reference, candidate, inputs, seed)
    if defect:
        candidate = port(defect=defect)
        transfer(reference, candidate, name_map)
    return compare_forward(reference, candidate, inputs=inputs, name_map=name_map)


def first(result: ForwardComparison) -> LayerComparison:
    assert result.first_divergent is not None, result.verdict
    return result.layers[result.first_divergent]


def largest_factor(result: ForwardComparison) -> float:
    return max(layer.factor for layer in result.layers if layer.factor is not None)
