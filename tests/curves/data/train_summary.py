"""Train a tiny net with MindSpore's own SummaryCollector beside LossMonitor, so that tests can read what both write.

Argument: the folder for the summary.
"""

import sys

import numpy as np


def train(folder: str) -> None:
    import mindspore as ms
    from mindspore import nn
    from mindspore.dataset import GeneratorDataset
    from mindspore.train import LossMonitor, Model, SummaryCollector

    rng = np.random.default_rng(1)
    rows = [(rng.normal(size=4).astype(np.float32), rng.normal(size=2).astype(np.float32)) for _ in range(8)]
    data = GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(2)
    weight = ms.Tensor(rng.normal(size=(2, 4)).astype(np.float32))
    net = nn.Dense(4, 2, weight_init=weight, bias_init="zeros")
    model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.05))
    collector = SummaryCollector(folder, collect_freq=1, collect_specified_data={"collect_metric": True})
    model.train(2, data, callbacks=[LossMonitor(1), collector], dataset_sink_mode=False)


if __name__ == "__main__":
    train(sys.argv[1])
