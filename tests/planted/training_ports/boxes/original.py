"""A small one-stage detector without anchors: backbone, feature pyramid, shared heads, a learned scale per level."""

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 5
CHANNELS = 16
STRIDES = (8, 16, 32)
RANGES = ((0.0, 16.0), (16.0, 28.0), (28.0, 1e8))
ALPHA, GAMMA = 0.25, 2.0
WARMUP, MILESTONE = 3, 400


def conv_bn(cin, cout, stride):
    """Convolution, batch norm and activation."""
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class Backbone(nn.Module):
    """Five strided convolutions; the last three are returned."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 8, 2), conv_bn(8, 12, 2))
        self.layer1 = conv_bn(12, 16, 2)
        self.layer2 = conv_bn(16, 24, 2)
        self.layer3 = conv_bn(24, 32, 2)

    def forward(self, x):
        c3 = self.layer1(self.stem(x))
        c4 = self.layer2(c3)
        return c3, c4, self.layer3(c4)


class FPN(nn.Module):
    """Feature pyramid with nearest upsampling."""

    def __init__(self):
        super().__init__()
        self.inner_blocks = nn.ModuleList([nn.Conv2d(c, CHANNELS, 1) for c in (16, 24, 32)])
        self.layer_blocks = nn.ModuleList([nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(3)])

    def forward(self, features):
        last = self.inner_blocks[-1](features[-1])
        results = [self.layer_blocks[-1](last)]
        for level in (1, 0):
            lateral = self.inner_blocks[level](features[level])
            last = lateral + F.interpolate(last, size=lateral.shape[-2:], mode="nearest")
            results.insert(0, self.layer_blocks[level](last))
        return results


class Scale(nn.Module):
    """A learned factor."""

    def __init__(self, value=1.0):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([value]))

    def forward(self, x):
        return x * self.scale


def tower():
    """Convolution, group norm and activation."""
    return nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.GroupNorm(4, CHANNELS), nn.ReLU())


class Head(nn.Module):
    """Class scores, distances to the four sides and centre-ness, shared by all levels."""

    def __init__(self):
        super().__init__()
        self.cls_tower = tower()
        self.bbox_tower = tower()
        self.cls_logits = nn.Conv2d(CHANNELS, CLASSES, 3, padding=1)
        self.bbox_pred = nn.Conv2d(CHANNELS, 4, 3, padding=1)
        self.centerness = nn.Conv2d(CHANNELS, 1, 3, padding=1)
        self.scales = nn.ModuleList([Scale(1.0) for _ in STRIDES])

    def forward(self, features):
        logits, boxes, centers = [], [], []
        for level, x in enumerate(features):
            logits.append(self.cls_logits(self.cls_tower(x)))
            y = self.bbox_tower(x)
            boxes.append(torch.exp(self.scales[level](self.bbox_pred(y))))
            centers.append(self.centerness(y))
        return logits, boxes, centers


class Detector(nn.Module):
    """Images to maps of scores, of distances in strides and of centre-ness, three each."""

    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.fpn = FPN()
        self.head = Head()

    def forward(self, images):
        return self.head(self.fpn(self.backbone(images)))


def flatten(maps):
    """Maps of all levels as (images, points, channels)."""
    return torch.cat([m.flatten(2).transpose(1, 2) for m in maps], dim=1)


def points_of(maps):
    """Centres, strides and size ranges of all points."""
    centers, strides, ranges = [], [], []
    for m, stride, limits in zip(maps, STRIDES, RANGES, strict=True):
        h, w = m.shape[-2:]
        y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        centers.append((torch.stack([x, y], dim=-1).reshape(-1, 2) + 0.5) * stride)
        strides.append(torch.full((h * w, 1), float(stride)))
        ranges.append(torch.tensor(limits).repeat(h * w, 1))
    return torch.cat(centers), torch.cat(strides), torch.cat(ranges)


def assign(centers, ranges, boxes, labels):
    """For every point its label (-1 for none) and the distances to the sides of the smallest box around it."""
    lt = centers[:, None] - boxes[None, :, :2]
    rb = boxes[None, :, 2:] - centers[:, None]
    sides = torch.cat([lt, rb], dim=-1)
    longest = sides.max(dim=-1).values
    fits = (sides.min(dim=-1).values > 0) & (longest >= ranges[:, None, 0]) & (longest < ranges[:, None, 1])
    areas = ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))[None].repeat(len(centers), 1)
    areas = areas.masked_fill(~fits, float("inf"))
    smallest, index = areas.min(dim=1)
    label = labels[index].masked_fill(torch.isinf(smallest), -1)
    return label, sides[torch.arange(len(centers)), index]


def focal_loss(logits, target):
    """Sigmoid focal loss, summed."""
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    pt = p * target + (1 - p) * (1 - target)
    weight = ALPHA * target + (1 - ALPHA) * (1 - target)
    return (weight * (1 - pt) ** GAMMA * ce).sum()


def giou_loss(pred, target):
    """One minus the generalised overlap of boxes given as distances from a common point."""
    pl, pt, pr, pb = pred.unbind(-1)
    tl, tt, tr, tb = target.unbind(-1)
    overlap = (torch.min(pl, tl) + torch.min(pr, tr)) * (torch.min(pt, tt) + torch.min(pb, tb))
    hull = (torch.max(pl, tl) + torch.max(pr, tr)) * (torch.max(pt, tt) + torch.max(pb, tb))
    union = (pl + pr) * (pt + pb) + (tl + tr) * (tt + tb) - overlap
    return 1 - (overlap / union - (hull - union) / hull)


def detection_loss(model, batch):
    """Focal loss, overlap loss weighted by centre-ness and centre-ness loss."""
    outputs = model(batch["images"])
    logits, pred, center = (flatten(maps) for maps in outputs)
    centers, strides, ranges = points_of(outputs[0])
    labels, sides = zip(*(assign(centers, ranges, t["boxes"], t["labels"]) for t in batch["targets"]), strict=True)
    labels, sides = torch.stack(labels), torch.stack(sides)
    positive = labels >= 0
    count = positive.sum().clamp(min=1)
    one_hot = torch.zeros_like(logits)
    one_hot[positive, labels[positive]] = 1.0
    sides = (sides / strides)[positive]
    lr, tb = sides[:, [0, 2]], sides[:, [1, 3]]
    ratio = (lr.min(-1).values / lr.max(-1).values) * (tb.min(-1).values / tb.max(-1).values)
    quality = torch.sqrt(ratio)
    loss_cls = focal_loss(logits, one_hot) / count
    loss_box = (giou_loss(pred[positive], sides) * quality).sum() / quality.sum()
    loss_center = F.binary_cross_entropy_with_logits(center[positive].squeeze(-1), quality)
    return loss_cls + loss_box + loss_center


def build():
    """The detector with its random weights."""
    torch.manual_seed(21)
    model = Detector()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
                module.weight.normal_(1.0, 0.1)
                module.bias.normal_(0.0, 0.1)
            elif isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=1)
                if module.bias is not None:
                    module.bias.normal_(0.0, 0.05)
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0.0, 0.1)
                module.running_var.uniform_(0.8, 1.2)
        model.head.cls_logits.bias -= 2.0
        model.head.bbox_pred.weight *= 0.3
        for scale, value in zip(model.head.scales, (0.9, 1.05, 1.15), strict=True):
            scale.scale.fill_(value)
    return model.eval()


def factor(step):
    """Linear warm-up, then constant, then a tenth."""
    return min(1.0, (step + 1) / WARMUP) * (0.1 if step >= MILESTONE else 1.0)


def training():
    """Model, loss, optimizer and the step."""
    model = build().train()
    biases = [p for n, p in model.named_parameters() if n.endswith("bias")]
    weights = [p for n, p in model.named_parameters() if not n.endswith("bias")]
    base = 0.01
    optimizer = torch.optim.SGD(
        [{"params": weights, "weight_decay": 5e-3}, {"params": biases, "lr": 2 * base, "weight_decay": 0.0}],
        lr=base,
        momentum=0.9,
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)

    def step(batch):
        optimizer.zero_grad()
        loss = detection_loss(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 3.0)
        optimizer.step()
        scheduler.step()
        return loss

    return {"model": model, "loss": detection_loss, "optimizer": optimizer, "step": step}
