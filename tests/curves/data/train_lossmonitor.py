"""Train a tiny net with MindSpore's own LossMonitor and TimeMonitor, so that tests can read what they print.

Arguments: epochs, steps per epoch, interval, then any of `time`, `lr=0.1` and `shift=0.2` (added to the first weights).
"""

import sys

import numpy as np


def train(epochs: int, steps: int, interval: int, options: dict[str, str]) -> None:
    import mindspore as ms
    from mindspore import nn
    from mindspore.dataset import GeneratorDataset
    from mindspore.train import LossMonitor, Model, TimeMonitor

    rng = np.random.default_rng(1)
    weight = rng.normal(size=(2, 4)).astype(np.float32) + np.float32(options.get("shift", 0.0))
    rows = [(rng.normal(size=4).astype(np.float32), rng.normal(size=2).astype(np.float32)) for _ in range(steps * 2)]
    data = GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(2)
    net = nn.Dense(4, 2, weight_init=ms.Tensor(weight), bias_init="zeros")
    model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), float(options.get("lr", 0.05))))
    callbacks = [LossMonitor(interval)] + ([TimeMonitor()] if "time" in options else [])
    model.train(epochs, data, callbacks=callbacks, dataset_sink_mode=False)


if __name__ == "__main__":
    train(*map(int, sys.argv[1:4]), dict(argument.partition("=")[::2] for argument in sys.argv[4:]))
