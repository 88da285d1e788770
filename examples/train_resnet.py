"""A few real training steps of the ResNet-18s on the same data, each side logging in its own format.

python train_resnet.py torch resnet18.pth > torch.jsonl          # writes the checkpoint first; one JSON object a step
python train_resnet.py mindspore resnet18.ckpt > mindspore.log   # what mindspore.train.LossMonitor prints
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import resnet

STEPS = 6
BATCH = 2  # few, so that the one wrong layer shows in each loss
LEARNING_RATE = 1e-7  # rounding grows by hundreds a step in so deep a net on so small a batch


def batches() -> list[tuple[Any, Any]]:
    """STEPS batches of images (float32, BATCH x 3 x 64 x 64) and labels (int32), the same in every process."""
    generator = np.random.default_rng(resnet.SEED + 1)
    shape = (BATCH, 3, resnet.IMAGE, resnet.IMAGE)
    return [
        (generator.standard_normal(shape).astype(np.float32), generator.integers(0, 1000, BATCH).astype(np.int32))
        for _ in range(STEPS)
    ]


def train_torch(checkpoint: str) -> None:
    """Write the checkpoint, and train the transformers model from it; print one JSON object a step."""
    import torch

    resnet.save_checkpoint(checkpoint)
    model = resnet.torch_model()
    model.load_state_dict(torch.load(checkpoint, weights_only=True))
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for step, (images, labels) in enumerate(batches()):
        logits = model(torch.from_numpy(images)).logits
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(json.dumps({"step": step, "loss": loss.item(), "lr": LEARNING_RATE}), flush=True)


def train_mindspore(checkpoint: str) -> None:
    """Train the mindcv model with `mindspore.train.Model`; its LossMonitor prints one line a step."""
    import mindspore as ms
    from mindspore import nn
    from mindspore.dataset import GeneratorDataset
    from mindspore.train import LossMonitor, Model

    net = resnet.mindspore_model()
    ms.load_param_into_net(net, ms.load_checkpoint(checkpoint), strict_load=True)
    data = GeneratorDataset(batches(), ["image", "label"], shuffle=False)
    optimizer = nn.SGD(net.trainable_params(), learning_rate=LEARNING_RATE)
    loss = nn.CrossEntropyLoss()
    Model(net, loss, optimizer).train(1, data, callbacks=[LossMonitor(1)], dataset_sink_mode=False)


if __name__ == "__main__":
    {"torch": train_torch, "mindspore": train_mindspore}[sys.argv[1]](sys.argv[2])
