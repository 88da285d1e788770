import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def table(*shape):
    return Parameter(Tensor(np.random.default_rng(0).normal(0, 0.02, shape), ms.float32))


class Mlp(nn.Cell):
    def __init__(self, size, factor):
        super().__init__()
        self.shrink = nn.Dense(size * factor, size)
        self.grow = nn.Dense(size, size * factor, activation=nn.GELU(approximate=False))

    def construct(self, x):
        return self.shrink(self.grow(x))


class SelfMix(nn.Cell):
    def __init__(self, size, parts):
        super().__init__()
        self.parts = parts
        self.finish = nn.Dense(size, size)
        self.content = nn.Dense(size, size)
        self.address = nn.Dense(size, 2 * size)

    def apart(self, x):
        b, n, c = x.shape
        return x.reshape(b, n, self.parts, c // self.parts).transpose(0, 2, 1, 3)

    def construct(self, x, blind):
        b, n, c = x.shape
        key, query = ops.split(self.address(x), c, -1)
        s = ops.matmul(self.apart(query), self.apart(key).transpose(0, 1, 3, 2)) / (c // self.parts) ** 0.5
        if blind is not None:
            s = ops.masked_fill(s, blind, -1e9)
        y = ops.matmul(ops.softmax(s, -1), self.apart(self.content(x)))
        return self.finish(y.transpose(0, 2, 1, 3).reshape(b, n, c))


class Trunk(nn.Cell):
    """The same for pictures and for words."""

    def __init__(self, size, depth, parts, factor):
        super().__init__()
        self.mlps = nn.CellList([Mlp(size, factor) for _ in range(depth)])
        self.mixes = nn.CellList([SelfMix(size, parts) for _ in range(depth)])
        # two a level: before the mix, before the perceptron
        self.norms = nn.CellList([nn.LayerNorm((size,), epsilon=1e-5) for _ in range(2 * depth)])

    def construct(self, x, blind=None):
        for i in range(len(self.mixes)):
            x = x + self.mixes[i](self.norms[2 * i](x), blind)
            x = x + self.mlps[i](self.norms[2 * i + 1](x))
        return x


class Words(nn.Cell):
    def __init__(self, size, depth, parts, factor, dictionary, longest, common):
        super().__init__()
        self.to_common = nn.Dense(size, common, has_bias=False)
        self.trunk = Trunk(size, depth, parts, factor)
        self.last_norm = nn.LayerNorm((size,), epsilon=1e-5)
        self.order = table(1, longest, size)
        self.lexicon = nn.Embedding(dictionary, size)

    def construct(self, ids):
        n = ids.shape[1]
        blind = Tensor(np.triu(np.ones((n, n), bool), 1))
        x = self.trunk(self.lexicon(ids) + self.order[:, :n], blind)
        # one row a text: where its highest number stands
        chosen = (ops.arange(n).expand_dims(0) == ids.argmax(-1).expand_dims(-1)).astype(x.dtype)
        return self.to_common(self.last_norm((x * chosen.expand_dims(-1)).sum(1)))


class Pictures(nn.Cell):
    def __init__(self, size, depth, parts, factor, side, cut, common):
        super().__init__()
        self.cut = cut
        self.to_common = nn.Dense(size, common, has_bias=False)
        self.last_norm = nn.LayerNorm((size,), epsilon=1e-5)
        self.trunk = Trunk(size, depth, parts, factor)
        self.first_norm = nn.LayerNorm((size,), epsilon=1e-5)
        self.order = table(1, (side // cut) ** 2 + 1, size)
        self.summary = table(1, 1, size)
        self.tile = nn.Dense(cut * cut * 3, size, has_bias=False)

    def construct(self, image):
        b, c, h, w = image.shape
        p = self.cut
        x = image.reshape(b, c, h // p, p, w // p, p).transpose(0, 2, 4, 3, 5, 1)
        x = self.tile(x.reshape(b, (h // p) * (w // p), p * p * c))
        x = ops.concat((ops.broadcast_to(self.summary, (b, 1, x.shape[-1])), x), 1)
        x = self.trunk(self.first_norm(x + self.order))
        return self.to_common(self.last_norm(x[:, 0]))


def unit(x):
    return x / ops.sqrt((x * x).sum(-1, keepdims=True))


class Matcher(nn.Cell):
    def __init__(self, size=32, depth=2, parts=4, factor=3, side=24, cut=6, dictionary=48, longest=17, common=32):
        super().__init__()
        self.sharpness = Parameter(Tensor(np.zeros(1), ms.float32))
        self.words = Words(size, depth, parts, factor, dictionary, longest, common)
        self.pictures = Pictures(size, depth, parts, factor, side, cut, common)

    def construct(self, image, text):
        seen, read = unit(self.pictures(image)), unit(self.words(text))
        return seen, read, ops.exp(self.sharpness) * ops.matmul(seen, read.swapaxes(0, 1))


def build():
    return Matcher()
