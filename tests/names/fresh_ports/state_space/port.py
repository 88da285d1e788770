import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, initializer


def swish(x):
    return x * ops.sigmoid(x)


def log1p_exp(x):
    return ops.log(1 + ops.exp(-ops.abs(x))) + ops.relu(x)


class ScaleByRMS(nn.Cell):
    def __init__(self, width, epsilon=1e-5):
        super().__init__()
        self.epsilon = epsilon
        self.g = Parameter(Tensor(np.ones(width), ms.float32), name="g")

    def construct(self, h):
        power = ops.mean(h * h, -1, True)
        return self.g * (h / ops.sqrt(power + self.epsilon))


class ShortFilter(nn.Cell):
    """every channel is filtered over its own past; one row of weights for each lag"""

    def __init__(self, width, lags):
        super().__init__()
        self.lags = lags
        self.offset = Parameter(Tensor(np.zeros(width), ms.float32), name="offset")
        self.taps = Parameter(initializer(Normal(0.3), (lags, width)), name="taps")

    def construct(self, u):
        batch, time, width = u.shape
        padded = ops.concat((ops.zeros((batch, self.lags - 1, width), u.dtype), u), 1)
        out = self.offset
        for lag in range(self.lags):
            out = out + padded[:, lag : lag + time] * self.taps[lag]
        return out


class SelectiveScan(nn.Cell):
    def __init__(self, width, slots, rank):
        super().__init__()
        self.skip = Parameter(Tensor(np.ones(width), ms.float32), name="skip")
        rates = np.log(np.arange(1, slots + 1))[:, None].repeat(width, 1)
        self.log_rate = Parameter(Tensor(rates, ms.float32), name="log_rate")
        self.read = nn.Dense(width, slots, has_bias=False)
        self.write = nn.Dense(width, slots, has_bias=False)
        self.delta = nn.SequentialCell(nn.Dense(width, rank, has_bias=False), nn.Dense(rank, width))

    def construct(self, u):
        step = log1p_exp(self.delta(u)).expand_dims(2)
        keep = ops.exp(-step * ops.exp(self.log_rate))
        add = step * self.write(u).expand_dims(3) * u.expand_dims(2)
        read = self.read(u).expand_dims(3)
        keep, add, read = ops.unstack(keep, 1), ops.unstack(add, 1), ops.unstack(read, 1)
        memory, out = 0, []
        for t in range(len(add)):
            memory = memory * keep[t] + add[t]
            out.append(ops.sum(memory * read[t], 1))
        return ops.stack(out, 1) + self.skip * u


class GatedSSM(nn.Cell):
    def __init__(self, dim, width, slots, lags, rank):
        super().__init__()
        self.back = nn.Dense(width, dim, has_bias=False)
        self.gate_branch = nn.Dense(dim, width, has_bias=False)
        self.value_branch = nn.Dense(dim, width, has_bias=False)
        self.ssm = SelectiveScan(width, slots, rank)
        self.smooth = ShortFilter(width, lags)
        self.pre = ScaleByRMS(dim)

    def construct(self, h):
        n = self.pre(h)
        u = swish(self.smooth(self.value_branch(n)))
        return h + self.back(self.ssm(u) * swish(self.gate_branch(n)))


class SequenceModel(nn.Cell):
    def __init__(self, symbols=44, dim=32, depth=3, width=48, slots=8, lags=4, rank=4):
        super().__init__()
        self.last = ScaleByRMS(dim)
        self.trunk = nn.CellList([GatedSSM(dim, width, slots, lags, rank) for _ in range(depth)])
        self.table = Parameter(initializer(Normal(0.02), (symbols, dim)), name="table")

    def construct(self, tokens):
        h = ops.gather(self.table, tokens, 0)
        for block in self.trunk:
            h = block(h)
        return ops.matmul(self.last(h), self.table.T)


def build():
    return SequenceModel()
