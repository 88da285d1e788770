"""The same as an engineer ports it: layers named one by one, upsampling by repetition, boxes by columns."""

from mindspore import nn, ops


def block(inner, outer, stride):
    return nn.SequentialCell(
        nn.Conv2d(inner, outer, 3, stride, "pad", 1, has_bias=False), nn.BatchNorm2d(outer, eps=1e-5), nn.ReLU()
    )


class Backbone(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = block(3, 8, 2)
        self.pool = nn.SequentialCell(nn.Pad(((0, 0), (0, 0), (1, 1), (1, 1))), nn.MaxPool2d(3, 2))
        self.layer1 = block(8, 16, 1)
        self.layer2 = block(16, 24, 2)
        self.layer3 = block(24, 32, 2)

    def construct(self, x):
        c1 = self.layer1(self.pool(self.conv1(x)))
        c2 = self.layer2(c1)
        return c1, c2, self.layer3(c2)


def upsample(x):
    b, c, h, w = x.shape
    x = ops.tile(x.reshape(b, c, h, 1, w, 1), (1, 1, 1, 2, 1, 2))
    return x.reshape(b, c, 2 * h, 2 * w)


class FPN(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.inner1 = nn.Conv2d(16, width, 1, has_bias=True)
        self.inner2 = nn.Conv2d(24, width, 1, has_bias=True)
        self.inner3 = nn.Conv2d(32, width, 1, has_bias=True)
        self.layer1 = nn.Conv2d(width, width, 3, pad_mode="same", has_bias=True)
        self.layer2 = nn.Conv2d(width, width, 3, pad_mode="same", has_bias=True)
        self.layer3 = nn.Conv2d(width, width, 3, pad_mode="same", has_bias=True)

    def construct(self, c1, c2, c3):
        p3 = self.inner3(c3)
        p2 = self.inner2(c2) + upsample(p3)
        p1 = self.inner1(c1) + upsample(p2)
        return self.layer1(p1), self.layer2(p2), self.layer3(p3)


class DenseHead(nn.Cell):
    def __init__(self, width, anchors, classes):
        super().__init__()
        self.classes = classes
        self.shared = nn.Conv2d(width, width, 3, pad_mode="same", has_bias=True)
        self.gn = nn.GroupNorm(4, width, eps=1e-5)
        self.logits = nn.Conv2d(width, anchors * classes, 3, pad_mode="same", has_bias=True)
        self.deltas = nn.Conv2d(width, anchors * 4, 3, pad_mode="same", has_bias=True)

    def construct(self, levels):
        logits, deltas = (), ()
        for p in levels:
            y = ops.relu(self.gn(self.shared(p)))
            b = y.shape[0]
            logits += (self.logits(y).transpose(0, 2, 3, 1).reshape(b, -1, self.classes),)
            deltas += (self.deltas(y).transpose(0, 2, 3, 1).reshape(b, -1, 4),)
        return ops.concat(logits, 1), ops.concat(deltas, 1)


class OneStage(nn.Cell):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.neck = FPN(16)
        self.bbox_head = DenseHead(16, 2, 5)

    def construct(self, x):
        c1, c2, c3 = self.backbone(x)
        logits, deltas = self.bbox_head(self.neck(c1, c2, c3))
        half = ops.exp(deltas[..., 2:]) * 0.5
        corners = ops.concat((deltas[..., :2] - half, deltas[..., :2] + half), -1)
        return ops.sigmoid(logits), corners


def build():
    return OneStage()
