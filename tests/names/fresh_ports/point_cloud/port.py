from mindspore import nn, ops


class NormedUnit(nn.Cell):
    """rows in, rows out: the points of all clouds are one long list of rows"""

    def __init__(self, n_in, n_out, rectify=True):
        super().__init__()
        self.stat = nn.BatchNorm1d(n_out, eps=1e-5)
        self.mix = nn.Dense(n_in, n_out)
        self.rectify = rectify

    def construct(self, rows):
        rows = self.stat(self.mix(rows))
        return ops.relu(rows) if self.rectify else rows


class Readout(nn.Cell):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.answer = nn.Dense(24, n_out)
        self.narrow = NormedUnit(48, 24)
        self.wide = NormedUnit(n_in, 48)

    def construct(self, rows):
        return self.answer(self.narrow(self.wide(rows)))


class Lifter(nn.Cell):
    """three units over the points, then the maximum of a cloud; the rows after the first unit come along"""

    def __init__(self, last_rectified):
        super().__init__()
        self.steps = nn.CellList([NormedUnit(3, 24), NormedUnit(24, 32), NormedUnit(32, 64, last_rectified)])

    def construct(self, cloud):
        b, n, _ = cloud.shape
        first = self.steps[0](cloud.reshape(b * n, 3))
        rows = self.steps[2](self.steps[1](first))
        return rows.reshape(b, n, -1).max(axis=1), first.reshape(b, n, -1)


class Aligner(nn.Cell):
    def __init__(self):
        super().__init__()
        self.to_matrix = Readout(64, 9)
        self.summary = Lifter(True)

    def construct(self, cloud):
        pooled, _ = self.summary(cloud)
        shift = self.to_matrix(pooled).reshape(-1, 3, 3)
        return cloud + ops.matmul(cloud, shift)


class CloudNet(nn.Cell):
    def __init__(self, kinds=9, pieces=9):
        super().__init__()
        self.per_point = Readout(64 + 24, pieces)
        self.per_cloud = Readout(64, kinds)
        self.summary = Lifter(False)
        self.pose = Aligner()

    def construct(self, points):
        cloud = points.swapaxes(1, 2)
        b, n, _ = cloud.shape
        pooled, first = self.summary(self.pose(cloud))
        around = ops.broadcast_to(pooled.expand_dims(1), (b, n, pooled.shape[-1]))
        rows = ops.concat((around, first), -1).reshape(b * n, -1)
        return self.per_cloud(pooled), self.per_point(rows).reshape(b, n, -1)


def build():
    return CloudNet()
