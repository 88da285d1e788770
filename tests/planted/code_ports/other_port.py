"""The same in MindSpore, as engineers write it by hand: other calls, other ways, and all right."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class Retained(nn.Cell):
    """Attention that decays by distance, its table made once."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Dense(16, 16), nn.Dense(16, 16), nn.Dense(16, 16), nn.Dense(16, 16)
        self.norm = nn.GroupNorm(2, 16, eps=1e-3)

    def decay(self, t):
        gammas = 1.0 - 0.5 ** (1 + np.arange(2))
        apart = np.arange(t).reshape(-1, 1) - np.arange(t)
        kept = np.where(apart >= 0, gammas.reshape(2, 1, 1) ** np.maximum(apart, 0), 0.0)
        return Tensor(kept, ms.float32)

    def construct(self, x):
        b, t, _ = x.shape
        q = self.q(x).reshape(b, t, 2, 8).transpose(0, 2, 1, 3)
        k = self.k(x).reshape(b, t, 2, 8).transpose(0, 2, 3, 1)
        v = self.v(x).reshape(b, t, 2, 8).transpose(0, 2, 1, 3)
        scores = ops.matmul(q, k) / math.sqrt(8)
        y = ops.matmul(scores * self.decay(t), v)
        y = self.norm(y.transpose(0, 2, 1, 3).reshape(b * t, 16))
        return self.o(y).reshape(b, t, 16)


class Convex(nn.Cell):
    """A field made larger by means of nine points, which are cut out one by one."""

    def __init__(self):
        super().__init__()
        self.flow = nn.Conv2d(3, 2, 3, pad_mode="pad", padding=1, has_bias=True)
        self.mask = nn.Conv2d(3, 36, 3, pad_mode="pad", padding=1, has_bias=True)
        self.last = nn.Conv2d(2, 2, 1, has_bias=True)

    def construct(self, x):
        b, _, h, w = x.shape
        mask = self.mask(x).reshape(b, 9, 2, 2, h, w) * 0.25
        mask = ops.softmax(mask, axis=1)
        flow = ops.pad(self.flow(x) * 2.0, (1, 1, 1, 1))
        y = 0
        for i in range(9):
            part = flow[:, :, i // 3 : i // 3 + h, i % 3 : i % 3 + w]
            y = y + part.reshape(b, 2, 1, 1, h, w) * mask[:, i].expand_dims(1)
        y = y.transpose(0, 1, 4, 2, 5, 3)
        return self.last(y.reshape(b, 2, 2 * h, 2 * w))


class Relative(nn.Cell):
    """Attention by content and by relative place, gathered."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.p, self.o = [nn.Dense(16, 16) for _ in range(5)]
        self.u, self.w = (
            Parameter(Tensor(np.zeros((2, 8)), ms.float32)),
            Parameter(Tensor(np.zeros((2, 8)), ms.float32)),
        )

    def construct(self, x):
        b, t, _ = x.shape
        place = np.arange(t - 1, -t, -1.0)
        angles = place.reshape(-1, 1) / 100.0 ** (np.arange(8) / 8)
        table = Tensor(np.concatenate([np.sin(angles), np.cos(angles)], axis=-1), ms.float32)
        p = self.p(table).reshape(2 * t - 1, 2, 8).transpose(1, 2, 0)
        q = self.q(x).reshape(b, t, 2, 8)
        k = self.k(x).reshape(b, t, 2, 8).transpose(0, 2, 3, 1)
        v = self.v(x).reshape(b, t, 2, 8).transpose(0, 2, 1, 3)
        content = ops.matmul((q + self.u).transpose(0, 2, 1, 3), k)
        placed = ops.matmul((q + self.w).transpose(0, 2, 1, 3), p)
        index = Tensor(t - 1 - np.arange(t).reshape(-1, 1) + np.arange(t), ms.int32)
        placed = ops.gather_elements(placed, 3, index.broadcast_to((b, 2, t, t)))
        shares = ops.softmax((content + placed) / math.sqrt(8), axis=-1)
        return self.o(ops.matmul(shares, v).transpose(0, 2, 1, 3).reshape(b, t, 16))


class Selective(nn.Cell):
    """States that are kept by steps of unlike length, one token after the other."""

    def __init__(self):
        super().__init__()
        self.into, self.step, self.out = nn.Dense(16, 8), nn.Dense(8, 8), nn.Dense(8, 5)
        self.made, self.read = nn.Dense(8, 4, has_bias=False), nn.Dense(8, 4, has_bias=False)
        self.rate = Parameter(Tensor(np.zeros((8, 4)), ms.float32))
        self.skip = Parameter(Tensor(np.zeros(8), ms.float32))

    def construct(self, x):
        u = self.into(x)
        u = u * ops.sigmoid(u)
        delta = ops.log(1 + ops.exp(self.step(u)))
        made, read = self.made(u), self.read(u)
        kept = ops.exp(-delta.expand_dims(-1) * ops.exp(self.rate))
        added = (delta * u).expand_dims(-1) * made.expand_dims(2)
        state = ops.zeros((x.shape[0], 8, 4), x.dtype)
        outs = []
        for i in range(x.shape[1]):
            state = state * kept[:, i] + added[:, i]
            outs.append(ops.matmul(state, read[:, i].expand_dims(-1)).squeeze(-1))
        y = ops.stack(outs, axis=1)
        y = y + u * self.skip
        return self.out(y)


class Levels(nn.Cell):
    """Features that are rounded to some levels each."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(16, 3), nn.Dense(3, 5)
        levels = np.array([7, 5, 4])
        self.half = Tensor((levels - 1) * 0.999 / 2, ms.float32)
        self.offset = Tensor(np.where(levels % 2, 0.0, 0.5), ms.float32)
        self.shift = Tensor(np.arctanh(np.where(levels % 2, 0.0, 0.5) / ((levels - 1) * 0.999 / 2)), ms.float32)
        self.width = Tensor(levels // 2, ms.float32)

    def construct(self, x):
        z = ops.tanh(self.first(x) + self.shift)
        z = z * self.half - self.offset
        z = ops.round(z)
        return self.last(z / self.width)


class Centred(nn.Cell):
    """What tokens are apart from some centres, by a product and the sum of shares."""

    def __init__(self):
        super().__init__()
        self.assign = nn.Dense(16, 4)
        self.centres = Parameter(Tensor(np.zeros((4, 16)), ms.float32))
        self.last = nn.Dense(64, 5)

    def construct(self, x):
        x = x / ops.sqrt((x * x).sum(-1, keepdims=True))
        shares = ops.softmax(self.assign(x), axis=-1)
        y = ops.matmul(shares.swapaxes(1, 2), x)
        y = y - shares.sum(1).expand_dims(-1) * self.centres
        y = y / ops.sqrt((y * y).sum(2, keepdims=True))
        y = y.reshape(y.shape[0], -1)
        y = y / ops.sqrt((y * y).sum(1, keepdims=True))
        return self.last(y)


class Graphed(nn.Cell):
    """Means over neighbours, then attention to them."""

    def __init__(self):
        super().__init__()
        self.mean, self.w, self.last = nn.Dense(16, 12), nn.Dense(12, 8, has_bias=False), nn.Dense(8, 5)
        self.near = Parameter(Tensor(np.zeros(8), ms.float32))
        self.far = Parameter(Tensor(np.zeros(8), ms.float32))

    def construct(self, x, edges):
        a = edges.astype(x.dtype) + ops.eye(12, 12, x.dtype)
        root = 1.0 / ops.sqrt(a.sum(-1))
        a = a * root.expand_dims(2) * root.expand_dims(1)
        y = ops.elu(ops.matmul(a, self.mean(x)))
        h = self.w(y)
        near, far = (h * self.near).sum(-1), (h * self.far).sum(-1)
        scores = ops.leaky_relu(near.expand_dims(2) + far.expand_dims(1), 0.2)
        scores = ops.where(a > 0, scores, Tensor(-1e9, x.dtype))
        h = ops.matmul(ops.softmax(scores, axis=-1), h)
        return self.last(ops.elu(h))


class Squeezed(nn.Cell):
    """Channels weighted by what the whole image says."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.less, self.more = nn.Conv2d(8, 4, 1, has_bias=True), nn.Conv2d(4, 8, 1, has_bias=True)
        self.last = nn.Conv2d(8, 2, 1, has_bias=True)

    def construct(self, x):
        y = self.conv(x)
        y = y * ops.clamp(y + 3, 0, 6) / 6
        scale = y.mean((2, 3), keep_dims=True)
        scale = ops.relu(self.less(scale))
        scale = ops.clamp(self.more(scale) / 6 + 0.5, 0, 1)
        y = ops.pad(y * scale, (1, 1, 1, 1), value=-1e9)
        y = ops.max_pool2d(y, 3, 2)
        return self.last(y)


class Recurrent(nn.Cell):
    """A gated cell written by hand."""

    def __init__(self):
        super().__init__()
        self.x, self.h = nn.Dense(16, 24), nn.Dense(8, 24)
        self.last = nn.Dense(8, 5)

    def construct(self, x):
        h = ops.zeros((x.shape[0], 8), x.dtype)
        outs = []
        given = self.x(x)
        for i in range(x.shape[1]):
            before = self.h(h)
            gates = ops.sigmoid(given[:, i, :16] + before[:, :16])
            r, z = gates[:, :8], gates[:, 8:]
            n = ops.tanh(given[:, i, 16:] + r * before[:, 16:])
            h = n + z * (h - n)
            outs.append(h)
        return self.last(ops.stack(outs, axis=1))


class Chained(nn.Cell):
    """Shares of labels in a chain, by sums over all ways."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Dense(16, 4)
        self.moves = Parameter(Tensor(np.zeros((4, 4)), ms.float32))
        self.start = Parameter(Tensor(np.zeros(4), ms.float32))

    def construct(self, x):
        e = self.scores(x)
        alpha = e[:, 0] + self.start
        seen = []
        for i in range(1, x.shape[1]):
            ways = alpha.expand_dims(2) + self.moves
            alpha = ops.log(ops.exp(ways).sum(1)) + e[:, i]
            seen.append(alpha)
        total = ops.log(ops.exp(alpha).sum(-1))
        return ops.stack(seen, axis=1) - total.reshape(-1, 1, 1)


def waves(size):
    """The cosines and sines of a transform to frequencies."""
    angles = 2 * np.pi * np.outer(np.arange(size), np.arange(size)) / size
    return Tensor(np.cos(angles), ms.float32), Tensor(np.sin(angles), ms.float32)


class Mixed(nn.Cell):
    """Tokens mixed by a transform to frequencies, by tables, and a block of two layers."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm((16,), epsilon=1e-5)
        self.up, self.down = nn.Dense(16, 32), nn.Dense(32, 16)
        self.cos_t, self.sin_t = waves(12)
        self.cos_d, self.sin_d = waves(16)

    def construct(self, x):
        real = ops.matmul(ops.matmul(self.cos_t, x), self.cos_d)
        real = real - ops.matmul(ops.matmul(self.sin_t, x), self.sin_d)
        y = self.norm(x + real)
        h = self.up(y)
        h = 0.5 * h * (1 + ops.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * ops.pow(h, 3))))
        return y + self.down(h)


class Placed(nn.Cell):
    """Places that are counted over what is no padding, beside the tokens."""

    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(20, 16), nn.Embedding(16, 16)
        self.norm, self.last = nn.LayerNorm((16,), epsilon=1e-3), nn.Dense(16, 5)

    def construct(self, ids):
        mask = (ids != 1).astype(ms.int32)
        places = ops.cumsum(mask, 1).astype(ms.int32) * mask + 1
        y = self.token(ids) * math.sqrt(16) + self.place(places)
        y = self.norm(y)
        y = y + (1 - mask.expand_dims(-1).astype(y.dtype)) * -1e4
        y = ops.amax(y, 1)
        return self.last(ops.tanh(y))


class Pyramid(nn.Cell):
    """Coarse features added to fine ones."""

    def __init__(self):
        super().__init__()
        self.fine = nn.Conv2d(3, 8, 3, stride=2, pad_mode="pad", padding=1, has_bias=True)
        self.coarse = nn.Conv2d(8, 8, 3, stride=2, pad_mode="pad", padding=1, has_bias=True)
        self.a, self.b = nn.Conv2d(8, 4, 1, has_bias=True), nn.Conv2d(8, 4, 1, has_bias=True)
        self.last = nn.Conv2d(4, 2, 3, pad_mode="pad", padding=1, has_bias=True)

    def construct(self, x):
        fine = ops.relu(self.fine(x))
        top = self.b(ops.relu(self.coarse(fine)))
        rows = Tensor(np.arange(5) * 3 // 5, ms.int32)
        columns = Tensor(np.arange(6) * 3 // 6, ms.int32)
        top = ops.gather(ops.gather(top, rows, 2), columns, 3)
        y = self.a(fine) + top
        square = ops.pad(y * y, (0, 0, 0, 0, 1, 1))
        near = square[:, :-2] + square[:, 1:-1] + square[:, 2:]
        y = y / ops.pow(1.0 + 0.3 * near / 3, 0.75)
        return self.last(y)


class Sliding(nn.Cell):
    """Attention to the four tokens before, written out, its mask made by NumPy."""

    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Dense(16, 48), nn.Dense(16, 16)

    def construct(self, x):
        b, t, _ = x.shape
        qkv = self.qkv(x).reshape(b, t, 3, 2, 8).transpose(2, 0, 3, 1, 4)
        scores = ops.matmul(qkv[0], qkv[1].swapaxes(-1, -2)) / math.sqrt(8)
        apart = np.arange(t).reshape(-1, 1) - np.arange(t)
        hidden = (apart < 0) | (apart > 3)
        hidden[:, 0] = False
        scores = scores + Tensor(hidden * -1e9, ms.float32)
        y = ops.matmul(ops.softmax(scores, axis=-1), qkv[2])
        return self.o(y.transpose(0, 2, 1, 3).reshape(b, t, 16))


class Anchored(nn.Cell):
    """Boxes by the distances of their sides from points of a grid."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, pad_mode="pad", padding=1, has_bias=True)
        self.sides, self.score = nn.Conv2d(8, 4, 1, has_bias=True), nn.Conv2d(8, 1, 1, has_bias=True)

    def construct(self, x):
        y = ops.relu(self.conv(x))
        b, _, h, w = y.shape
        columns = ops.arange(w).astype(x.dtype) * 2 + 1
        rows = ops.arange(h).astype(x.dtype) * 2 + 1
        columns = columns.reshape(1, 1, w).broadcast_to((b, h, w))
        rows = rows.reshape(1, h, 1).broadcast_to((b, h, w))
        sides = ops.log(1 + ops.exp(self.sides(y)))
        left, top = columns - sides[:, 0], rows - sides[:, 1]
        right, bottom = columns + sides[:, 2], rows + sides[:, 3]
        boxes = ops.stack([left, top, right, bottom], axis=-1)
        return boxes.reshape(b, h * w, 4), ops.sigmoid(self.score(y)).reshape(b, h * w)


class Styled(nn.Cell):
    """A norm of each channel of each image, written out, and moved by a style."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, pad_mode="pad", padding=1, has_bias=True)
        self.last = nn.Conv2d(6, 2, 1, has_bias=True)
        self.style = nn.Dense(3, 12)

    def construct(self, x):
        y = self.conv(x) * 0.1
        style = self.style(x.mean((2, 3))).reshape(-1, 12, 1, 1)
        mean = y.mean((2, 3), keep_dims=True)
        variance = ops.square(y - mean).mean((2, 3), keep_dims=True)
        y = (y - mean) / ops.sqrt(variance + 1e-3)
        y = y * (style[:, :6] + 1) + style[:, 6:]
        y = ops.maximum(y, 0.2 * y)
        y = y * ops.rsqrt(ops.square(y).mean(1, keep_dims=True) + 1e-8)
        return self.last(y)


class Lifted(nn.Cell):
    """A wave made longer by shares of its neighbours, with a snake for its activation."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(12, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.last = nn.Conv1d(8, 4, 3, pad_mode="pad", padding=0, has_bias=True)
        self.alpha = Parameter(Tensor(np.ones(8), ms.float32))

    def construct(self, x):
        y = self.first(x)
        before = ops.concat([y[..., :1], y[..., :-1]], axis=-1)
        behind = ops.concat([y[..., 1:], y[..., -1:]], axis=-1)
        y = ops.stack([0.25 * before + 0.75 * y, 0.75 * y + 0.25 * behind], axis=-1)
        y = y.reshape(y.shape[0], 8, -1)
        alpha = self.alpha.expand_dims(-1)
        y = y + (1 - ops.cos(2 * alpha * y)) / (2 * alpha)
        y = ops.concat([y[..., :1], y, y[..., -1:]], axis=-1)
        return ops.tanh(self.last(y))


def build(name):
    """A port by the name of its class."""
    ms.set_seed(0)
    return globals()[name]().set_train(False)
