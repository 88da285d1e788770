"""The same in MindSpore."""

from mindspore import nn, ops


def joined(heads):
    b, _, n, _ = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(b, n, -1)


class Attention(nn.Cell):
    def __init__(self, dim=8, heads=2):
        super().__init__()
        self.heads = heads
        self.qk = nn.Dense(dim, dim)
        self.out = nn.Dense(dim, dim)

    def split(self, x):
        b, n, d = x.shape
        return x.reshape(b, n, self.heads, d // self.heads).transpose(0, 2, 1, 3)

    def construct(self, x):
        keys = self.split(self.qk(x))
        weights = ops.softmax(ops.matmul(keys, keys.swapaxes(-2, -1)) * 0.7, axis=-1)
        return self.out(joined(ops.matmul(weights, self.split(x))))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, pad_mode="pad", padding=1, has_bias=True)
        self.conv2 = nn.Conv2d(4, 4, 3, pad_mode="pad", padding=1, has_bias=True)
        self.attention = Attention()
        self.fc1 = nn.Dense(8, 6)
        self.fc2 = nn.Dense(6, 5)

    def construct(self, x):
        a = ops.relu(self.conv1(x))
        x = ops.concat([a, self.conv2(a)], axis=1)
        x = x.reshape(x.shape[0], x.shape[1], -1).swapaxes(1, 2)
        x = x + self.attention(x)
        x = ops.gelu(self.fc1(x.mean(1)), approximate="none")
        return self.fc2(x) * 3.0


class Shared(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(4, 4)
        self.fc2 = nn.Dense(4, 4)

    def mix(self, x):
        return ops.softmax(x, axis=1)

    def construct(self, x):
        return self.mix(self.fc2(self.mix(self.fc1(x))))


class Acted(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(4, 4)
        self.fc2 = nn.Dense(4, 4)
        self.act = nn.ReLU()

    def construct(self, x):
        return self.act(self.fc2(self.act(self.fc1(x))))


def conv(channels, out, kernel=1):
    return nn.Conv2d(channels, out, kernel, pad_mode="same", has_bias=True)


def block(width):
    return nn.SequentialCell(conv(3, width, kernel=3), conv(width, 3), nn.ReLU())


class Listed(nn.Cell):
    def __init__(self):
        super().__init__()
        self.features = nn.SequentialCell(block(4), block(6))
        layers = [nn.Dense(3, 8), nn.GELU(approximate=False)]
        layers.append(nn.Dense(8, 5))
        layers += [nn.Sigmoid(), nn.Tanh()]
        self.head = nn.SequentialCell(layers)

    def construct(self, x):
        return self.head(self.features(x).mean((2, 3)))


def build(kind=Net):
    return kind()
