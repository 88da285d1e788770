"""Train a small classifier with MindSpore, once for each planted fault, in one process: its import takes longest.

Arguments: the .npz file with data, first weights and order of batches, then the folder for the logs, then faults.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH, MOMENTUM = 32, 0.9


@dataclass(frozen=True)
class Training:
    """The settings of a training, by default those of the original. `odd_at` is a step with inputs times `odd`."""

    optimizer: str = "sgd"
    lr: float = 0.1
    decay_at: int = 200
    weight_decay: float = 5e-4
    epsilon: float = 1e-8
    trained: tuple[bool, bool] = (True, True)
    dropout: float = 0.0
    shuffle: int = 0
    odd_at: int = -1
    odd: float = 1.0

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        return self.lr * (1.0 if step < self.decay_at else 0.1)

    def batches(self, data: dict[str, Any]) -> Iterator[tuple[float, Any, Any]]:
        """Yield (learning rate, inputs, labels) of each step."""
        order = data["order"]
        if self.shuffle:
            order = np.random.default_rng(self.shuffle).permuted(order, axis=1)
        for step, rows in enumerate(order.reshape(-1, BATCH)):
            factor = np.float32(self.odd if step == self.odd_at else 1.0)
            yield self.rate(step), data["x"][rows] * factor, data["y"][rows]


ADAM = Training(optimizer="adam", lr=0.003, weight_decay=0.0)
FAULTS = {
    "clean": Training(),
    "clean Adam": ADAM,
    "lr": Training(lr=0.2),
    "weight decay": Training(weight_decay=0.0),
    "epsilon": Training(optimizer="adam", lr=0.003, weight_decay=0.0, epsilon=1e-2),
    "first layer frozen": Training(trained=(False, True)),
    "all frozen": Training(trained=(False, False)),
    "shuffling": Training(shuffle=5),
    "early decay": Training(decay_at=150),
    "odd batch": Training(odd_at=120, odd=30.0),
    "huge lr": Training(lr=5.0),
}


def write_log(path: Path, losses: list[float], training: Training) -> None:
    """Write what both sides write: the loss and the learning rate of every step, from 0."""
    lines = ({"step": step, "loss": loss, "lr": training.rate(step)} for step, loss in enumerate(losses))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def train(training: Training, data: dict[str, Any], compiled: dict[Training, Any]) -> list[float]:
    """Return the loss of each step; trainings that differ in rates and batches only share a net that is `compiled`."""
    import mindspore as ms

    alike = replace(training, lr=0.1, decay_at=200, shuffle=0, odd_at=-1, odd=1.0)
    if alike not in compiled:
        step = _build(alike, data)
        compiled[alike] = step, {one.name: one.asnumpy().copy() for one in step.get_parameters()}
    step, first = compiled[alike]
    first |= {"learning_rate": np.array([rate for rate, _, _ in training.batches(data)], np.float32)}
    for parameter in step.get_parameters():
        parameter.set_data(ms.Tensor(first[parameter.name]))
    return [float(step(ms.Tensor(x), ms.Tensor(y)).asnumpy()) for _, x, y in training.batches(data)]


def _build(training: Training, data: dict[str, Any]) -> Any:
    import mindspore as ms
    from mindspore import nn

    ms.set_context(mode=ms.GRAPH_MODE)
    first, last = (
        nn.Dense(w.shape[1], w.shape[0], weight_init=ms.Tensor(w), bias_init="zeros") for w in (data["w1"], data["w2"])
    )
    for layer, trained in zip((first, last), training.trained, strict=True):
        for parameter in layer.get_parameters():
            parameter.requires_grad = trained
    step = nn.WithLossCell(nn.SequentialCell(first, nn.ReLU(), last), nn.CrossEntropyLoss())
    parameters, rates = step.trainable_params(), [rate for rate, _, _ in training.batches(data)]
    if parameters and training.optimizer == "sgd":
        settings = {"momentum": MOMENTUM, "weight_decay": training.weight_decay}
        step = nn.TrainOneStepCell(step, nn.SGD(parameters, rates, **settings))
    elif parameters:
        step = nn.TrainOneStepCell(step, nn.Adam(parameters, rates, eps=training.epsilon))
    return step.set_train()


if __name__ == "__main__":
    with np.load(sys.argv[1]) as stored:
        given = dict(stored)
    steps: dict[Training, Any] = {}
    for name in sys.argv[3:]:
        write_log(Path(sys.argv[2], f"{name}.jsonl"), train(FAULTS[name], given, steps), FAULTS[name])
