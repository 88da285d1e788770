"""Anchor-free detector in MindSpore; targets are matched with masks of fixed shape."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

N_CLS = 5
WIDTH = 16
BACKBONE = [(3, 8), (8, 12), (12, 16), (16, 24), (24, 32)]
LEVELS = [(8, 0.0, 16.0), (16, 16.0, 28.0), (32, 28.0, 1e8)]
FOCAL_ALPHA, FOCAL_GAMMA = 0.25, 2
BASE_LR, WARMUP_STEPS, DROP_AT, TOTAL = 0.01, 3, 400, 600
CLIP = 3.0


class ConvUnit(nn.Cell):
    """Strided convolution with batch norm."""

    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=2, pad_mode="pad", padding=1, has_bias=False)
        self.bn = nn.BatchNorm2d(cout, eps=1e-5, momentum=0.9)

    def construct(self, x):
        return ops.relu(self.bn(self.conv(x)))


class GroupedNorm(nn.Cell):
    """Group norm over (N, C, H, W)."""

    def __init__(self, groups, channels):
        super().__init__()
        self.groups = groups
        self.w = Parameter(Tensor(np.random.normal(1, 0.1, channels).astype(np.float32)))
        self.b = Parameter(Tensor(np.random.normal(0, 0.1, channels).astype(np.float32)))

    def construct(self, x):
        n, c, h, w = x.shape
        x = x.reshape(n, self.groups, -1)
        x = x - x.mean(-1, keep_dims=True)
        x = x / ops.sqrt(ops.square(x).mean(-1, keep_dims=True) + 1e-5)
        return x.reshape(n, c, h, w) * self.w.reshape(1, c, 1, 1) + self.b.reshape(1, c, 1, 1)


class Pyramid(nn.Cell):
    """Top-down pathway."""

    def __init__(self):
        super().__init__()
        self.side5 = nn.Conv2d(32, WIDTH, 1, has_bias=True)
        self.side4 = nn.Conv2d(24, WIDTH, 1, has_bias=True)
        self.side3 = nn.Conv2d(16, WIDTH, 1, has_bias=True)
        self.smooth5 = nn.Conv2d(WIDTH, WIDTH, 3, has_bias=True)
        self.smooth4 = nn.Conv2d(WIDTH, WIDTH, 3, has_bias=True)
        self.smooth3 = nn.Conv2d(WIDTH, WIDTH, 3, has_bias=True)

    def construct(self, c3, c4, c5):
        m5 = self.side5(c5)
        m4 = self.side4(c4) + self.double(m5)
        m3 = self.side3(c3) + self.double(m4)
        return self.smooth3(m3), self.smooth4(m4), self.smooth5(m5)

    def double(self, x):
        """Nearest upsampling by two."""
        return ops.repeat_interleave(ops.repeat_interleave(x, 2, 2), 2, 3)


class DenseHead(nn.Cell):
    """Both towers in one convolution; sides and centre-ness in another."""

    def __init__(self):
        super().__init__()
        self.towers = nn.Conv2d(WIDTH, 2 * WIDTH, 3, has_bias=True)
        self.norm = GroupedNorm(8, 2 * WIDTH)
        self.to_class = nn.Conv2d(WIDTH, N_CLS, 3, has_bias=True)
        self.to_box = nn.Conv2d(WIDTH, 5, 3, has_bias=True)
        self.level_scale = Parameter(Tensor(np.ones(len(LEVELS), np.float32)))

    def construct(self, x, level):
        both = ops.relu(self.norm(self.towers(x)))
        box = self.to_box(both[:, WIDTH:])
        distance = ops.exp(box[:, :4] * self.level_scale[level])
        return self.to_class(both[:, :WIDTH]), distance, box[:, 4:]


class Net(nn.Cell):
    """The detector."""

    def __init__(self):
        super().__init__()
        self.body = nn.CellList([ConvUnit(a, b) for a, b in BACKBONE])
        self.neck = Pyramid()
        self.head = DenseHead()

    def construct(self, images):
        taps = []
        for unit in self.body:
            images = unit(images)
            taps.append(images)
        maps = [self.head(x, k) for k, x in enumerate(self.neck(*taps[2:]))]
        return [m[0] for m in maps], [m[1] for m in maps], [m[2] for m in maps]


def build():
    """The network with random weights."""
    ms.set_seed(4)
    np.random.seed(4)
    return Net().set_train(False)


def grid(size):
    """Points (x, y), stride and size range for an image of this size."""
    rows = []
    for stride, low, high in LEVELS:
        side = size // stride
        for y in range(side):
            rows += [[(x + 0.5) * stride, (y + 0.5) * stride, stride, low, high] for x in range(side)]
    return Tensor(np.array(rows, np.float32))


def match(points, boxes, labels):
    """One-hot classes, sides in strides, and a mask of the points inside an object."""
    x, y, stride, low, high = (points[:, k : k + 1] for k in range(5))
    x1, y1, x2, y2 = (boxes[:, k].expand_dims(0) for k in range(4))
    sides = ops.stack([x - x1, y - y1, x2 - x, y2 - y], -1)
    reach = ops.amax(sides, -1)
    ok = ops.logical_and(ops.amin(sides, -1) > 0, ops.logical_and(reach >= low, reach < high))
    area = ops.select(ok, ops.zeros_like(reach) + (x2 - x1) * (y2 - y1), ops.full_like(reach, 1e9))
    owner = ops.argmin(area, axis=1)
    mask = ok.any(1).astype(ms.float32)
    owner = ops.one_hot(owner, boxes.shape[0], Tensor(1.0), Tensor(0.0))
    sides = (sides * owner.expand_dims(-1)).sum(1) / stride
    classes = ops.matmul(owner, ops.one_hot(labels, N_CLS, Tensor(1.0), Tensor(0.0)))
    return classes * mask.expand_dims(-1), sides, mask


def centre_quality(sides, mask):
    """How central a point is in its box, 0 outside the mask."""
    left, top, right, bottom = (sides[..., k] for k in range(4))
    across = ops.minimum(left, right) / ops.maximum(left, right)
    along = ops.minimum(top, bottom) / ops.maximum(top, bottom)
    value = ops.select(mask > 0, across * along, ops.ones_like(mask))
    return ops.sqrt(value) * mask


def bce(logit, target):
    """Binary cross entropy from logits, by element."""
    return ops.relu(logit) - logit * target + ops.log1p(ops.exp(-ops.abs(logit)))


def focal(logit, target):
    """Focal loss by element."""
    prob = ops.sigmoid(logit)
    miss = ops.select(target > 0, 1 - prob, prob)
    alpha = ops.select(target > 0, ops.full_like(prob, FOCAL_ALPHA), ops.full_like(prob, 1 - FOCAL_ALPHA))
    return alpha * miss**FOCAL_GAMMA * bce(logit, target)


def overlap_loss(a, b):
    """Generalised overlap loss by box."""
    low, high = ops.minimum(a, b), ops.maximum(a, b)
    inner = (low[..., 0] + low[..., 2]) * (low[..., 1] + low[..., 3])
    outer = (high[..., 0] + high[..., 2]) * (high[..., 1] + high[..., 3])
    area_a = (a[..., 0] + a[..., 2]) * (a[..., 1] + a[..., 3])
    area_b = (b[..., 0] + b[..., 2]) * (b[..., 1] + b[..., 3])
    union = area_a + area_b - inner
    return 1 - inner / union + (outer - union) / outer


def join(maps):
    """(N, C, H, W) of all levels as (N, points, C)."""
    return ops.cat([m.reshape(m.shape[0], m.shape[1], -1).swapaxes(1, 2) for m in maps], 1)


def criterion(net, images, classes, sides, mask):
    """The whole loss."""
    score, distance, centre = (join(maps) for maps in net(images))
    number = ops.maximum(mask.sum(), Tensor(1.0))
    quality = centre_quality(sides, mask)
    cls_term = focal(score, classes).sum() / number
    safe = ops.select(ops.tile(mask.expand_dims(-1), (1, 1, 4)) > 0, sides, ops.ones_like(sides))
    box_term = (overlap_loss(distance, safe) * quality).sum() / quality.sum()
    centre_term = (bce(centre.squeeze(-1), quality) * mask).sum() / number
    return cls_term + box_term + centre_term


def rates(base):
    """Learning rate of every step."""
    ramp = [base * min(1.0, (k + 1) / WARMUP_STEPS) for k in range(TOTAL)]
    return [r * 0.1 if k >= DROP_AT else r for k, r in enumerate(ramp)]


def training():
    """Network, optimizer and step."""
    net = build()
    net.set_train()
    shifts = [p for p in net.trainable_params() if p.name.split(".")[-1] in ("bias", "beta", "b")]
    others = [p for p in net.trainable_params() if p.name.split(".")[-1] not in ("bias", "beta", "b")]
    optimizer = nn.Momentum(
        [
            {"params": others, "lr": rates(BASE_LR), "weight_decay": 5e-3},
            {"params": shifts, "lr": rates(2 * BASE_LR), "weight_decay": 0.0},
        ],
        learning_rate=BASE_LR,
        momentum=0.9,
    )

    def forward(images, classes, sides, mask):
        return criterion(net, images, classes, sides, mask)

    grad_fn = ms.value_and_grad(forward, None, optimizer.parameters)

    def step(batch):
        points = grid(batch["images"].shape[-1])
        found = [match(points, t["boxes"], t["labels"]) for t in batch["targets"]]
        classes, sides, mask = (ops.stack(each) for each in zip(*found, strict=True))
        loss, grads = grad_fn(batch["images"], classes, sides, mask)
        norm = ops.sqrt(sum((g * g).sum() for g in grads))
        ratio = ops.minimum(CLIP / (norm + 1e-6), Tensor(1.0))
        optimizer(tuple(g * ratio for g in grads))
        return loss

    return {"model": net, "optimizer": optimizer, "step": step}
