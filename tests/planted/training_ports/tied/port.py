"""A decoder-only language model in MindSpore and its trainer."""

import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.common.initializer import Normal, initializer

WORDS, WIDTH, NUM_HEADS, DEPTH, CONTEXT = 61, 32, 4, 3, 16
PAD_ID = 0
CHUNKS = (4, 2, 1)
LOSS_SCALE = 1024.0


def weight(name, *shape, std=0.08):
    """A parameter drawn from a normal distribution."""
    return ms.Parameter(initializer(Normal(std), shape, ms.float32), name=name)


class Norm(nn.Cell):
    """Layer normalisation over the last axis."""

    def __init__(self):
        super().__init__()
        self.scale = ms.Parameter(ops.ones((WIDTH,), ms.float32), name="scale")
        self.shift = ms.Parameter(ops.zeros((WIDTH,), ms.float32), name="shift")

    def construct(self, x):
        centred = x - x.mean(-1, keep_dims=True)
        variance = (centred * centred).mean(-1, keep_dims=True)
        return centred * ops.rsqrt(variance + 1e-5) * self.scale + self.shift


class Mixer(nn.Cell):
    """Masked multi-head attention, queries apart from keys and values."""

    def __init__(self):
        super().__init__()
        self.to_q = weight("to_q", WIDTH, WIDTH)
        self.to_kv = weight("to_kv", WIDTH, 2 * WIDTH)
        self.merge = nn.Dense(WIDTH, WIDTH, weight_init=Normal(0.03))
        self.hidden = ms.Tensor(np.triu(np.ones((CONTEXT, CONTEXT), bool), k=1))

    def heads(self, x):
        return x.reshape(x.shape[0], x.shape[1], NUM_HEADS, -1).swapaxes(1, 2)

    def construct(self, x):
        n, t, _ = x.shape
        q = self.heads(ops.matmul(x, self.to_q))
        k, v = ops.split(ops.matmul(x, self.to_kv), WIDTH, axis=-1)
        k, v = self.heads(k), self.heads(v)
        scores = ops.matmul(q, k.swapaxes(-1, -2)) / math.sqrt(WIDTH // NUM_HEADS)
        scores = ops.masked_fill(scores, self.hidden[:t, :t], -1e9)
        out = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.merge(out.swapaxes(1, 2).reshape(n, t, WIDTH))


class DecoderLayer(nn.Cell):
    """One layer: attention, then two dense layers."""

    def __init__(self):
        super().__init__()
        self.before_mix = Norm()
        self.mix = Mixer()
        self.ffn = nn.SequentialCell(
            Norm(),
            nn.Dense(WIDTH, 4 * WIDTH, weight_init=Normal(0.08)),
            nn.GELU(approximate=False),
            nn.Dense(4 * WIDTH, WIDTH, weight_init=Normal(0.03)),
        )

    def construct(self, x):
        x = x + self.mix(self.before_mix(x))
        return x + self.ffn(x)


class Decoder(nn.Cell):
    """The language model; its word table also gives the logits."""

    def __init__(self):
        super().__init__()
        self.words = weight("words", WORDS, WIDTH)
        self.places = weight("places", CONTEXT, WIDTH)
        self.stack = nn.CellList([DecoderLayer() for _ in range(DEPTH)])
        self.final = Norm()

    def construct(self, tokens):
        x = ops.gather(self.words, tokens, 0) + self.places[: tokens.shape[1]]
        for layer in self.stack:
            x = layer(x)
        return ops.matmul(self.final(x), self.words.T)


def build():
    """The network with its first weights."""
    ms.set_seed(5)
    return Decoder()


class Schedule:
    """Linear warm-up, then a cosine down to a tenth."""

    def __init__(self, peak=3e-3, warm=4, length=40):
        self.peak, self.warm, self.length = peak, warm, length

    def at(self, step):
        if step < self.warm:
            return self.peak * (step + 1) / self.warm
        done = (step - self.warm) / (self.length - self.warm)
        return self.peak * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))


class Optimizer(nn.Optimizer):
    """Adam with decoupled decay, a rate of decay for each weight."""

    def __init__(self, groups, learning_rate, betas=(0.9, 0.95), eps=1e-8):
        super().__init__(learning_rate, groups)
        self.beta1, self.beta2 = betas
        self.eps = eps
        self.first = self._parameters.clone(prefix="first", init="zeros")
        self.second = self._parameters.clone(prefix="second", init="zeros")
        self.count = 0

    def construct(self, grads):
        lr = self.get_lr()
        decays = self.get_weight_decay()
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        self.count += 1
        scale1 = 1 - self.beta1**self.count
        scale2 = 1 - self.beta2**self.count
        for p, g, m, v, decay in zip(self._parameters, grads, self.first, self.second, decays, strict=True):
            ops.assign(m, self.beta1 * m + (1 - self.beta1) * g)
            ops.assign(v, self.beta2 * v + (1 - self.beta2) * g * g)
            change = (m / scale1) / (ops.sqrt(v / scale2) + self.eps)
            ops.assign(p, p * (1 - lr * decay) - lr * change)
        return True


class Trainer:
    """Accumulates gradients over chunks of a batch and updates once."""

    def __init__(self, net):
        self.net = net
        self.weights = ms.ParameterTuple(net.trainable_params())
        groups = [
            {"params": [p for p in self.weights if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in self.weights if p.ndim <= 1], "weight_decay": 0.0},
            {"order_params": self.weights},
        ]
        schedule = Schedule()
        self.opt = Optimizer(groups, [schedule.at(step) for step in range(schedule.length)])
        self.sums = self.weights.clone(prefix="sum", init="zeros")
        self.grad_fn = ms.value_and_grad(self.scaled_loss, None, self.weights)

    def scaled_loss(self, tokens, labels, count):
        logits = self.net(tokens)
        log_probs = ops.log_softmax(logits, axis=-1)
        picked = ops.gather_elements(log_probs, -1, labels.expand_dims(-1)).squeeze(-1)
        valid = (labels != PAD_ID).astype(ms.float32)
        return -(picked * valid).sum() / count * LOSS_SCALE

    def clip(self, grads, limit=2.5):
        norm = ops.sqrt(sum((g * g).sum() for g in grads))
        factor = ops.minimum(limit / (norm + 1e-6), ms.Tensor(1.0))
        return tuple(g * factor for g in grads)

    def step(self, batch):
        self.net.set_train()
        tokens = batch["tokens"]
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        count = (labels != PAD_ID).astype(ms.float32).sum()
        for held in self.sums:
            held.set_data(ops.zeros_like(held))
        total, start = 0.0, 0
        for rows in CHUNKS:
            part = slice(start, start + rows)
            loss, grads = self.grad_fn(inputs[part], labels[part], count)
            for held, grad in zip(self.sums, grads, strict=True):
                held.set_data(held + grad)
            total = total + loss / LOSS_SCALE
            start += rows
        grads = tuple(held / LOSS_SCALE for held in self.sums)
        grads = self.clip(grads)
        self.opt(grads)
        return total


def training():
    """The network, its optimizer and one step."""
    net = build()
    trainer = Trainer(net)
    return {"model": net, "optimizer": trainer.opt, "step": trainer.step}
