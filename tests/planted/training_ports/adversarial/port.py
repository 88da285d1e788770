"""A conditional GAN in MindSpore: painter and critic, each trained by its own cell."""

import mindspore as ms
from mindspore import nn, ops
from mindspore.common.initializer import Normal

NOISE, KINDS, CODE, CHANNELS = 16, 5, 8, 12


def conv(cin, cout, size, stride=1, bias=True):
    """A convolution padded to keep (or halve) the size."""
    pad = (size - 1) // 2
    return nn.Conv2d(cin, cout, size, stride, pad_mode="pad", padding=pad, has_bias=bias, weight_init=Normal(0.05))


def batch_norm(channels):
    """Batch normalisation, followed by ReLU."""
    return nn.SequentialCell(nn.BatchNorm2d(channels, momentum=0.9), nn.ReLU())


class Twice(nn.Cell):
    """Repeats every pixel in both directions."""

    def construct(self, x):
        n, c, h, w = x.shape
        return x.reshape(n, c, h, 1, w, 1).tile((1, 1, 1, 2, 1, 2)).reshape(n, c, 2 * h, 2 * w)


class Enlarge(nn.Cell):
    """A residual block that doubles the size."""

    def __init__(self, cin, cout):
        super().__init__()
        self.main = nn.SequentialCell(
            batch_norm(cin), Twice(), conv(cin, cout, 3, bias=False), batch_norm(cout), conv(cout, cout, 3, bias=False)
        )
        self.side = nn.SequentialCell(Twice(), conv(cin, cout, 1, bias=False))

    def construct(self, x):
        return self.main(x) + self.side(x)


class Painter(nn.Cell):
    """Draws an image for a kind."""

    def __init__(self):
        super().__init__()
        self.codes = ms.Parameter(ops.randn(KINDS, CODE), name="codes")
        self.from_noise = nn.Dense(NOISE, CHANNELS * 16)
        self.from_code = nn.Dense(CODE, CHANNELS * 16, has_bias=False)
        self.grow = nn.SequentialCell(
            Enlarge(CHANNELS, CHANNELS), Enlarge(CHANNELS, 8), batch_norm(8), conv(8, 1, 3), nn.Sigmoid()
        )

    def construct(self, z, y):
        x = self.from_noise(z) + self.from_code(self.codes[y])
        return self.grow(x.reshape(-1, CHANNELS, 4, 4))


class GroupScale(nn.Cell):
    """Group normalisation; one parameter holds gain and offset."""

    def __init__(self, groups, channels):
        super().__init__()
        self.groups = groups
        self.affine = ms.Parameter(ops.stack([ops.ones(channels), ops.zeros(channels)]), name="affine")

    def construct(self, x):
        n, c, h, w = x.shape
        x = x.reshape(n, self.groups, -1)
        mean = x.mean(-1, keep_dims=True)
        var = ops.square(x - mean).mean(-1, keep_dims=True)
        x = ((x - mean) / ops.sqrt(var + 1e-5)).reshape(n, c, h, w)
        return x * self.affine[0].reshape(1, c, 1, 1) + self.affine[1].reshape(1, c, 1, 1)


class Critic(nn.Cell):
    """Scores an image of a kind."""

    def __init__(self):
        super().__init__()
        leak = nn.LeakyReLU(alpha=0.2)
        self.trunk = nn.SequentialCell(
            conv(1, 8, 4, 2),
            leak,
            conv(8, 12, 4, 2, bias=False),
            GroupScale(4, 12),
            leak,
            conv(12, 16, 4, 2, bias=False),
            GroupScale(4, 16),
            leak,
        )
        self.score = nn.Conv2d(16, 1, 2, pad_mode="valid", has_bias=True)
        self.kinds = nn.Embedding(KINDS, 16)

    def construct(self, image, y):
        x = self.trunk(image)
        by_kind = (self.kinds(y) * x.mean((2, 3))).sum(1)
        return self.score(x).reshape(-1) + by_kind, x.reshape(x.shape[0], -1)


class Pair(nn.Cell):
    """Painter and critic."""

    def __init__(self):
        super().__init__()
        self.painter = Painter()
        self.critic = Critic()

    def construct(self, noise, labels):
        image = self.painter(noise, labels)
        return image, self.critic(image, labels)[0]


def build():
    """Both networks, set to evaluation."""
    ms.set_seed(8)
    net = Pair()
    net.set_train(False)
    return net


def cross_entropy(score, target):
    """The mean binary cross entropy of scores against one target."""
    return (ops.relu(score) - score * target + ops.log(1 + ops.exp(-ops.abs(score)))).mean()


class CriticLoss(nn.Cell):
    """What the critic minimises."""

    def __init__(self, pair):
        super().__init__(auto_prefix=False)
        self.painter, self.critic = pair.painter, pair.critic

    def construct(self, image, noise, y):
        drawn = ops.stop_gradient(self.painter(noise, y))
        real, _ = self.critic(image, y)
        fake, _ = self.critic(drawn, y)
        return cross_entropy(real, 0.9) + cross_entropy(fake, 0.0)


class PainterLoss(nn.Cell):
    """What the painter minimises."""

    def __init__(self, pair):
        super().__init__(auto_prefix=False)
        self.painter, self.critic = pair.painter, pair.critic

    def construct(self, image, noise, y):
        score, seen = self.critic(self.painter(noise, y), y)
        _, wanted = self.critic(image, y)
        gap = seen.mean(0) - ops.stop_gradient(wanted.mean(0))
        return cross_entropy(score, 1.0) + 5.0 * ops.square(gap).mean()


class Adam(nn.Optimizer):
    """Adam that adds eps after the correction of the second moment."""

    def __init__(self, params, learning_rate, beta1, beta2, eps=1e-8):
        super().__init__(learning_rate, params)
        self.beta1, self.beta2, self.eps = beta1, beta2, eps
        self.mean = self.parameters.clone(prefix="mean", init="zeros")
        self.power = self.parameters.clone(prefix="power", init="zeros")
        self.count = 0

    def construct(self, gradients):
        self.count += 1
        rate = self.get_lr() / (1 - self.beta1**self.count)
        spread = (1 - self.beta2**self.count) ** 0.5
        for p, g, m, v in zip(self.parameters, gradients, self.mean, self.power, strict=True):
            ops.assign(m, self.beta1 * m + (1 - self.beta1) * g)
            ops.assign(v, self.beta2 * v + (1 - self.beta2) * ops.square(g))
            ops.assign(p, p - rate * m / (ops.sqrt(v) / spread + self.eps))
        return True


def training():
    """Both networks, their optimizers and one step of each."""
    pair = build()
    painter_params = pair.painter.trainable_params()
    critic_params = pair.critic.trainable_params()
    painter_opt = Adam(painter_params, learning_rate=2e-4, beta1=0.5, beta2=0.999)
    critic_opt = nn.SGD(critic_params, learning_rate=0.02, momentum=0.5)
    train_critic = nn.TrainOneStepCell(CriticLoss(pair), critic_opt)
    train_painter = nn.TrainOneStepCell(PainterLoss(pair), painter_opt)
    train_critic.set_train()
    train_painter.set_train()

    def step(batch):
        image, y = batch["image"], batch["labels"]
        critic_loss = train_critic(image, batch["noise_d"], y)
        painter_loss = train_painter(image, batch["noise_g"], y)
        return critic_loss + painter_loss

    return {"model": pair, "optimizer": [painter_opt, critic_opt], "step": step}
