"""The same as an engineer ports it: convolutions over time as Dense or 2D ones, attention in three layers."""

import mindspore as ms
from mindspore import nn, ops


def swish(x):
    return x * ops.sigmoid(x)


class Attention(nn.Cell):
    def __init__(self, size, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.head_size = size // num_heads
        self.query = nn.Dense(size, size)
        self.key = nn.Dense(size, size)
        self.value = nn.Dense(size, size)
        self.proj = nn.Dense(size, size)

    def split_heads(self, x):
        b, t, _ = x.shape
        return x.reshape(b, t, self.num_heads, self.head_size).transpose(0, 2, 1, 3)

    def construct(self, x, mask):
        b, t, d = x.shape
        q = self.split_heads(self.query(x)) * self.head_size**-0.5
        k = self.split_heads(self.key(x))
        v = self.split_heads(self.value(x))
        weights = ops.matmul(q, k.transpose(0, 1, 3, 2)) + mask
        y = ops.matmul(ops.softmax(weights, -1), v)
        return self.proj(y.transpose(0, 2, 1, 3).reshape(b, t, d))


class ConvModule(nn.Cell):
    def __init__(self, size, kernel):
        super().__init__()
        self.pw_in = nn.Dense(size, 2 * size)
        self.dw = nn.Conv2d(size, size, (1, kernel), pad_mode="same", group=size, has_bias=True)
        self.batch_norm = nn.BatchNorm2d(size)
        self.pw_out = nn.Dense(size, size)

    def construct(self, x):
        x = self.pw_in(x)
        a, gate = ops.chunk(x, 2, -1)
        x = a * ops.sigmoid(gate)
        x = ops.expand_dims(x.swapaxes(1, 2), 2)
        x = swish(self.batch_norm(self.dw(x)))
        return self.pw_out(x.squeeze(2).swapaxes(1, 2))


class EncoderLayer(nn.Cell):
    def __init__(self, size):
        super().__init__()
        self.norms = nn.CellList([nn.LayerNorm((size,), epsilon=1e-5) for _ in range(5)])
        self.macaron = nn.SequentialCell(nn.Dense(size, 4 * size), nn.SiLU(), nn.Dense(4 * size, size))
        self.self_attn = Attention(size, 4)
        self.conv_module = ConvModule(size, 7)
        self.feed_forward = nn.SequentialCell(nn.Dense(size, 4 * size), nn.SiLU(), nn.Dense(4 * size, size))

    def construct(self, x, mask):
        x = x + self.macaron(self.norms[0](x)) / 2
        x = x + self.self_attn(self.norms[1](x), mask)
        x = x + self.conv_module(self.norms[2](x))
        x = x + self.feed_forward(self.norms[3](x)) / 2
        return self.norms[4](x)


class ConformerEncoder(nn.Cell):
    def __init__(self):
        super().__init__()
        self.front = nn.Conv2d(1, 8, 3, stride=2, padding=1, pad_mode="pad", has_bias=True)
        self.input_proj = nn.Dense(64, 32)
        self.encoders = nn.CellList([EncoderLayer(32) for _ in range(2)])
        self.classifier = nn.Dense(32, 11)

    def construct(self, feats, padding):
        y = ops.relu(self.front(feats.expand_dims(1)))
        b, c, t, f = y.shape
        y = self.input_proj(y.transpose(0, 2, 1, 3).reshape(b, t, c * f))
        padding = padding[:, ::2]
        mask = padding.astype(ms.float32)[:, None, None, :] * -1e9
        for layer in self.encoders:
            y = layer(y, mask)
        keep = 1.0 - padding.astype(ms.float32)
        pooled = (y * keep.expand_dims(-1)).sum(1) / keep.sum(1, keepdims=True)
        return self.classifier(pooled)


def build():
    return ConformerEncoder()
