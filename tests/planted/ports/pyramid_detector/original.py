"""A detector of one stage: a small backbone, a feature pyramid, heads that all levels share."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class ConvBN(nn.Sequential):
    def __init__(self, inner, outer, stride):
        super().__init__(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(inplace=True)
        )


class Pyramid(nn.Module):
    def __init__(self, widths, width):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(one, width, 1) for one in widths)
        self.output = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in widths)

    def forward(self, features):
        found = [conv(one) for conv, one in zip(self.lateral, features, strict=True)]
        for level in (1, 0):
            found[level] = found[level] + F.interpolate(found[level + 1], size=found[level].shape[-2:], mode="nearest")
        return [conv(one) for conv, one in zip(self.output, found, strict=True)]


class Head(nn.Module):
    def __init__(self, width, anchors, classes):
        super().__init__()
        self.classes = classes
        self.tower = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.cls = nn.Conv2d(width, anchors * classes, 3, padding=1)
        self.box = nn.Conv2d(width, anchors * 4, 3, padding=1)

    def forward(self, features):
        scores, boxes = [], []
        for one in features:
            one = F.relu(self.norm(self.tower(one)))
            scores.append(self.cls(one).permute(0, 2, 3, 1).reshape(one.shape[0], -1, self.classes))
            boxes.append(self.box(one).permute(0, 2, 3, 1).reshape(one.shape[0], -1, 4))
        return torch.cat(scores, 1).sigmoid(), torch.cat(boxes, 1)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBN(3, 8, 2)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.stages = nn.ModuleList([ConvBN(8, 16, 1), ConvBN(16, 24, 2), ConvBN(24, 32, 2)])
        self.fpn = Pyramid((16, 24, 32), 16)
        self.head = Head(16, 2, 5)

    def forward(self, x):
        x = self.pool(self.stem(x))
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        scores, boxes = self.head(self.fpn(features))
        centre, size = boxes.split(2, -1)
        return scores, torch.cat([centre - size.exp() / 2, centre + size.exp() / 2], -1)


def build():
    torch.manual_seed(0)
    net = Detector()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return net


def inputs():
    return {"x": np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype(np.float32)}
