"""The same as an engineer ports it: other names, the query scaled first, the mask a number that is taken away."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


def rotate(x):
    h = x.shape[-1] // 2
    return ops.concat([ops.neg(x[..., h:]), x[..., :h]], -1)


class Attention(nn.Cell):
    def __init__(self):
        super().__init__()
        self.wq = nn.Dense(32, 32, has_bias=False)
        self.wk = nn.Dense(32, 16, has_bias=False)
        self.wv = nn.Dense(32, 16, has_bias=False)
        self.wo = nn.Dense(32, 32, has_bias=False)
        inv = 1.0 / (100.0 ** (np.arange(0, 8, 2) / 8))
        angles = np.outer(np.arange(12.0), inv)
        angles = np.concatenate([angles, angles], -1)
        self.cos = Tensor(np.cos(angles), ms.float32)
        self.sin = Tensor(np.sin(angles), ms.float32)

    def construct(self, x):
        b, t, d = x.shape
        q = self.wq(x).reshape(b, t, 4, 8).swapaxes(1, 2) * 8**-0.5
        k = self.wk(x).reshape(b, t, 2, 8).swapaxes(1, 2)
        v = self.wv(x).reshape(b, t, 2, 8).swapaxes(1, 2)
        q = q * self.cos + rotate(q) * self.sin
        k = k * self.cos + rotate(k) * self.sin
        k = k.repeat_interleave(2, 1)
        v = v.repeat_interleave(2, 1)
        s = ops.matmul(q, k.swapaxes(-1, -2))
        m = ops.triu(ops.ones((t, t), ms.float32), 1)
        s = s - m * 1e9
        y = ops.matmul(ops.softmax(s, -1), v)
        return self.wo(y.swapaxes(1, 2).reshape(b, t, d))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.Dense(16, 32)
        self.ln = nn.LayerNorm((32,), epsilon=1e-5)
        self.mha = Attention()
        self.fc = nn.Dense(32, 5)

    def construct(self, x):
        x = self.stem(x)
        x = x + self.mha(self.ln(x))
        return self.fc(x.mean(1))


def build():
    return Net()
