"""A small image classifier and how it is trained: the original in PyTorch."""

import numpy as np
import torch
from torch import nn


class Block(nn.Module):
    """Two convolutions around a sum."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels, eps=1e-3)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels, eps=1e-3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [N, channels, H, W] in and out."""
        inner = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(inner)))


class Classifier(nn.Module):
    """Images [N, 3, 16, 16] to logits [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([Block(16) for _ in range(3)])
        self.head = nn.Linear(16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits."""
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def model() -> Classifier:
    """The model with fixed initial values."""
    torch.manual_seed(0)
    return Classifier()


def training():
    """The model, its loss and its optimizer."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05)
    return net, nn.CrossEntropyLoss(), optimizer


def inputs() -> dict[str, np.ndarray]:
    """Four images."""
    return {"images": np.random.default_rng(0).standard_normal((4, 3, 16, 16)).astype(np.float32)}


def batch() -> dict[str, np.ndarray]:
    """Eight images and their labels."""
    images = np.random.default_rng(1).standard_normal((8, 3, 16, 16)).astype(np.float32)
    return {"images": images, "label": np.arange(8) % 10}
