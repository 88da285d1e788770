"""Three tasks on a fixed backbone in MindSpore."""

import mindspore as ms
from mindspore import nn, ops

KINDS, REGIONS, VOID = 7, 4, 255


def stage(cin, cout, stride):
    """A stage of the backbone; its normalisation uses the stored statistics only."""
    return nn.SequentialCell(
        nn.Conv2d(cin, cout, 3, stride, pad_mode="pad", padding=1),
        nn.BatchNorm2d(cout, use_batch_statistics=False),
        nn.ReLU(),
    )


class Backbone(nn.Cell):
    """Four stages that are not trained."""

    def __init__(self):
        super().__init__()
        self.first = stage(3, 8, 1)
        self.second = stage(8, 12, 2)
        self.third = stage(12, 16, 1)
        self.fourth = stage(16, 24, 2)
        for param in self.get_parameters():
            param.requires_grad = False

    def construct(self, x):
        return self.fourth(self.third(self.second(self.first(x))))


class Regions(nn.Cell):
    """Scores of the region at every place."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(24, 12, 3, pad_mode="pad", padding=1)
        self.norm = nn.BatchNorm2d(12, momentum=0.9)
        self.score = nn.Dense(12, REGIONS)

    def construct(self, x):
        x = ops.relu(self.norm(self.mix(x)))
        x = ops.interpolate(x, size=(8, 8), mode="bilinear", align_corners=False)
        return self.score(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ThreeTasks(nn.Cell):
    """The backbone and what is read from it."""

    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.hidden = nn.Dense(24, 20 + 12)
        self.to_kind = nn.SequentialCell(nn.LayerNorm((20,), epsilon=1e-5), nn.Dense(20, KINDS))
        self.to_box = nn.Dense(12, 4)
        self.regions = Regions()

    def construct(self, image):
        x = self.backbone(image)
        hidden = ops.gelu(self.hidden(x.mean((2, 3))), approximate="none")
        return self.to_kind(hidden[:, :20]), self.to_box(hidden[:, 20:]), self.regions(x)


class Weighted(nn.Cell):
    """The network with a learned uncertainty for each task."""

    def __init__(self):
        super().__init__()
        self.net = ThreeTasks()
        self.doubt_kind = ms.Parameter(ms.Tensor([0.0], ms.float32))
        self.doubt_box = ms.Parameter(ms.Tensor([0.0], ms.float32))
        self.doubt_region = ms.Parameter(ms.Tensor([0.0], ms.float32))

    def construct(self, image):
        return self.net(image)


def build():
    """The network, set to evaluation."""
    ms.set_seed(2)
    net = Weighted()
    net.set_train(False)
    return net


class TaskLoss(nn.Cell):
    """The weighted sum of the three losses."""

    def __init__(self, weighted):
        super().__init__(auto_prefix=False)
        self.weighted = weighted
        self.of_kind = nn.CrossEntropyLoss(label_smoothing=0.1)
        self.of_box = nn.SmoothL1Loss(beta=0.5, reduction="mean")

    def of_region(self, scores, wanted):
        valid = wanted != VOID
        wanted = ops.masked_fill(wanted, ops.logical_not(valid), 0)
        log_probs = ops.log_softmax(scores, axis=1)
        picked = ops.gather_elements(log_probs, 1, wanted.expand_dims(1)).squeeze(1)
        valid = valid.astype(ms.float32)
        return -(picked * valid).sum() / valid.sum()

    def weigh(self, loss, doubt):
        precision = ops.exp(-doubt)
        return (precision * loss + 0.5 * doubt).sum()

    def construct(self, image, label, box, mask):
        kind_scores, boxes, region_scores = self.weighted(image)
        total = self.weigh(self.of_kind(kind_scores, label), self.weighted.doubt_kind)
        total += self.weigh(0.5 * self.of_box(boxes, box), self.weighted.doubt_box)
        total += self.weigh(self.of_region(region_scores, mask), self.weighted.doubt_region)
        return total


class ClippedStep(nn.TrainOneStepCell):
    """A training step with gradients clipped by their common norm."""

    def construct(self, *inputs):
        loss = self.network(*inputs)
        grads = self.grad(self.network, self.weights)(*inputs, ops.ones_like(loss))
        grads = ops.clip_by_global_norm(grads, 2.0)
        self.optimizer(grads)
        return loss


def training():
    """The network, its optimizer and one step."""
    net = build()
    doubts = [p for p in net.trainable_params() if "doubt" in p.name]
    rest = [p for p in net.trainable_params() if "doubt" not in p.name]
    groups = [
        {"params": rest, "lr": nn.piecewise_constant_lr([2, 500], [0.02, 0.01]), "weight_decay": 0.01},
        {"params": doubts, "lr": nn.piecewise_constant_lr([2, 500], [0.005, 0.0025]), "weight_decay": 0.0},
    ]
    optimizer = nn.SGD(groups, learning_rate=0.02, momentum=0.9, nesterov=True)
    train = ClippedStep(TaskLoss(net), optimizer)
    train.set_train()

    def step(batch):
        return train(batch["image"], batch["label"], batch["box"], batch["mask"])

    return {"model": net, "optimizer": optimizer, "step": step}
