"""A few real training steps of the ResNet-18s on the same data, each side logging in its own format.

python train_resnet.py FOLDER               # makes resnet18.pth, converts it into resnet18.ckpt, and trains both sides
python train_resnet.py FOLDER --port-only   # trains the port alone again: its log is written anew

The logs are torch.jsonl, one JSON object a step, and mindspore.log, what mindspore.train.LossMonitor prints.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import resnet

import align

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


def train_torch(checkpoint: Path) -> None:
    """Train the transformers model; print one JSON object a step."""
    import torch

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


def train_mindspore(checkpoint: Path) -> None:
    """Train the mindcv model with `mindspore.train.Model`; its LossMonitor prints one line a step."""
    import mindspore as ms
    from mindspore import nn
    from mindspore.dataset import GeneratorDataset
    from mindspore.train import LossMonitor, Model

    net = resnet.mindspore_model()
    ms.load_param_into_net(net, ms.load_checkpoint(str(checkpoint)), strict_load=True)
    data = GeneratorDataset(batches(), ["image", "label"], shuffle=False)
    optimizer = nn.SGD(net.trainable_params(), learning_rate=LEARNING_RATE)
    loss = nn.CrossEntropyLoss()
    Model(net, loss, optimizer).train(1, data, callbacks=[LossMonitor(1)], dataset_sink_mode=False)


def make_checkpoints(folder: Path) -> None:
    """Write the torch checkpoint, and what it is converted into, which is read back and compared bit for bit."""
    resnet.save_checkpoint(folder / "resnet18.pth")
    written = align.convert_checkpoint(
        folder / "resnet18.pth",
        folder / "resnet18.ckpt",
        source_model=f"{resnet.__file__}:torch_model",
        target_model=f"{resnet.__file__}:mindspore_model",
        overwrite=True,
    )
    print(written.verdict.reason)


def main() -> None:
    """Do what the command line asks for."""
    folder, port_only = Path(sys.argv[1]), "--port-only" in sys.argv
    if not port_only:
        make_checkpoints(folder)
        with (folder / "torch.jsonl").open("w") as log, redirect_stdout(log):
            train_torch(folder / "resnet18.pth")
    with (folder / "mindspore.log").open("w") as log, redirect_stdout(log):
        train_mindspore(folder / "resnet18.ckpt")


if __name__ == "__main__":
    main()
