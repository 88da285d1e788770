"""A ResNet twice: `transformers` in PyTorch and `mindcv` in MindSpore, two implementations by different people.

Nothing is downloaded: the torch model is built from its configuration with seeded weights, and its BatchNorm
statistics are calibrated on seeded images, so that its output really depends on the input (with freshly initialised
statistics a deep net fades to a constant, and every port "agrees").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    import mindspore
    import torch

SEED = 20260229
DEPTH = 18  # that of the demo; 50 is the other one that is known here
IMAGE = 64
BATCH = 4
LEARNING_RATE, MOMENTUM = 0.02, 0.9
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def torch_model(depth: int = DEPTH) -> torch.nn.Module:
    """ResNet of transformers with seeded weights; BatchNorm statistics are the fresh ones until calibrated."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(SEED)
    form = {18: {"layer_type": "basic", "depths": (2, 2, 2, 2), "hidden_sizes": (64, 128, 256, 512)}, 50: {}}[depth]
    return ResNetForImageClassification(ResNetConfig(num_labels=1000, **form)).eval()


def mindspore_model(depth: int = DEPTH) -> mindspore.nn.Cell:
    """ResNet of mindcv as published."""
    import mindcv

    return mindcv.create_model(f"resnet{depth}")


def inputs() -> dict[str, Any]:
    """Images, float32 of shape (BATCH, 3, IMAGE, IMAGE), standard normal."""
    return {"pixel_values": _images(BATCH)}


def torch_training() -> tuple[Any, ...]:
    """The torch model with its loss and optimizer, in training mode."""
    import torch

    model, cross_entropy = torch_model().train(), torch.nn.CrossEntropyLoss()

    def loss(outputs: Any, label: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = cross_entropy(outputs.logits, label)
        return value

    return model, loss, torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=MOMENTUM)


def mindspore_training() -> tuple[Any, ...]:
    """The published mindcv model with the same loss and optimizer."""
    from mindspore import nn

    model = mindspore_model()
    return model, nn.CrossEntropyLoss(), nn.Momentum(model.trainable_params(), LEARNING_RATE, MOMENTUM)


def training_batch() -> dict[str, Any]:
    """Two images as of `inputs`, and their labels."""
    return {"pixel_values": _images(2), "label": np.array([17, 400])}


def torch_data() -> Any:
    """A loader of torch over pieces of a photograph: scaled to 0 to 1, normalised, in batches of 6."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    pictures, labels = _photographs()
    values = (torch.from_numpy(pictures).permute(0, 3, 1, 2) / 255 - _column(MEAN)) / _column(STD)
    return DataLoader(TensorDataset(values, torch.from_numpy(labels)), batch_size=6)


def mindspore_data() -> Any:
    """The same by `mindspore.dataset`."""
    from mindspore.dataset import NumpySlicesDataset, vision

    pictures, labels = _photographs()
    dataset = NumpySlicesDataset({"image": pictures, "label": labels}, shuffle=False)
    steps = [vision.ToTensor(), vision.Normalize(MEAN, STD, is_hwc=False)]
    return dataset.map(steps, "image").batch(6)


def save_checkpoint(path: str | Path) -> None:
    """Write the torch model with distinct norm weights and calibrated statistics as a `.pth` file."""
    import torch

    model = torch_model()
    generator = torch.Generator().manual_seed(SEED)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    with torch.no_grad():
        for norm in norms:
            norm.weight.add_(0.1 * torch.randn(norm.weight.shape, generator=generator))
            norm.bias.add_(0.1 * torch.randn(norm.bias.shape, generator=generator))
            norm.momentum = None  # cumulative average: the statistics become those of the calibration images
        model.train()
        model(torch.from_numpy(_images(16)))
    torch.save(model.eval().state_dict(), path)


def _images(count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(SEED).standard_normal((count, 3, IMAGE, IMAGE)).astype(np.float32)


def _column(values: list[float]) -> Any:
    import torch

    return torch.tensor(values).reshape(3, 1, 1)


def _photographs() -> tuple[Any, Any]:
    """24 pieces of the photograph that matplotlib brings, (24, IMAGE, IMAGE, 3) bytes, and a label for each."""
    from matplotlib.cbook import get_sample_data
    from PIL import Image

    photograph = np.asarray(Image.open(get_sample_data("grace_hopper.jpg", asfileobj=False)))
    places = [(top, left) for top in range(40, 540, 80) for left in range(60, 380, 80)][:24]
    pieces = [photograph[top : top + IMAGE, left : left + IMAGE] for top, left in places]
    return np.stack(pieces), np.arange(24) * 37 % 1000
