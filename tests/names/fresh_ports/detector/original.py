"""One-stage detector without anchors: residual backbone, feature pyramid, one head for all levels."""

import torch
import torch.nn.functional as F
from torch import nn


class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + identity)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(BasicBlock(16, 24, 2), BasicBlock(24, 24))
        self.layer2 = nn.Sequential(BasicBlock(24, 32, 2))
        self.layer3 = nn.Sequential(BasicBlock(32, 32, 2), BasicBlock(32, 32))

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        c2 = self.layer1(x)
        c3 = self.layer2(c2)
        return c2, c3, self.layer3(c3)


class FPN(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.inner_blocks = nn.ModuleList([nn.Conv2d(c, out_channels, 1) for c in in_channels])
        self.layer_blocks = nn.ModuleList([nn.Conv2d(out_channels, out_channels, 3, padding=1) for _ in in_channels])
        self.extra = nn.Conv2d(out_channels, out_channels, 3, stride=2, padding=1)

    def forward(self, features):
        last = self.inner_blocks[-1](features[-1])
        results = [self.layer_blocks[-1](last)]
        for n in range(len(features) - 2, -1, -1):
            lateral = self.inner_blocks[n](features[n])
            last = lateral + F.interpolate(last, size=lateral.shape[-2:], mode="nearest")
            results.insert(0, self.layer_blocks[n](last))
        results.append(self.extra(F.relu(results[-1])))
        return results


class Scale(nn.Module):
    def __init__(self, value=1.0):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(value))

    def forward(self, x):
        return x * self.scale


def tower(channels, depth, groups):
    layers = []
    for _ in range(depth):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(groups, channels), nn.ReLU()]
    return nn.Sequential(*layers)


class DetectionHead(nn.Module):
    def __init__(self, channels, num_classes, num_levels, depth=2, groups=6):
        super().__init__()
        self.cls_tower = tower(channels, depth, groups)
        self.bbox_tower = tower(channels, depth, groups)
        self.ctr_tower = tower(channels, depth, groups)
        self.cls_logits = nn.Conv2d(channels, num_classes, 3, padding=1)
        self.bbox_pred = nn.Conv2d(channels, 4, 3, padding=1)
        self.centerness = nn.Conv2d(channels, 1, 3, padding=1)
        self.scales = nn.ModuleList([Scale() for _ in range(num_levels)])

    def forward(self, levels):
        logits, boxes, centers = [], [], []
        for x, scale in zip(levels, self.scales, strict=True):
            logits.append(self.cls_logits(self.cls_tower(x)).flatten(2).transpose(1, 2))
            distance = torch.exp(scale(self.bbox_pred(self.bbox_tower(x))))
            boxes.append(distance.flatten(2).transpose(1, 2))
            centers.append(self.centerness(self.ctr_tower(x)).flatten(1))
        return torch.cat(logits, dim=1), torch.cat(boxes, dim=1), torch.cat(centers, dim=1)


class Detector(nn.Module):
    def __init__(self, num_classes=4, channels=24):
        super().__init__()
        self.backbone = Backbone()
        self.fpn = FPN((24, 32, 32), channels)
        self.head = DetectionHead(channels, num_classes, num_levels=4)

    def forward(self, images):
        return self.head(self.fpn(self.backbone(images)))


@torch.no_grad()
def reset_parameters(model):
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
            if m.bias is not None:
                m.bias.normal_(0, 0.3)
        elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
            m.weight.uniform_(0.6, 1.5)
            m.bias.normal_(0.1, 0.3)
            if isinstance(m, nn.BatchNorm2d):
                m.running_mean.normal_(0, 0.3)
                m.running_var.uniform_(0.6, 2.0)
        elif isinstance(m, Scale):
            m.scale.uniform_(0.4, 1.3)
    model.head.bbox_pred.weight.mul_(0.7)


def build():
    torch.manual_seed(5)
    model = Detector()
    reset_parameters(model)
    return model.eval()
