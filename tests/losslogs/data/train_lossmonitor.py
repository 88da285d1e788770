"""Train a tiny net with MindSpore's own LossMonitor and TimeMonitor, so that a test can read what they print."""

import sys

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import LossMonitor, Model, TimeMonitor

epochs, steps, interval = map(int, sys.argv[1:4])
ms.set_seed(1)
rng = np.random.default_rng(1)
rows = [(rng.normal(size=4).astype(np.float32), rng.normal(size=2).astype(np.float32)) for _ in range(steps * 2)]
data = GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(2)
net = nn.Dense(4, 2)
model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.05))
callbacks = [LossMonitor(interval)] + ([TimeMonitor()] if "time" in sys.argv else [])
model.train(epochs, data, callbacks=callbacks, dataset_sink_mode=False)
