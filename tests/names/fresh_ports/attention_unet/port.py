from itertools import pairwise

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def filter3(n_in, n_out):
    return nn.Conv2d(n_in, n_out, 3, pad_mode="pad", padding=1, has_bias=True)


def mix1(n_in, n_out):
    return nn.Conv2d(n_in, n_out, 1, pad_mode="valid", has_bias=True)


class SkipSelector(nn.Cell):
    """Weighs each place of a skip connection by what the coarser path knows of it."""

    def __init__(self, n, mid, num_groups):
        super().__init__()
        self.level = Parameter(Tensor(np.zeros(1), ms.float32))
        self.vote = Parameter(Tensor(np.ones((1, mid)), ms.float32))
        self.scale_fine = nn.GroupNorm(num_groups, mid)
        self.scale_coarse = nn.GroupNorm(num_groups, mid)
        self.see_fine = mix1(n, mid)
        self.see_coarse = mix1(n, mid)

    def construct(self, fine, coarse):
        b, _, h, w = fine.shape
        seen = ops.relu(self.scale_fine(self.see_fine(fine)) + self.scale_coarse(self.see_coarse(coarse)))
        vote = ops.matmul(self.vote, seen.reshape(b, -1, h * w)) + self.level
        return fine * ops.sigmoid(vote).reshape(b, 1, h, w)


class Contracting(nn.Cell):
    """All levels going down, the lowest included: convolutions in one list, their norms in another."""

    def __init__(self, n_in, channels, num_groups):
        super().__init__()
        filters, norms = [], []
        for n in channels:
            filters += [filter3(n_in, n), filter3(n, n)]
            norms += [nn.GroupNorm(num_groups, n), nn.GroupNorm(num_groups, n)]
            n_in = n
        self.norms = nn.CellList(norms)
        self.filters = nn.CellList(filters)
        self.shrink = nn.MaxPool2d(2, 2)

    def construct(self, x):
        kept = []
        for i in range(0, len(self.filters), 2):
            if i:
                x = self.shrink(x)
            x = ops.relu(self.norms[i](self.filters[i](x)))
            x = ops.relu(self.norms[i + 1](self.filters[i + 1](x)))
            kept.append(x)
        return kept


class Expanding(nn.Cell):
    """Level 0 is the finest, as in the contracting path; it is reached last."""

    def __init__(self, channels, num_groups):
        super().__init__()
        levels = list(pairwise(channels))
        self.selectors = nn.CellList([SkipSelector(n, n // 2, num_groups) for n, _ in levels])
        self.first = nn.CellList([filter3(2 * n, n) for n, _ in levels])
        self.second = nn.CellList([filter3(n, n) for n, _ in levels])
        self.first_norm = nn.CellList([nn.GroupNorm(num_groups, n) for n, _ in levels])
        self.second_norm = nn.CellList([nn.GroupNorm(num_groups, n) for n, _ in levels])
        self.grow = nn.CellList(
            [nn.Conv2dTranspose(below, n, 2, stride=2, pad_mode="valid", has_bias=True) for n, below in levels]
        )

    def construct(self, kept):
        x = kept[-1]
        for i in range(len(kept) - 2, -1, -1):
            x = self.grow[i](x)
            x = ops.concat((self.selectors[i](kept[i], x), x), 1)
            x = ops.relu(self.first_norm[i](self.first[i](x)))
            x = ops.relu(self.second_norm[i](self.second[i](x)))
        return x


class Segmenter(nn.Cell):
    def __init__(self, bands=3, labels=5, channels=(16, 24, 40), num_groups=4):
        super().__init__()
        self.labelling = mix1(channels[0], labels)
        self.rise = Expanding(channels, num_groups)
        self.sink = Contracting(bands, channels, num_groups)

    def construct(self, image):
        return self.labelling(self.rise(self.sink(image)))


def build():
    return Segmenter()
