"""Made paddle_hapi_*.log with paddlepaddle 3.3.1, which is not needed to test: `train_paddle.py VERBOSE LOG_FREQ`.

every2: 2 2, bar: 1 4, costs: 3 5.
"""

from __future__ import annotations

import sys

import numpy as np
import paddle

SEED, BATCH = 1, 2


class Points(paddle.io.Dataset):
    """Random points of three classes."""

    def __init__(self, count: int) -> None:
        numbers = np.random.default_rng(0)
        self.points = numbers.normal(size=(count, 4)).astype("float32")
        self.classes = numbers.integers(0, 3, size=(count, 1))

    def __getitem__(self, at: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a point and its class."""
        return self.points[at], self.classes[at]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.points)


def main(verbose: int, log_freq: int) -> None:
    """Train for two epochs and evaluate after each."""
    paddle.seed(SEED)
    net = paddle.nn.Linear(4, 3)
    model = paddle.Model(net)
    optimizer = paddle.optimizer.SGD(0.1, parameters=net.parameters())
    model.prepare(optimizer, paddle.nn.CrossEntropyLoss(), paddle.metric.Accuracy())
    sizes = {"batch_size": BATCH, "epochs": 2, "shuffle": False}
    model.fit(Points(25), Points(10), **sizes, log_freq=log_freq, verbose=verbose)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
