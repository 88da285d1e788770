"""Whole trainings with a planted fault, recorded and compared.

Is it named at the right layer, and before the loss departs?
Two small trainings in both frameworks: a convolutional network on pictures of ten patterns, and a Transformer over
the characters of a module of Python's. Torch is the reference, its port in MindSpore starts from the same values and
gets the same data. A fault is planted in the port alone. `layers` are the layers, parameters or quantities that are
right to name.
The loss alone is judged by `align.compare_losses` over the same steps.

Run: python benchmarks/watch_faults.py [NAME ...] [--clean N] [--steps N] [--cost] [--rows] [--json]
  --clean N  N pairs without a fault (other seeds and batches), in the place of the faults
  --cost     what recording costs a step of a model of 100 million parameters in both frameworks
  --rows     two records of 1,000 parameters and 10,000 steps: bytes a row, time and memory to compare
Bars: 18 of 20 at the right layer or group, 16 of them before the loss, no departure in 50 clean pairs; a step costs 3 %
more processor time, 1 % with every=10; 10 million rows in 10 s of it and 1 GB, 60 bytes each.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.parameters import Array

STEPS = 120
RATE, DECAY = 3e-3, 0.05
TURNS = 3


@dataclass(frozen=True)
class Fault:
    """A fault of the port: what it sets, and what is right to name; `quantities` where no layer is."""

    model: str
    layers: tuple[str, ...] = ()
    quantities: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


FAULTS = {
    "rate_of_one_layer": Fault("digits", ("conv2",), settings={"rate_of": ("conv2", 10.0)}),
    "frozen_layer": Fault("digits", ("conv2",), settings={"frozen": "conv2"}),
    "decay_on_norms": Fault("digits", ("bn1", "bn2"), ("update",), settings={"decay_all": True}),
    "momentum_of_batch_norm": Fault("digits", ("bn1",), settings={"bn_momentum": 0.99}),
    "epsilon_of_batch_norm": Fault("digits", ("bn1", "bn2"), settings={"bn_eps": 1e-2}),
    "initial_values_of_a_layer": Fault("digits", ("fc",), settings={"init": "fc"}),
    "epsilon_of_adam": Fault("digits", (), ("update",), settings={"eps": 1e-4}),
    "clipping_off": Fault("digits", (), ("gradient",), settings={"clip": None}),
    "schedule_off_by_an_epoch": Fault("digits", (), ("rate",), settings={"schedule_late": 20}),
    "labels_of_noise": Fault("digits", (), ("data",), settings={"noise_from": 30}),
    "other_order_of_data": Fault("digits", (), ("data",), settings={"order": 7}),
    "pictures_not_scaled": Fault("digits", (), ("data",), settings={"factor": 1 / 255}),
    "relu_for_gelu": Fault("digits", ("act2", "conv2", "bn2", "pool", "fc"), settings={"act": "relu"}),
    "dropout_off": Fault("letters", ("drop",), settings={"dropout": 0.0}),
    "tying_lost": Fault("letters", ("embed", "head"), settings={"untied": True}),
    "scale_of_attention": Fault("letters", ("proj", "block.proj", "attention"), settings={"scale": 1.0}),
    "mask_lost": Fault("letters", ("proj", "block.proj", "attention"), settings={"causal": False}),
    # Both sides scale the loss down for the way back: float16 then holds no gradient of what `up` returns.
    "half_underflow_in_a_layer": Fault("letters", ("up", "ln2"), settings={"half": True, "scale_of_loss": 1e-7}),
    "gradients_not_averaged": Fault(
        "letters", (), ("gradient", "loss", "output gradient"), settings={"loss_factor": 4.0}
    ),
    "positions_shifted": Fault("letters", ("position", "ln1", "drop"), settings={"shift": 1}),
}


# The data, and both models.


def digits(seed: int, batches: int, settings: dict[str, Any]) -> Iterator[tuple[Array, Array]]:
    """Batches of 32 pictures of 8 x 8: one of ten patterns with noise, and its number."""
    patterns = np.random.default_rng(42).random((10, 8, 8))
    generator = np.random.default_rng(seed)
    labels_of_all = generator.integers(0, 10, batches * 32)
    pictures_of_all = patterns[labels_of_all] + 0.5 * generator.standard_normal((batches * 32, 8, 8))
    order = (
        np.random.default_rng(settings["order"]).permutation(batches * 32)
        if "order" in settings
        else np.arange(batches * 32)
    )
    noise = np.random.default_rng(0)
    for batch in range(batches):
        chosen = order[batch * 32 : batch * 32 + 32]
        pictures = (pictures_of_all[chosen, None] * settings.get("factor", 1.0)).astype(np.float32)
        labels = labels_of_all[chosen].astype(np.int32)
        if batch >= settings.get("noise_from", batches):
            labels = np.where(noise.random(32) < 0.3, noise.integers(0, 10, 32), labels).astype(np.int32)
        yield pictures, labels


def letters(seed: int, batches: int, settings: dict[str, Any]) -> Iterator[tuple[Array, Array]]:  # noqa: ARG001
    """Batches of 16 lines of 24 characters, and the characters that follow."""
    text = np.frombuffer(Path(argparse.__file__).read_bytes(), np.uint8).astype(np.int32) % 128
    generator = np.random.default_rng(seed)
    for _ in range(batches):
        starts = generator.integers(0, len(text) - 25, 16)
        lines = text[starts[:, None] + np.arange(25)]
        yield lines[:, :-1], lines[:, 1:]


DATA = {"digits": digits, "letters": letters}


def torch_model(name: str, settings: dict[str, Any]) -> Any:
    """The reference."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Digits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.act1 = nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.GELU()
            self.conv2, self.bn2 = nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.BatchNorm2d(32)
            self.act2, self.pool, self.fc = nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Linear(32, 10)

        def forward(self, x: Any) -> Any:
            x = self.act1(self.bn1(self.conv1(x)))
            return self.fc(self.pool(self.act2(self.bn2(self.conv2(x)))).flatten(1))

    class Letters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.position = nn.Embedding(128, 32), nn.Embedding(24, 32)
            self.drop = nn.Dropout(settings.get("reference_dropout", 0.0))
            self.ln1, self.qkv, self.proj = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
            self.ln2, self.up, self.act, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)
            self.ln3 = nn.LayerNorm(32)

        def forward(self, x: Any) -> Any:
            h = self.drop(self.embed(x) + self.position(torch.arange(x.shape[1])))
            q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(self.ln1(h)).chunk(3, -1))
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + self.proj(seen.transpose(1, 2).flatten(2))
            h = h + self.down(self.act(self.up(self.ln2(h))))
            return self.ln3(h) @ self.embed.weight.T

    return Digits() if name == "digits" else Letters()


def mindspore_model(name: str, settings: dict[str, Any]) -> Any:
    """The port, with its fault."""
    import mindspore
    from mindspore import mint, nn, ops

    class Digits(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            norm = {"momentum": settings.get("bn_momentum", 0.9), "eps": settings.get("bn_eps", 1e-5)}
            self.conv1 = nn.Conv2d(1, 16, 3, pad_mode="pad", padding=1, has_bias=True)
            self.bn1, self.act1 = nn.BatchNorm2d(16, **norm), nn.GELU(approximate=False)
            self.conv2 = nn.Conv2d(16, 32, 3, stride=2, pad_mode="pad", padding=1, has_bias=True)
            self.bn2 = nn.BatchNorm2d(32, eps=settings.get("bn_eps", 1e-5))
            self.act2 = nn.ReLU() if settings.get("act") == "relu" else nn.GELU(approximate=False)
            self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Dense(32, 10)

        def construct(self, x: Any) -> Any:
            x = self.act1(self.bn1(self.conv1(x)))
            return self.fc(self.pool(self.act2(self.bn2(self.conv2(x)))).flatten(start_dim=1))

    class Letters(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.position = nn.Embedding(128, 32), nn.Embedding(24, 32)
            self.drop = nn.Dropout(p=settings.get("dropout", settings.get("reference_dropout", 0.0)))
            self.ln1, self.qkv, self.proj = nn.LayerNorm([32], epsilon=1e-5), nn.Dense(32, 96), nn.Dense(32, 32)
            self.ln2, self.up = nn.LayerNorm([32], epsilon=1e-5), nn.Dense(32, 64)
            self.act, self.down = nn.GELU(approximate=False), nn.Dense(64, 32)
            self.ln3 = nn.LayerNorm([32], epsilon=1e-5)
            self.untied = (
                mindspore.Parameter(self.embed.embedding_table.copy(), "untied") if settings.get("untied") else None
            )

        def construct(self, x: Any) -> Any:
            places = (
                ops.arange(settings.get("shift", 0), x.shape[1]) if settings.get("shift") else ops.arange(x.shape[1])
            )
            if settings.get("shift"):
                places = ops.cat((places, places[-1:]))
            h = self.drop(self.embed(x) + self.position(places))
            parts = mint.chunk(self.qkv(self.ln1(h)), 3, -1)
            q, k, v = (part.reshape(*part.shape[:2], 4, 8).swapaxes(1, 2) for part in parts)
            scores = q @ k.swapaxes(-1, -2) * settings.get("scale", 8**-0.5)
            if settings.get("causal", True):
                scores = scores + ops.triu(ops.full((x.shape[1], x.shape[1]), -1e9, dtype=mindspore.float32), 1)
            seen = ops.softmax(scores, -1) @ v
            h = h + self.proj(seen.swapaxes(1, 2).reshape(h.shape))
            inner = self.up(self.ln2(h))
            if settings.get("half"):
                inner = inner.astype(mindspore.float16).astype(mindspore.float32)
            h = h + self.down(self.act(inner))
            table = self.embed.embedding_table if self.untied is None else self.untied
            return self.ln3(h) @ table.T

    return Digits() if name == "digits" else Letters()


# One training, in a process of its own: the reference or the port.


def train(side: str, name: str, folder: str, seed: int, steps: int, settings: dict[str, Any]) -> None:
    """Train one side and record it; the reference leaves its initial values beside the record."""
    (train_torch if side == "torch" else train_mindspore)(name, Path(folder), seed, steps, settings)


def rate_at(step: int, settings: dict[str, Any]) -> float:
    """Linear warm-up over 20 steps, then cosine."""
    step = max(0, step - settings.get("schedule_late", 0)) if step > 40 else step
    return RATE * min(1.0, (step + 1) / 20) * (0.5 + 0.5 * float(np.cos(np.pi * min(1.0, step / 200))))


def train_torch(name: str, folder: Path, seed: int, steps: int, settings: dict[str, Any]) -> None:
    """The reference."""
    import torch

    import align

    torch.manual_seed(seed)
    model = torch_model(name, settings)
    np.savez(folder / "initial.npz", **{key: value.numpy() for key, value in model.state_dict().items()})
    plain = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": [p for p in model.parameters() if p.ndim > 1]}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, weight_decay=DECAY, eps=1e-8)
    with align.watch(model, optimizer, folder / "torch") as watch:
        for step, (x, y) in enumerate(DATA[name](seed, steps, {})):
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step, {})
            optimizer.zero_grad()
            output = model(torch.from_numpy(x).long() if x.dtype == np.int32 else torch.from_numpy(x))
            loss = torch.nn.functional.cross_entropy(output.flatten(0, -2), torch.from_numpy(y).long().flatten())
            (loss * settings.get("scale_of_loss", 1.0)).backward()
            for parameter in model.parameters():
                parameter.grad /= settings.get("scale_of_loss", 1.0)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            watch.step(loss, (x, y))


def train_mindspore(name: str, folder: Path, seed: int, steps: int, settings: dict[str, Any]) -> None:
    """The port; AdamW is written out, so that its updates are torch's."""
    import mindspore
    from mindspore import nn, ops

    import align

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mindspore.set_seed(seed + 1)
    model = mindspore_model(name, settings)
    model.set_train()
    load(model, dict(np.load(folder / "initial.npz")), settings)
    if frozen := settings.get("frozen"):
        for parameter in model.get_parameters():
            parameter.requires_grad = parameter.requires_grad and not parameter.name.startswith(f"{frozen}.")
    special, factor = settings.get("rate_of", ("", 1.0))
    optimizer = adamw(model.trainable_params(), settings, special, factor)
    loss_function = nn.CrossEntropyLoss()

    def forward(x: Any, y: Any) -> Any:
        output = model(x)
        loss = loss_function(output.reshape(-1, output.shape[-1]), y.reshape(-1)) * settings.get("loss_factor", 1.0)
        return loss * settings.get("scale_of_loss", 1.0)

    gradients_of = mindspore.value_and_grad(forward, None, optimizer.parameters)
    clip = settings.get("clip", 0.5)
    with align.watch(model, optimizer, folder / "mindspore") as watch:
        for step, (x, y) in enumerate(DATA[name](seed, steps, settings)):
            loss, gradients = gradients_of(mindspore.Tensor(x), mindspore.Tensor(y))
            loss, *gradients = (one / settings.get("scale_of_loss", 1.0) for one in (loss, *gradients))
            if clip is not None:
                gradients = ops.clip_by_global_norm(tuple(gradients), clip)
            optimizer.learning_rate.set_data(mindspore.Tensor(rate_at(step, settings), mindspore.float32))
            optimizer(tuple(gradients))
            watch.step(loss, (x, y))


def load(model: Any, values: dict[str, Array], settings: dict[str, Any]) -> None:
    """The reference's values by the names of the port."""
    import mindspore

    renamed = {
        "bn": {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
    }
    renamed |= {
        "ln": {"weight": "gamma", "bias": "beta"},
        "em": {"weight": "embedding_table"},
        "po": {"weight": "embedding_table"},
    }
    generator = np.random.default_rng(3)
    for name, value in values.items():
        layer, _, attribute = name.rpartition(".")
        own = renamed.get(layer[:2], {}).get(attribute, attribute)
        if attribute == "num_batches_tracked":
            continue
        if layer == settings.get("init") and attribute == "weight":
            value = generator.uniform(-0.3, 0.3, value.shape).astype(np.float32)  # noqa: PLW2901
        model.parameters_dict()[f"{layer}.{own}"].set_data(mindspore.Tensor(value))
    if settings.get("untied"):
        model.untied.set_data(mindspore.Tensor(values["embed.weight"]))


def adamw(parameters: Any, settings: dict[str, Any], special: str, factor: float) -> Any:
    """Torch's AdamW as an optimizer of MindSpore's own kind."""
    import mindspore
    from mindspore import nn, ops

    class AdamW(nn.Optimizer):
        def __init__(self) -> None:
            super().__init__(RATE, parameters)
            self.first = [mindspore.Parameter(ops.zeros_like(p), f"m{n}") for n, p in enumerate(self.parameters)]
            self.second = [mindspore.Parameter(ops.zeros_like(p), f"v{n}") for n, p in enumerate(self.parameters)]
            self.count = 0

        def construct(self, gradients: Any) -> Any:
            self.count += 1
            rate = float(self.learning_rate)
            for parameter, gradient, m, v in zip(self.parameters, gradients, self.first, self.second, strict=True):
                own = rate * (factor if special and parameter.name.startswith(f"{special}.") else 1.0)
                decays = parameter.ndim > 1 or settings.get("decay_all", False)
                m.set_data(0.9 * m + 0.1 * gradient)
                v.set_data(0.999 * v + 0.001 * gradient * gradient)
                size = ops.sqrt(v / (1 - 0.999**self.count)) + settings.get("eps", 1e-8)
                moved = m / (1 - 0.9**self.count) / size
                parameter.set_data(parameter * (1 - own * (DECAY if decays else 0.0)) - own * moved)
            return True

    return AdamW()


# What the comparison says of it.


def compared(model: str, seed: int, steps: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train both sides, compare the records, and the losses alone: what departs first, and when the loss does."""
    import align
    from align.loops.watched_folder import WatchedTraining

    shared = {"reference_dropout": 0.1} if "dropout" in settings else {}
    with tempfile.TemporaryDirectory() as folder:
        for side in ("torch", "mindspore"):
            job = [side, model, folder, seed, steps, settings | shared]
            subprocess.run([sys.executable, __file__, "--train", json.dumps(job)], check=True)
        records = [Path(folder, side) for side in ("torch", "mindspore")]
        result = align.compare_watched(*records)
        logs = []
        for record in records:
            losses = WatchedTraining(record).step_figures(("loss",))["loss"].tolist()
            logs.append(record.with_suffix(".csv"))
            lines = "".join(f"{step},{loss!r}\n" for step, loss in enumerate(losses, 1))
            logs[-1].write_text(f"step,loss\n{lines}", encoding="utf-8")
        divergent = align.compare_losses(*logs).first_divergent_step
    first = result.departures[0] if result.departures else None
    return {
        "says": result.says,
        "step": None if first is None else first.step,
        "quantity": None if first is None else first.quantity,
        "layer": None if first is None else first.layer,
        "name": None if first is None else first.name,
        "loss_step": None if divergent is None else int(divergent) - 1,
    }


def is_right(fault: Fault, found: dict[str, Any]) -> bool:
    """Whether a layer or a quantity that is right is what departs first."""
    if found["step"] is None:
        return False
    by_layer = any(found["layer"] == layer or found["name"].startswith(f"{layer}.") for layer in fault.layers)
    return by_layer or (not fault.layers and found["quantity"] in fault.quantities)


def faults_found(names: list[str], steps: int) -> list[dict[str, Any]]:
    """A row a fault."""
    rows = []
    for name in names:
        fault = FAULTS[name]
        found = compared(fault.model, 1, steps, fault.settings)
        early = found["step"] is not None and (found["loss_step"] is None or found["step"] <= found["loss_step"])
        before = found["step"] is not None and (found["loss_step"] is None or found["step"] < found["loss_step"])
        rows.append({"fault": name, **found, "right": is_right(fault, found), "early": early, "before": before})
        print(
            f"{name:28} {'right' if rows[-1]['right'] else 'WRONG'} loss {found['loss_step']}: {found['says']}",
            flush=True,
        )
    return rows


def clean_pairs(first: int, count: int, steps: int) -> list[dict[str, Any]]:
    """Pairs without a fault: both models in turn, each with other values and other data; a third with dropout."""
    rows = []
    for number in range(first, first + count):
        model = ("digits", "letters")[number % 2]
        settings = {"reference_dropout": 0.1} if number % 6 == 5 else {}
        rows.append(compared(model, 100 + number, steps, settings))
        print(f"clean {number} {model}: {rows[-1]['says']}", flush=True)
    return rows


# What it costs.


def cost_of_a_step(side: str) -> tuple[float, float, float]:
    """A step of a model of 100 million parameters: its seconds, and the shares by which a record lengthens it.

    The first share is that of a record of each step, the second that of one with every=10.
    """
    from align.loops.thresholds import FULL_EVERY, LARGE_EVERY

    job = subprocess.run([sys.executable, __file__, "--cost-of", side], check=True, capture_output=True, text=True)
    seconds: dict[str, float] = json.loads(job.stdout.splitlines()[-1])
    light, norms, full = (seconds[name] / seconds["rest"] for name in ("light", "norms", "full"))
    each = light + (norms - light) / LARGE_EVERY
    return seconds["rest"], each + (full - norms) / FULL_EVERY, norms / 10 + (full - norms) / FULL_EVERY


def take_steps(side: str) -> None:
    """Print the processor's seconds of recording a step of each kind, and of the rest of a step.

    What the record does is timed on its own threads inside the steps that are recorded: two whole steps on a busy
    machine differ by more than it takes.
    """
    import align
    from align.loops.record_training import Watch
    from align.models.loop_watcher import LoopHooks

    recording = [0.0]
    for owner, name in ((LoopHooks, "_before"), (LoopHooks, "_after"), *((Watch, one) for one in RECORDING)):
        setattr(owner, name, _timed(getattr(owner, name), recording))
    step, model, optimizer = (torch_step if side == "torch" else mindspore_step)()
    step(None)
    seconds: dict[str, list[float]] = {"rest": [], "full": [], "light": [], "norms": []}
    with tempfile.TemporaryDirectory() as folder, align.watch(model, optimizer, folder, full=4) as watch:
        for turn in range(TURNS + 1):
            for kind in ("full", "light", "norms", "light"):
                recording[0], start = 0.0, time.process_time()
                step(watch)
                if turn:  # the first ones take memory for copies
                    seconds["rest"].append(time.process_time() - start - recording[0])
                    seconds[kind].append(recording[0])
    print(json.dumps({name: float(np.median(values)) for name, values in seconds.items()}))


RECORDING = ("arrived", "_before_update", "step")  # with the hooks, all that a record does in a step


def _timed(function: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[0] += time.thread_time() - start

    return timed


def torch_step() -> tuple[Callable[[Any], None], Any, Any]:
    """A Transformer of 12 layers of 768, over 4 x 128 tokens."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, dropout=0.0)
    model = nn.Sequential(nn.Embedding(20000, 768), nn.TransformerEncoder(layer, 12), nn.Linear(768, 1000))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens, target = torch.randint(0, 20000, (4, 128)), torch.randint(0, 1000, (4, 128))

    def step(watch: Any) -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        if watch is not None:
            watch.step(loss, (tokens, target))

    return step, model, optimizer


def mindspore_step() -> tuple[Callable[[Any], None], Any, Any]:
    """The same in MindSpore."""
    import mindspore
    from mindspore import nn

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, dropout=0.0)
    model = nn.SequentialCell(nn.Embedding(20000, 768), nn.TransformerEncoder(layer, 12), nn.Dense(768, 1000))
    model.set_train()
    optimizer = nn.AdamWeightDecay(model.trainable_params(), 1e-4)
    generator = np.random.default_rng(0)
    tokens = mindspore.Tensor(generator.integers(0, 20000, (4, 128)).astype(np.int32))
    target = mindspore.Tensor(generator.integers(0, 1000, (4, 128)).astype(np.int32))
    loss_function = nn.CrossEntropyLoss()
    gradients_of = mindspore.value_and_grad(
        lambda x, y: loss_function(model(x).reshape(-1, 1000), y.reshape(-1)), None, optimizer.parameters
    )

    def step(watch: Any) -> None:
        loss, gradients = gradients_of(tokens, target)
        optimizer(gradients)
        loss.asnumpy()
        if watch is not None:
            watch.step(loss, (tokens, target))

    return step, model, optimizer


def many_rows() -> dict[str, float]:
    """Two records of 1,000 parameters over 10,000 steps, written as they are, and compared in a process of its own."""
    from align.core.parameters import Module, Parameter, ParameterSet
    from align.loops.watched_folder import COUNTS, FIGURES, TABLES, Segment, WatchedHead, write_head, write_segment
    from align.traces.manifest import write_model

    names = [f"layers.{number}.weight" for number in range(1000)]
    modules = tuple(Module(name[:-7], ("torch.nn.Linear",), (name,)) for name in names)
    parameters = tuple(Parameter(name, (64, 64), "float32", name[:-7], "weight", True) for name in names)
    generator = np.random.default_rng(0)
    base = generator.random((1000, 7)).astype(np.float32) + 0.5
    with tempfile.TemporaryDirectory() as folder:
        for record in ("a", "b"):
            home = Path(folder, record, "rank_0")
            home.mkdir(parents=True)
            write_head(home, WatchedHead(record, "torch", 0, 1, 1, (0,), {}))
            write_model(home, ParameterSet(record, "torch", parameters, modules), [])
            for first in range(0, 10_000, 100):
                segments = {table: Segment() for table in TABLES}
                for step in range(first, first + 100):
                    rounding = 1 + 1e-6 * (record == "b") * generator.standard_normal(base.shape)
                    values = (np.random.default_rng(step).normal(base, 0.1 * base) * rounding).astype(np.float32)
                    columns = ("weight", "gradient", "update", "mean", "largest", "zeros", "rate")
                    for name, row in zip(names, values.tolist(), strict=True):
                        segments["parameters"].add(step, name, dict(zip(columns, row, strict=True)) | {"nonfinite": 0})
                    figures = dict.fromkeys(FIGURES["steps"], 1.0) | dict.fromkeys(COUNTS["steps"], 1)
                    segments["steps"].add(step, None, figures)
                write_segment(home, 0, segments)
        size = sum(path.stat().st_size for path in Path(folder, "a").rglob("parameters-*"))
        code = f"import align; align.compare_watched({folder + '/a'!r}, {folder + '/b'!r})"
        subprocess.run([sys.executable, "-c", code], check=True)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, peak = children.ru_utime + children.ru_stime, children.ru_maxrss / 1024
    return {"bytes_a_row": size / 1e7, "seconds": seconds, "peak_mib": peak}


def main() -> int:
    """Print a line a fault, and the shares; return 1 where a bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--clean", type=int, default=0, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="with --clean: the number of the first pair")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--cost-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(*json.loads(options.train))
        return 0
    if options.cost_of:
        take_steps(options.cost_of)
        return 0
    if options.cost:
        dear = False
        for side in ("torch", "mindspore"):
            bare, every, tenth = cost_of_a_step(side)
            print(f"{side}: a step of {bare:.2f} s costs {every:.1%} more, {tenth:.1%} with every=10")
            dear |= every > 0.03 or tenth > 0.01
        return int(dear)
    if options.rows:
        figures = many_rows()
        print(json.dumps(figures))
        return int(figures["bytes_a_row"] > 60 or figures["seconds"] > 10 or figures["peak_mib"] > 1000)
    if options.clean:
        rows = clean_pairs(options.first, options.clean, options.steps)
        departed = sum(row["step"] is not None for row in rows)
        print(json.dumps(rows) if options.json else f"{departed} departures in {len(rows)} clean pairs")
        return int(departed > 0)
    rows = faults_found(options.names or [*FAULTS], options.steps)
    right, before = sum(row["right"] for row in rows), sum(row["before"] for row in rows)
    early = sum(row["early"] for row in rows)
    if options.json:
        print(json.dumps(rows))
    print(f"{right} of {len(rows)} at the right place, {before} before the loss, {early} no later")
    return int(right < 0.9 * len(rows) or before < 0.8 * len(rows))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
