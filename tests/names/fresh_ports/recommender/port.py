import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, One, Zero, initializer


def bare(shape, init):
    return Parameter(initializer(init, shape, ms.float32))


class Interaction(nn.Cell):
    """One level of explicit feature crossing."""

    def __init__(self, width):
        super().__init__()
        self.shift = bare((1, width), Zero())
        self.direction = bare((width, 1), Normal(0.05))

    def construct(self, start, x):
        return x + start * ops.matmul(x, self.direction) + self.shift


class Specialist(nn.Cell):
    def __init__(self, width, inner, out):
        super().__init__()
        self.answer = nn.Dense(inner, out)
        self.study = nn.Dense(width, inner, activation="relu")

    def construct(self, x):
        return self.answer(self.study(x))


class Panel(nn.Cell):
    """Each goal weighs the same specialists in its own way; the weighing of all goals is one product."""

    def __init__(self, width, inner, out, members, goals):
        super().__init__()
        self.members, self.goals = members, goals
        self.trust_base = bare((goals * members,), Zero())
        self.trust = bare((width, goals * members), Normal(0.05))
        self.crew = nn.CellList([Specialist(width, inner, out) for _ in range(members)])

    def construct(self, x):
        said = ops.stack([member(x) for member in self.crew], 1)
        trust = (ops.matmul(x, self.trust) + self.trust_base).reshape(-1, self.goals, self.members)
        return ops.matmul(ops.softmax(trust, -1), said)


class Ranker(nn.Cell):
    def __init__(self, rows=(12, 7, 12, 20, 7), goods=30, numbers=6, size=24, levels=3, members=4, inner=40, goals=3):
        super().__init__()
        width = (len(rows) + 2) * size
        self.verdicts = nn.CellList([nn.Dense(24, 1) for _ in range(goals)])
        self.opinions = nn.CellList([nn.Dense(size, 24) for _ in range(goals)])
        self.panel = Panel(width, inner, size, members, goals)
        self.interactions = nn.CellList([Interaction(width) for _ in range(levels)])
        self.slope = bare((numbers,), One())
        self.base = bare((1,), Zero())
        self.lift = nn.Dense(32, size)
        self.spread = nn.Dense(numbers, 32)
        self.calibrate = nn.BatchNorm1d(numbers)
        self.bought = bare((goods, size), Normal(0.1))
        self.scores = nn.CellList([nn.Embedding(n, 1) for n in rows])
        self.tables = nn.CellList([nn.Embedding(n, size) for n in rows])

    def past(self, history):
        """The mean over the goods of a history; 0 is none."""
        real = (history != 0).astype(ms.float32).expand_dims(-1)
        total = (ops.gather(self.bought, history, 0) * real).sum(1)
        return total / ops.maximum(real.sum(1), Tensor(np.ones(1), ms.float32))

    def construct(self, dense, sparse, history):
        numbers = self.calibrate(dense)
        parts = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        parts += [self.past(history), self.lift(ops.relu(self.spread(numbers)))]
        shared = (numbers * self.slope).sum(-1, keepdims=True) + self.base
        for i, score in enumerate(self.scores):
            shared = shared + score(sparse[:, i])
        # every two parts meet once
        for i, part in enumerate(parts):
            for other in parts[:i]:
                shared = shared + (part * other).sum(-1, keepdims=True)
        start = ops.concat(parts, -1)
        x = start
        for level in self.interactions:
            x = level(start, x)
        advice = self.panel(x)
        out = [
            verdict(ops.relu(opinion(advice[:, i])))
            for i, (opinion, verdict) in enumerate(zip(self.opinions, self.verdicts, strict=True))
        ]
        return ops.concat(out, -1) + shared


def build():
    return Ranker()
