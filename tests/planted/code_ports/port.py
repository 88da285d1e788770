"""The same in MindSpore, as engineers write it by hand: other calls, other ways, and all right."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class Router(nn.Cell):
    """Experts chosen for each token."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm((16,), epsilon=1e-5)
        self.gate = nn.Dense(16, 6, has_bias=False)
        self.experts = nn.CellList([nn.Dense(16, 8) for _ in range(6)])
        self.head = nn.Dense(8, 5)

    def construct(self, x):
        x = self.norm(x)
        scores = self.gate(x)
        shares = ops.softmax(scores, axis=-1)
        top, index = ops.topk(shares, 2, dim=-1)
        chosen = ops.one_hot(index, 6, Tensor(1.0), Tensor(0.0))
        weights = (chosen * top.expand_dims(-1)).sum(-2)
        made = ops.stack([one(x) for one in self.experts], axis=-2)
        return self.head((weights.expand_dims(-1) * made).sum(-2))


class Spectrogram(nn.Cell):
    """Logarithms of a spectrogram's power, by frames and tables of cosines and sines."""

    def __init__(self):
        super().__init__()
        self.window = Tensor(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(32) / 32), ms.float32)
        angles = 2 * np.pi * np.outer(np.arange(32), np.arange(17)) / 32
        self.cos, self.sin = Tensor(np.cos(angles), ms.float32), Tensor(np.sin(angles), ms.float32)
        self.fc = nn.Dense(17, 8)

    def construct(self, x):
        x = ops.pad(x.expand_dims(1), (16, 16), mode="reflect").squeeze(1)
        frames = ops.stack([x[:, 16 * i : 16 * i + 32] for i in range(17)], axis=1)
        frames = frames * self.window
        real, imaginary = ops.matmul(frames, self.cos), ops.matmul(frames, self.sin)
        power = ops.square(real) + ops.square(imaginary)
        return self.fc(ops.log(power + 1e-3))


class Packed(nn.Cell):
    """A recurrent layer over sequences of unlike lengths."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(16, 8, batch_first=True, bidirectional=True)
        self.head = nn.Dense(16, 5)

    def construct(self, x, lengths):
        out, _ = self.rnn(x, seq_length=lengths.astype(ms.int32))
        mask = (ops.arange(x.shape[1]).expand_dims(0) < lengths.expand_dims(1)).astype(x.dtype)
        total = (out * mask.expand_dims(-1)).sum(1)
        return self.head(total / lengths.expand_dims(1).astype(x.dtype))


def triangles(size, to):
    """The weights of a linear filter that makes an axis shorter."""
    step = size / to
    middle = (np.arange(to) + 0.5) * step
    table = np.maximum(0.0, 1.0 - np.abs((np.arange(size) + 0.5 - middle[:, None]) / step))
    return Tensor(table / table.sum(1, keepdims=True), ms.float32)


class Resized(nn.Cell):
    """An image made smaller, with a filter, and larger again."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, pad_mode="pad", padding=1, has_bias=True)
        self.mix = nn.Conv2d(4, 4, 1, has_bias=True)
        self.last = nn.Conv2d(4, 2, 1, has_bias=True)
        self.rows, self.columns = triangles(10, 5), triangles(12, 6)

    def construct(self, x):
        y = self.conv(x)
        y = ops.matmul(ops.matmul(self.rows, y), self.columns.T)
        y = ops.relu(self.mix(y))
        y = ops.interpolate(y, size=(10, 12), mode="bilinear", align_corners=False)
        return self.last(y)


class Warped(nn.Cell):
    """A feature map read at other places."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, pad_mode="pad", padding=1, has_bias=True)
        self.flow = nn.Conv2d(4, 2, 3, pad_mode="pad", padding=1, has_bias=True)
        self.last = nn.Conv2d(4, 2, 1, has_bias=True)

    def construct(self, x):
        y = self.conv(x)
        h, w = y.shape[2], y.shape[3]
        columns = (2 * ops.arange(w).astype(x.dtype) + 1) / w - 1
        rows = (2 * ops.arange(h).astype(x.dtype) + 1) / h - 1
        places = [columns.reshape(1, -1).broadcast_to((h, w)), rows.reshape(-1, 1).broadcast_to((h, w))]
        grid = ops.stack(places, axis=-1)
        moved = 0.3 * ops.tanh(self.flow(y))
        grid = grid + moved.transpose(0, 2, 3, 1)
        y = ops.grid_sample(y, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        return self.last(y)


def slopes(heads):
    """The slopes of linear biases, for any number of heads."""
    near = 2 ** int(np.log2(heads))
    first = 2.0 ** (-8.0 / near * np.arange(1, near + 1))
    more = 2.0 ** (-4.0 / near * np.arange(1, 2 * (heads - near), 2))
    return np.concatenate([first, more])


class Biased(nn.Cell):
    """Causal attention with linear biases for six heads."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Dense(16, 48), nn.Dense(16, 48), nn.Dense(16, 48), nn.Dense(48, 16)
        self.slopes = Tensor(slopes(6).reshape(6, 1, 1), ms.float32)

    def construct(self, x):
        b, t, _ = x.shape
        q = self.q(x).reshape(b, t, 6, 8).transpose(0, 2, 1, 3)
        k = self.k(x).reshape(b, t, 6, 8).transpose(0, 2, 3, 1)
        v = self.v(x).reshape(b, t, 6, 8).transpose(0, 2, 1, 3)
        scores = ops.matmul(q, k) / math.sqrt(8)
        place = ops.arange(t).astype(x.dtype)
        scores = scores + self.slopes * (place.expand_dims(0) - place.expand_dims(1))
        hidden = ops.triu(ops.ones((t, t), x.dtype), 1)
        scores = scores + hidden * -1e9
        y = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.o(y.transpose(0, 2, 1, 3).reshape(b, t, 48))


def turned(x):
    """Features with rotary positions."""
    t, d = x.shape[-2], x.shape[-1]
    inverse = 1.0 / 100.0 ** (np.arange(0, d, 2) / d)
    angles = np.outer(np.arange(t), inverse)
    cos, sin = Tensor(np.cos(angles), ms.float32), Tensor(np.sin(angles), ms.float32)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return ops.concat([a * cos - b * sin, b * cos + a * sin], axis=-1)


class Grouped(nn.Cell):
    """Attention with rotary positions whose queries share keys in groups."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Dense(16, 32), nn.Dense(16, 16), nn.Dense(16, 16), nn.Dense(32, 16)

    def construct(self, x):
        b, t, _ = x.shape
        q = turned(self.q(x).reshape(b, t, 4, 8).swapaxes(1, 2)) * 8**-0.5
        k = turned(self.k(x).reshape(b, t, 2, 8).swapaxes(1, 2))
        v = self.v(x).reshape(b, t, 2, 8).swapaxes(1, 2)
        k = ops.repeat_interleave(k, 2, 1)
        v = ops.repeat_interleave(v, 2, 1)
        scores = ops.matmul(q, k.swapaxes(-1, -2))
        seen = ops.tril(ops.ones((t, t), ms.int32)).astype(ms.bool_)
        scores = ops.select(seen.broadcast_to(scores.shape), scores, ops.full_like(scores, -1e9))
        y = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.o(y.swapaxes(1, 2).reshape(b, t, 32))


class Gated(nn.Cell):
    """A block with a norm by the root of the mean square, and a gate."""

    def __init__(self):
        super().__init__()
        self.first = nn.Dense(16, 16)
        self.gain = Parameter(ops.ones(16))
        self.up = nn.Dense(16, 48)
        self.down = nn.Dense(24, 16)

    def construct(self, x):
        x = self.first(x) * 0.05
        size = ops.sqrt(ops.square(x).mean(-1, keep_dims=True) + 1e-3)
        y = x / size * self.gain
        y = self.up(y)
        gate, value = y[..., :24], y[..., 24:]
        gate = 0.5 * gate * (1 + ops.erf(gate / math.sqrt(2)))
        return x + self.down(gate * value)


class Dilated(nn.Cell):
    """Two convolutions that pad what they are given."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Conv2d(3, 4, 3, pad_mode="pad", padding=2, dilation=2, has_bias=True)
        self.near = nn.Conv2d(4, 4, 3, pad_mode="same", has_bias=True)
        self.last = nn.Conv2d(4, 2, 1, has_bias=True)

    def construct(self, x):
        y = ops.relu(self.wide(x))
        return self.last(ops.relu(self.near(y)))


def rolled(x, by):
    """A map moved round in both directions, which the framework has no kernel for on the CPU."""
    x = ops.concat([x[:, -by:], x[:, :-by]], axis=1)
    return ops.concat([x[:, :, -by:], x[:, :, :-by]], axis=2)


class Windows(nn.Cell):
    """Attention in windows that are moved."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Dense(16, 48)
        self.table = Parameter(ops.zeros((49, 2)))
        self.proj = nn.Dense(16, 16)
        rows, columns = np.divmod(np.arange(16), 4)
        apart = (rows[:, None] - rows[None] + 3) * 7 + columns[:, None] - columns[None] + 3
        self.index = Tensor(apart.reshape(-1), ms.int32)

    def construct(self, x):
        b, h, w, c = x.shape
        x = rolled(x, -2)
        x = x.reshape(b, h // 4, 4, w // 4, 4, c).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        qkv = self.qkv(x).reshape(-1, 16, 3, 2, 8).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * 8**-0.5, qkv[1], qkv[2]
        bias = ops.gather(self.table, self.index, 0).reshape(16, 16, 2).transpose(2, 0, 1)
        scores = ops.matmul(q, k.swapaxes(-1, -2)) + bias.expand_dims(0)
        y = ops.matmul(ops.softmax(scores, -1), v).transpose(0, 2, 1, 3).reshape(-1, 16, c)
        y = self.proj(y).reshape(b, h // 4, w // 4, 4, 4, c)
        y = y.transpose(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return rolled(y, 2)


class Pooled(nn.Cell):
    """The mean of what is no padding, of length one, compared with the others of its batch."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Dense(16, 24)
        self.proj = nn.Dense(24, 12, has_bias=False)
        self.scale = Parameter(Tensor(0.0, ms.float32))

    def construct(self, x, attention_mask):
        y = ops.tanh(self.embed(x))
        mask = attention_mask.expand_dims(-1).astype(x.dtype)
        count = ops.maximum(mask.sum(1), Tensor(1e-9))
        y = self.proj((y * mask).sum(1) / count)
        length = ops.sqrt(ops.square(y).sum(-1, keepdims=True))
        y = y / length
        return ops.exp(self.scale) * ops.matmul(y, y.T)


class Pixels(nn.Cell):
    """An image in patches, and back."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Dense(12, 16)
        self.out = nn.Conv2d(16, 12, 1, has_bias=True)

    def construct(self, x):
        b, c, h, w = x.shape
        y = x.reshape(b, c, h // 2, 2, w // 2, 2)
        y = y.transpose(0, 2, 4, 1, 3, 5).reshape(b, -1, c * 4)
        y = self.embed(y)
        y = y * ops.sigmoid(y)
        y = self.out(y.swapaxes(1, 2).reshape(b, 16, h // 2, w // 2))
        y = y.reshape(b, 3, 2, 2, h // 2, w // 2)
        return y.transpose(0, 1, 4, 2, 5, 3).reshape(b, 3, h, w)


class Normed(nn.Cell):
    """A convolution with standardised weights, and a norm in groups."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(ops.zeros((8, 3, 3, 3)))
        self.gain, self.bias = Parameter(ops.ones(8)), Parameter(ops.zeros(8))
        self.last = nn.Conv2d(8, 2, 1, has_bias=True)

    def construct(self, x):
        flat = self.weight.reshape(8, -1)
        flat = flat - flat.mean(1, keep_dims=True)
        spread = ops.sqrt(ops.square(flat).sum(1, keepdims=True) / 26)
        weight = flat / (spread + 1e-5)
        y = ops.conv2d(x, weight.reshape(8, 3, 3, 3), pad_mode="pad", padding=1)
        b, c, h, w = y.shape
        y = y.reshape(b, 4, -1)
        mean = y.mean(-1, keep_dims=True)
        variance = ops.square(y - mean).mean(-1, keep_dims=True)
        y = ((y - mean) / ops.sqrt(variance + 1e-3)).reshape(b, c, h, w)
        y = y * self.gain.reshape(1, 8, 1, 1) + self.bias.reshape(1, 8, 1, 1)
        return self.last(ops.relu(y))


class Timed(nn.Cell):
    """Features that are moved by the time of a step."""

    def __init__(self):
        super().__init__()
        self.time = nn.SequentialCell(nn.Dense(16, 32), nn.SiLU(), nn.Dense(32, 32))
        self.first = nn.Dense(16, 16)
        self.last = nn.Dense(16, 5)
        self.frequencies = Tensor(1000.0 ** (-np.arange(8) / 8), ms.float32)

    def construct(self, x, t):
        angles = t.expand_dims(1).astype(x.dtype) * self.frequencies
        made = self.time(ops.concat([ops.cos(angles), ops.sin(angles)], axis=-1))
        scale, shift = ops.chunk(made.expand_dims(1), 2, -1)
        y = self.first(x)
        y = y - y.mean(-1, keep_dims=True)
        y = y / ops.sqrt(ops.square(y).mean(-1, keep_dims=True) + 1e-6)
        return self.last(y * (1 + scale) + shift)


class Scanned(nn.Cell):
    """Linear attention over what was before."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Dense(16, 8), nn.Dense(16, 8), nn.Dense(16, 8), nn.Dense(8, 16)

    def construct(self, x):
        q, k, v = ops.elu(self.q(x)) + 1, ops.elu(self.k(x)) + 1, self.v(x)
        states = ops.cumsum(k.expand_dims(-1) * v.expand_dims(-2), 1)
        sums = ops.cumsum(k, 1)
        above = (q.expand_dims(-1) * states).sum(-2)
        below = (q * sums).sum(-1, keepdims=True) + 1e-6
        return self.o(above / below)


class Boxes(nn.Cell):
    """Boxes from anchors and what is added to them, with their scores."""

    def __init__(self):
        super().__init__()
        self.deltas, self.scores = nn.Dense(16, 4), nn.Dense(16, 3)
        self.anchors = Parameter(ops.zeros((12, 4)), requires_grad=False)

    def construct(self, x):
        deltas = self.deltas(x)
        size = self.anchors[:, 2:] - self.anchors[:, :2]
        center = self.anchors[:, :2] + 0.5 * size
        center = center + deltas[..., :2] * size
        size = size * ops.exp(ops.clamp(deltas[..., 2:], max=0.5))
        boxes = ops.concat([center - 0.5 * size, center + 0.5 * size], axis=-1)
        return boxes, ops.amax(ops.sigmoid(self.scores(x)), -1)


class Handmade(nn.Cell):
    """A norm and a smooth function by one call each."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(16, 24), nn.Dense(24, 5)
        self.gain, self.shift = Parameter(ops.ones(24)), Parameter(ops.zeros(24))
        self.norm = ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=1e-3)

    def construct(self, x):
        y = self.first(x)
        y = self.norm(y, self.gain, self.shift)[0]
        return self.last(y * ops.sigmoid(y * 1.702))


class Convolved(nn.Cell):
    """Each channel convolved over what was before, and gated."""

    def __init__(self):
        super().__init__()
        self.first, self.gate, self.last = nn.Dense(16, 8), nn.Dense(16, 8), nn.Dense(8, 5)
        self.kernel = Parameter(ops.zeros((8, 4)))

    def construct(self, x):
        y = self.first(x)
        t = y.shape[1]
        y = ops.concat([ops.zeros((y.shape[0], 3, 8), y.dtype), y], axis=1)
        made = 0
        for i in range(4):
            made = made + y[:, i : i + t] * self.kernel[:, i]
        return self.last(ops.silu(made) * ops.sigmoid(self.gate(x)))


def buckets(t):
    """The numbers of biases for all pairs of places."""
    apart = np.arange(t)[None] - np.arange(t)[:, None]
    near = np.abs(apart)
    far = 2 + (np.log(np.maximum(near, 1) / 2) / math.log(16 / 2) * 2).astype(int)
    return 4 * (apart > 0) + np.where(near < 2, near, np.minimum(far, 3))


class Buckets(nn.Cell):
    """Attention with biases by the logarithm of the distance."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Dense(16, 16), nn.Dense(16, 16), nn.Dense(16, 16), nn.Dense(16, 16)
        self.bias = nn.Embedding(8, 2)

    def construct(self, x):
        b, t, _ = x.shape
        q = self.q(x).reshape(b, t, 2, 8).swapaxes(1, 2)
        k = self.k(x).reshape(b, t, 2, 8).swapaxes(1, 2)
        v = self.v(x).reshape(b, t, 2, 8).swapaxes(1, 2)
        places = Tensor(buckets(t), ms.int32)
        bias = self.bias(places).transpose(2, 0, 1)
        scores = ops.matmul(q, k.swapaxes(-1, -2)) + bias
        y = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.o(y.swapaxes(1, 2).reshape(b, t, 16))


class Codes(nn.Cell):
    """The nearest of some vectors for each token."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Dense(16, 6), nn.Dense(6, 5)
        self.codes = Parameter(ops.zeros((10, 6)))

    def construct(self, x):
        y = self.before(x)
        apart = ops.square(y.expand_dims(-2) - self.codes).sum(-1)
        index = ops.argmin(apart, axis=-1)
        chosen = ops.gather(self.codes, index, 0)
        return self.after(chosen + y * 0.1)


class Shifted(nn.Cell):
    """Some channels from the step before, some from the step behind."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(16, 16), nn.Dense(16, 5)

    def construct(self, x):
        y = self.first(x)
        nothing = ops.zeros_like(y[:, :1, :4])
        before = ops.concat((nothing, y[:, :-1, :4]), axis=1)
        behind = ops.concat((y[:, 1:, 4:8], nothing), axis=1)
        y = ops.concat((before, behind, y[:, :, 8:]), axis=2)
        y = ops.amax(y.reshape(y.shape[0], -1, 2, 16), 2)
        return self.last(y / ops.sqrt(ops.square(y).sum(-1, keepdims=True)))


class Crossed(nn.Cell):
    """Learnt queries that attend to what is no padding."""

    def __init__(self):
        super().__init__()
        self.queries = Parameter(ops.zeros((3, 16)))
        self.kv, self.o = nn.Dense(16, 32), nn.Dense(16, 5)

    def construct(self, x, attention_mask):
        b, t, _ = x.shape
        kv = self.kv(x)
        k, v = kv[..., :16], kv[..., 16:]
        q = self.queries.reshape(3, 4, 4).swapaxes(0, 1)
        k = k.reshape(b, t, 4, 4).transpose(0, 2, 3, 1)
        v = v.reshape(b, t, 4, 4).transpose(0, 2, 1, 3)
        scores = ops.matmul(q, k) / 2.0
        hidden = (1 - attention_mask.astype(x.dtype)) * -1e9
        scores = scores + hidden.reshape(b, 1, 1, t)
        y = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.o(y.transpose(0, 2, 1, 3).reshape(b, 3, 16))


def build(name):
    """A port by the name of its class."""
    return globals()[name]().set_train(False)
