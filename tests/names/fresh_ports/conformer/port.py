"""Speech encoder for MindSpore."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def swish(x):
    return x * ops.sigmoid(x)


class ChannelNorm(nn.Cell):
    """Normalises the last axis."""

    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.offset = Parameter(Tensor(np.zeros(width), ms.float32))
        self.gain = Parameter(Tensor(np.ones(width), ms.float32))

    def construct(self, x):
        x = x - x.mean(-1, keep_dims=True)
        return x * ops.rsqrt((x * x).mean(-1, keep_dims=True) + self.eps) * self.gain + self.offset


class MacaronHalf(nn.Cell):
    def __init__(self, width, hidden):
        super().__init__()
        self.contract = nn.Dense(hidden, width)
        self.expand = nn.Dense(width, hidden)
        self.pre = ChannelNorm(width)

    def construct(self, x):
        return x + self.contract(swish(self.expand(self.pre(x)))) * 0.5


class DistanceAwareMixer(nn.Cell):
    """Self-attention whose scores also depend on the distance of the two frames."""

    def __init__(self, width, groups):
        super().__init__()
        self.groups, self.size = groups, width // groups
        self.where = nn.Dense(width, width, has_bias=False)
        self.triple = nn.Dense(width, 3 * width, has_bias=False)
        self.merge = nn.Dense(width, width)
        self.shift_distance = Parameter(Tensor(np.zeros((groups, 1, self.size)), ms.float32))
        self.shift_content = Parameter(Tensor(np.zeros((groups, 1, self.size)), ms.float32))

    def construct(self, x, distances, hidden_keys):
        b, t, c = x.shape
        # for each head its query, key and value
        qkv = self.triple(x).reshape(b, t, self.groups, 3, self.size).transpose(3, 0, 2, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        rel = self.where(distances).reshape(t, t, self.groups, self.size).transpose(2, 0, 3, 1)
        by_content = ops.matmul(q + self.shift_content, k.swapaxes(-1, -2))
        by_distance = ops.matmul((q + self.shift_distance).expand_dims(-2), rel).squeeze(-2)
        logit = (by_content + by_distance) * (self.size**-0.5)
        logit = ops.masked_fill(logit, hidden_keys.reshape(b, 1, 1, t), -1e9)
        mixed = ops.matmul(ops.softmax(logit, -1), v)
        return self.merge(mixed.transpose(0, 2, 1, 3).reshape(b, t, c))


class LocalMixer(nn.Cell):
    """Gated linear unit, one filter a channel, normalisation by running statistics."""

    def __init__(self, width, taps):
        super().__init__()
        self.squash = nn.Dense(width, width)
        self.stat = nn.BatchNorm1d(width)
        self.taps = nn.Conv1d(width, width, taps, pad_mode="pad", padding=taps // 2, group=width, has_bias=True)
        self.widen = nn.Dense(width, 2 * width)

    def construct(self, x, hidden_frames):
        b, t, c = x.shape
        y = self.widen(x)
        y = y[..., :c] * ops.sigmoid(y[..., c:])
        y = ops.masked_fill(y, hidden_frames.expand_dims(-1), 0.0)
        y = self.taps(y.swapaxes(1, 2)).swapaxes(1, 2)
        y = swish(self.stat(y.reshape(b * t, c))).reshape(b, t, c)
        return self.squash(y)


class Stage(nn.Cell):
    def __init__(self, width, groups, hidden, taps):
        super().__init__()
        self.close = ChannelNorm(width)
        self.sandwich = nn.CellList([MacaronHalf(width, hidden), MacaronHalf(width, hidden)])
        self.local = LocalMixer(width, taps)
        self.local_pre = ChannelNorm(width)
        self.far = DistanceAwareMixer(width, groups)
        self.far_pre = ChannelNorm(width)

    def construct(self, x, distances, hidden):
        x = self.sandwich[0](x)
        x = x + self.far(self.far_pre(x), distances, hidden)
        x = x + self.local(self.local_pre(x), hidden)
        return self.close(self.sandwich[1](x))


class SpeechEncoder(nn.Cell):
    def __init__(self, bins=18, width=32, groups=4, hidden=64, taps=7, depth=2, symbols=24):
        super().__init__()
        self.width = width
        self.to_symbols = nn.Dense(width, symbols)
        self.stages = nn.CellList([Stage(width, groups, hidden, taps) for _ in range(depth)])
        self.reduce_b = nn.Conv2d(width, width, 3, stride=2, pad_mode="valid", has_bias=True)
        self.reduce_a = nn.Conv2d(1, width, 3, stride=2, pad_mode="valid", has_bias=True)
        self.flatten_in = nn.Dense(width * (((bins - 1) // 2 - 1) // 2), width)

    def distance_table(self, t):
        gap = np.arange(t)[:, None] - np.arange(t)[None]
        pairs = np.arange(0, self.width, 2)
        angle = gap[..., None] * 10000.0 ** (-pairs / self.width)
        return Tensor(np.stack((np.sin(angle), np.cos(angle)), -1).reshape(t, t, self.width), ms.float32)

    def construct(self, feats, lengths):
        x = ops.relu(self.reduce_b(ops.relu(self.reduce_a(feats.expand_dims(1)))))
        b, c, t, f = x.shape
        x = self.flatten_in(x.transpose(0, 2, 3, 1).reshape(b, t, f * c))
        kept = ((lengths - 1) // 2 - 1) // 2
        hidden = ops.arange(t).expand_dims(0) >= kept.expand_dims(-1)
        distances = self.distance_table(t)
        for stage in self.stages:
            x = stage(x, distances, hidden)
        return self.to_symbols(x)


def build():
    return SpeechEncoder()
