"""A denoising network in MindSpore with a running average of its weights."""

import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops

IMAGE, LOW, HIGH, CLOCK, LEVELS = 2, 12, 16, 24, 50
SCALE = 512.0


class Norm(nn.Cell):
    """Normalises groups of channels."""

    def __init__(self, channels, groups=4):
        super().__init__()
        self.groups = groups
        self.gain = ms.Parameter(ops.ones((1, channels, 1, 1)), name="gain")
        self.offset = ms.Parameter(ops.zeros((1, channels, 1, 1)), name="offset")

    def construct(self, x):
        flat = x.reshape(x.shape[0], self.groups, -1)
        flat = flat - flat.mean(-1, keep_dims=True)
        var = ops.square(flat).mean(-1, keep_dims=True)
        return (flat * ops.rsqrt(var + 1e-5)).reshape(x.shape) * self.gain + self.offset


def conv3(cin, cout, stride=1, bias=True):
    """A padded 3 x 3 convolution."""
    return nn.Conv2d(cin, cout, 3, stride, pad_mode="pad", padding=1, has_bias=bias)


class Residual(nn.Cell):
    """Norm, convolution, time, norm, convolution; the input is added."""

    def __init__(self, cin, cout):
        super().__init__()
        self.enter = nn.SequentialCell(Norm(cin), nn.SiLU(), conv3(cin, cout, bias=False))
        self.leave = nn.SequentialCell(Norm(cout), nn.SiLU(), conv3(cout, cout, bias=False))
        self.bypass = nn.Dense(cin, cout, has_bias=False) if cin != cout else None

    def construct(self, x, shift):
        y = self.leave(self.enter(x) + shift.expand_dims(-1).expand_dims(-1))
        if self.bypass is not None:
            x = self.bypass(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        return x + y


class Look(nn.Cell):
    """Every position looks at every other."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.norm = Norm(dim)
        self.qkv = nn.Dense(dim, 3 * dim, has_bias=False)
        self.out = nn.Dense(dim, dim)

    def construct(self, x):
        n, c, h, w = x.shape
        y = self.norm(x).reshape(n, c, h * w).swapaxes(1, 2)
        q, k, v = ops.chunk(self.qkv(y), 3, axis=-1)
        weights = ops.softmax(ops.bmm(q, k.swapaxes(1, 2)) / math.sqrt(self.dim), axis=-1)
        return x + self.out(ops.bmm(weights, v)).swapaxes(1, 2).reshape(n, c, h, w)


class Clock(nn.Cell):
    """Turns timesteps into the shifts of all blocks at once."""

    def __init__(self):
        super().__init__()
        half = CLOCK // 2
        self.rates = ms.Tensor(np.exp(-math.log(1000.0) * np.arange(half) / half), ms.float32)
        self.hidden = nn.Dense(CLOCK, CLOCK)
        self.mixed = nn.Dense(CLOCK, CLOCK)
        self.shifts = nn.Dense(CLOCK, LOW + HIGH + LOW)

    def construct(self, t):
        angles = t.astype(ms.float32).expand_dims(1) * self.rates
        x = ops.cat([ops.sin(angles), ops.cos(angles)], axis=1)
        x = self.mixed(ops.silu(self.hidden(x)))
        return ops.split(self.shifts(ops.silu(x)), [LOW, HIGH, LOW], axis=1)


class Denoiser(nn.Cell):
    """The network."""

    def __init__(self):
        super().__init__()
        self.clock = Clock()
        self.stem = conv3(IMAGE, LOW)
        self.fine = Residual(LOW, LOW)
        self.shrink = conv3(LOW, HIGH, stride=2)
        self.coarse = Residual(HIGH, HIGH)
        self.look = Look(HIGH)
        self.expand = conv3(HIGH, LOW)
        self.merge = Residual(2 * LOW, LOW)
        self.head = nn.SequentialCell(Norm(LOW), nn.SiLU(), conv3(LOW, IMAGE))

    def construct(self, sample, timestep):
        first, second, third = self.clock(timestep)
        kept = self.fine(self.stem(sample), first)
        x = self.look(self.coarse(self.shrink(kept), second))
        x = ops.repeat_interleave(ops.repeat_interleave(x, 2, 2), 2, 3)
        return self.head(self.merge(ops.cat([self.expand(x), kept], axis=1), third))


class Averaged(nn.Cell):
    """The live network and its average."""

    def __init__(self):
        super().__init__()
        self.live = Denoiser()
        self.average = Denoiser()
        for mean, p in zip(self.average.get_parameters(), self.live.get_parameters(), strict=True):
            mean.set_data(p.value())
            mean.requires_grad = False

    def construct(self, sample, timestep):
        return self.live(sample, timestep)


def build():
    """The model with its first weights."""
    ms.set_seed(3)
    return Averaged()


class Adam(nn.Optimizer):
    """Adam with decay beside the moments."""

    def __init__(self, params, rate, betas, decay):
        super().__init__(rate, params, weight_decay=decay)
        self.betas = betas
        self.means = self._parameters.clone(prefix="means", init="zeros")
        self.squares = self._parameters.clone(prefix="squares", init="zeros")
        self.count = 0

    def construct(self, grads):
        self.count += 1
        rate, decay = self.get_lr(), self.get_weight_decay()
        b1, b2 = self.betas
        for p, g, m, v in zip(self._parameters, grads, self.means, self.squares, strict=True):
            ops.assign(m, b1 * m + (1 - b1) * g)
            ops.assign(v, b2 * v + (1 - b2) * g * g)
            root = ops.sqrt(v / (1 - b2**self.count)) + 1e-8
            move = m / (1 - b1**self.count) / root + decay * p
            ops.assign(p, p - rate * move)
        return True


class Learner:
    """One training step: scaled gradients, Adam with decay, the average."""

    def __init__(self, net, rate=3e-4, betas=(0.9, 0.99), decay=0.05):
        self.net = net
        self.params = net.live.trainable_params()
        self.optimizer = Adam(self.params, rate, betas, decay)
        self.count = 0
        angle = (np.arange(LEVELS) + 0.5) / LEVELS * np.pi / 2
        self.levels = ms.Tensor(np.cos(angle) ** 2, ms.float32)
        self.value_and_grad = ms.value_and_grad(self.objective, None, self.params, has_aux=True)

    def objective(self, clean, noise, t):
        level = self.levels[t]
        signal = ops.sqrt(level).reshape(-1, 1, 1, 1)
        sigma = ops.sqrt(1 - level).reshape(-1, 1, 1, 1)
        wanted = signal * noise - sigma * clean
        error = ops.square(self.net.live(signal * clean + sigma * noise, t) - wanted).mean((1, 2, 3))
        snr = level / (1 - level)
        weight = ops.minimum(snr, ms.Tensor(5.0)) / (snr + 1)
        loss = (weight * error).mean()
        return loss * SCALE, loss

    def clip(self, grads, limit=0.2):
        total = ops.sqrt(ops.stack([ops.square(g).sum() for g in grads]).sum())
        return [g * ops.minimum(limit / (total + 1e-6), ms.Tensor(1.0)) for g in grads]

    def follow(self, step):
        keep = min(0.99, (1 + step) / (10 + step))
        for mean, p in zip(self.net.average.get_parameters(), self.net.live.get_parameters(), strict=True):
            mean.set_data(keep * mean + (1 - keep) * p)

    def step(self, batch):
        self.net.live.set_train()
        (_, loss), grads = self.value_and_grad(batch["clean"], batch["noise"], batch["timestep"])
        grads = [g / SCALE for g in grads]
        self.optimizer(self.clip(grads))
        self.follow(self.count)
        self.count += 1
        return loss


def training():
    """The model, its optimizer and one step."""
    net = build()
    learner = Learner(net)
    return {"model": net, "optimizer": learner.optimizer, "step": learner.step}
