import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def conv(n_in, n_out, size, stride=1, has_bias=True):
    pad = size // 2
    return nn.Conv2d(n_in, n_out, size, stride, pad_mode="pad", padding=pad, has_bias=has_bias)


class Filter(nn.Cell):
    """convolution and batch norm"""

    def __init__(self, n_in, n_out, size=3, stride=1):
        super().__init__()
        self.calm = nn.BatchNorm2d(n_out)
        self.kernel = conv(n_in, n_out, size, stride, has_bias=False)

    def construct(self, x):
        return self.calm(self.kernel(x))


class Unit(nn.Cell):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.has_shortcut = stride != 1 or n_in != n_out
        if self.has_shortcut:
            self.detour = Filter(n_in, n_out, 1, stride)
        self.second = Filter(n_out, n_out)
        self.first = Filter(n_in, n_out, 3, stride)

    def construct(self, x):
        y = self.second(ops.relu(self.first(x)))
        return ops.relu(y + (self.detour(x) if self.has_shortcut else x))


class Pyramid(nn.Cell):
    """residual units, three resolutions and the way back up"""

    def __init__(self, width):
        super().__init__()
        self.coarser = conv(width, width, 3, 2)
        self.polish = nn.CellList([conv(width, width, 3) for _ in range(3)])
        self.enter = nn.CellList([conv(n, width, 1) for n in (32, 32, 24)])
        self.units = nn.CellList([Unit(*s) for s in ((16, 24, 2), (24, 24, 1), (24, 32, 2), (32, 32, 2), (32, 32, 1))])
        self.stem = Filter(3, 16, 3, 2)

    def construct(self, x):
        x = ops.relu(self.stem(x))
        kept = []
        for n in range(5):
            x = self.units[n](x)
            if n in (1, 2, 4):
                kept.append(x)
        # from the coarsest to the finest
        down = self.enter[0](kept[2])
        maps = [self.polish[0](down)]
        maps.insert(0, self.coarser(ops.relu(maps[0])))
        for n in (1, 2):
            down = down.repeat_interleave(2, 2).repeat_interleave(2, 3)
            down = down + self.enter[n](kept[2 - n])
            maps.append(self.polish[n](down))
        return maps[::-1]


class BundleNorm(nn.Cell):
    """zero mean and unit variance within each bundle of channels"""

    def __init__(self, bundles, width):
        super().__init__()
        self.bundles = bundles
        self.lift = Parameter(Tensor(np.zeros((width, 1, 1)), ms.float32), name="lift")
        self.gain = Parameter(Tensor(np.ones((width, 1, 1)), ms.float32), name="gain")

    def construct(self, x):
        rows = x.reshape(x.shape[0], self.bundles, -1)
        rows = rows - ops.mean(rows, -1, True)
        rows = rows / ops.sqrt(ops.mean(ops.square(rows), -1, True) + 1e-5)
        return rows.reshape(x.shape) * self.gain + self.lift


class Branch(nn.Cell):
    def __init__(self, width, n_out):
        super().__init__()
        self.final = conv(width, n_out, 3)
        self.norms = nn.CellList([BundleNorm(6, width) for _ in range(2)])
        self.mixers = nn.CellList([conv(width, width, 3) for _ in range(2)])

    def construct(self, x):
        for n in range(2):
            x = ops.relu(self.norms[n](self.mixers[n](x)))
        y = self.final(x)
        return y.reshape(y.shape[0], y.shape[1], -1).swapaxes(1, 2)


class ObjectFinder(nn.Cell):
    def __init__(self, kinds=4, width=24):
        super().__init__()
        self.stretch = Parameter(Tensor(np.ones(4), ms.float32), name="stretch")
        # how central, how far to the four sides, which kind
        self.branches = nn.CellList([Branch(width, n) for n in (1, 4, kinds)])
        self.eye = Pyramid(width)

    def construct(self, images):
        central, sides, kinds = [], [], []
        for n, level in enumerate(self.eye(images)):
            central.append(self.branches[0](level)[..., 0])
            sides.append(ops.exp(self.branches[1](level) * self.stretch[n]))
            kinds.append(self.branches[2](level))
        return ops.concat(kinds, 1), ops.concat(sides, 1), ops.concat(central, 1)


def build():
    return ObjectFinder()
