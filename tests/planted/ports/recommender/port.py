"""The same as an engineer ports it: bags as tables that are looked up, masked and summed; pairs by a mask of ones."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


class Bag(nn.Cell):
    def __init__(self, size, width, mean):
        super().__init__()
        self.mean = mean
        self.table = nn.Embedding(size, width)

    def construct(self, ids):
        rows = self.table(ids)
        if not self.mean:
            return rows.sum(1)
        filled = (ids != 0).astype(ms.float32).expand_dims(-1)
        return (rows * filled).sum(1) / ops.maximum(filled.sum(1), Tensor(1.0, ms.float32))


class DeepPart(nn.Cell):
    def __init__(self, size):
        super().__init__()
        self.fc0 = nn.Dense(size, 24)
        self.bn = nn.BatchNorm1d(24, eps=1e-5)
        self.fc1 = nn.Dense(24, 8)

    def construct(self, x):
        y = self.bn(self.fc0(x))
        y = ops.select(y > 0, y, 0.1 * y)
        return self.fc1(y)


class RankNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.bags = nn.CellList([Bag(80, 12, True), Bag(120, 12, False)])
        self.user_table = nn.Embedding(50, 12)
        self.item_table = nn.Embedding(80, 12)
        self.numeric = nn.Dense(5, 12)
        self.deep = DeepPart(60)
        self.cross = nn.Dense(10, 1)
        self.score = nn.Dense(8, 1)
        places = np.triu_indices(5, 1)
        self.upper = Tensor(places[0] * 5 + places[1], ms.int32)

    def construct(self, user, history, words, item, features):
        numbers = ops.log(ops.relu(features) + 1.0)
        columns = (self.user_table(user), self.bags[0](history), self.bags[1](words), self.item_table(item))
        x = ops.stack((*columns, self.numeric(numbers)), 1)
        products = ops.bmm(x, x.swapaxes(1, 2)).reshape(x.shape[0], 25)
        logit = self.cross(ops.gather(products, self.upper, 1))
        logit = logit + self.score(self.deep(x.reshape(x.shape[0], -1)))
        return ops.sigmoid(logit)[:, 0]


def build():
    return RankNet()
