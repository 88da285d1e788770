"""Language model with routed experts; the experts are kept stacked and every token passes through all of them."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, One, Zero, initializer


def weight(name, *shape):
    return Parameter(initializer(Normal(0.02), shape, ms.float32), name=name)


def rms(x, scale, eps=1e-6):
    return x * ops.rsqrt(ops.mean(ops.square(x), -1, True) + eps) * scale


def gated(pair, width):
    return pair[..., :width] * ops.sigmoid(pair[..., :width]) * pair[..., width:]


class Mixer(nn.Cell):
    """attention; the projection holds, for every shared head, its queries, its key and its value one after another"""

    def __init__(self, width, shared, per_shared, size):
        super().__init__()
        self.shared, self.per_shared, self.size = shared, per_shared, size
        self.merge = nn.Dense(shared * per_shared * size, width, has_bias=False)
        self.fan_out = nn.Dense(width, shared * (per_shared + 2) * size, has_bias=False)
        self.k_scale = Parameter(initializer(One(), (size,)), name="k_scale")
        self.q_scale = Parameter(initializer(One(), (size,)), name="q_scale")

    def turn(self, x, angle):
        half = self.size // 2
        a, b, cos, sin = x[..., :half], x[..., half:], ops.cos(angle), ops.sin(angle)
        return ops.concat((a * cos - b * sin, a * sin + b * cos), -1)

    def construct(self, h, angle, future):
        b, t, _ = h.shape
        heads = self.fan_out(h).reshape(b, t, self.shared, self.per_shared + 2, self.size).transpose(0, 2, 3, 1, 4)
        query = self.turn(rms(heads[:, :, : self.per_shared], self.q_scale), angle)
        key = self.turn(rms(heads[:, :, self.per_shared : -1], self.k_scale), angle)
        value = heads[:, :, -1:]
        score = ops.matmul(query, key.swapaxes(-1, -2)) / self.size**0.5
        share = ops.softmax(ops.masked_fill(score, future, -1e30), -1)
        y = ops.matmul(share, value).transpose(0, 3, 1, 2, 4).reshape(b, t, -1)
        return self.merge(y)


class Pool(nn.Cell):
    """routed experts, stored (expert, in, out)"""

    def __init__(self, width, inner, count, active):
        super().__init__()
        self.inner, self.count, self.active = inner, count, active
        self.fused_in = weight("fused_in", count, width, 2 * inner)
        self.fused_out = weight("fused_out", count, inner, width)
        self.pick = weight("pick", width, count)
        self.lean = Parameter(initializer(Zero(), (count,)), name="lean")

    def construct(self, x):
        chance = ops.softmax(ops.matmul(x, self.pick) + self.lean, -1)
        top, which = ops.topk(chance, self.active)
        top = top / ops.sum(top, -1, True)
        mask = ops.one_hot(which, self.count, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
        share = ops.sum(mask * top.expand_dims(-1), 1)
        y = gated(ops.matmul(x.expand_dims(0), self.fused_in), self.inner)
        y = ops.matmul(y, self.fused_out)
        return ops.sum(y * share.T.expand_dims(-1), 0)


class Stage(nn.Cell):
    def __init__(self, width, inner, count, active, heads):
        super().__init__()
        self.inner = inner
        self.pool = Pool(width, inner, count, active)
        self.always_out = nn.Dense(inner, width, has_bias=False)
        self.always_in = nn.Dense(width, 2 * inner, has_bias=False)
        self.mixer = Mixer(width, *heads)
        self.s2 = Parameter(initializer(One(), (width,)), name="s2")
        self.s1 = Parameter(initializer(One(), (width,)), name="s1")

    def construct(self, h, angle, future):
        h = h + self.mixer(rms(h, self.s1), angle, future)
        x = rms(h, self.s2).reshape(-1, h.shape[-1])
        y = self.pool(x) + self.always_out(gated(self.always_in(x), self.inner))
        return h + y.reshape(h.shape)


class RoutedLM(nn.Cell):
    def __init__(self, symbols=52, width=32, depth=2, inner=24, count=4, active=2, heads=(2, 2, 8), base=1e4):
        super().__init__()
        self.size, self.base = heads[-1], base
        self.unembed = nn.Dense(width, symbols, has_bias=False)
        self.s_out = Parameter(initializer(One(), (width,)), name="s_out")
        self.stages = nn.CellList([Stage(width, inner, count, active, heads) for _ in range(depth)])
        self.codes = nn.Embedding(symbols, width)

    def construct(self, input_ids):
        t = input_ids.shape[1]
        rate = self.base ** (-np.arange(0, self.size, 2) / self.size)
        angle = Tensor(np.outer(np.arange(t), rate), ms.float32)
        future = Tensor(np.triu(np.ones((t, t), bool), 1))
        h = self.codes(input_ids)
        for stage in self.stages:
            h = stage(h, angle, future)
        return self.unembed(rms(h, self.s_out))


def build():
    return RoutedLM()
