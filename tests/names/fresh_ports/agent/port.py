import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, initializer


class Memory(nn.Cell):
    """one recurrent layer, every gate with matrices of its own"""

    def __init__(self, size):
        super().__init__()
        self.U_o = nn.Dense(size, size)
        self.U_g = nn.Dense(size, size)
        self.U_f = nn.Dense(size, size)
        self.U_i = nn.Dense(size, size)
        self.W_o = nn.Dense(size, size)
        self.W_g = nn.Dense(size, size)
        self.W_f = nn.Dense(size, size)
        self.W_i = nn.Dense(size, size)
        self.blank_cell = Parameter(initializer(Normal(0.01), (size,)), name="blank_cell")
        self.blank_out = Parameter(initializer(Normal(0.01), (size,)), name="blank_out")

    def fresh(self, rows):
        shape = (rows, self.blank_out.shape[0])
        return ops.broadcast_to(self.blank_out, shape), ops.broadcast_to(self.blank_cell, shape)

    def construct(self, x, out, cell):
        i = ops.sigmoid(self.W_i(x) + self.U_i(out))
        f = ops.sigmoid(self.W_f(x) + self.U_f(out))
        g = ops.tanh(self.W_g(x) + self.U_g(out))
        o = ops.sigmoid(self.W_o(x) + self.U_o(out))
        cell = f * cell + i * g
        return o * ops.tanh(cell), cell


class Ending(nn.Cell):
    def __init__(self, size, n_out, bend):
        super().__init__()
        self.close = nn.Dense(32, n_out)
        self.open = nn.Dense(size, 32)
        self.bend = bend

    def construct(self, x):
        return self.close(self.bend(self.open(x)))


class Retina(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.squeeze = nn.Dense(96, width)
        self.far = nn.Conv2d(24, 24, 3, pad_mode="valid", has_bias=True)
        self.middle = nn.Conv2d(16, 24, 3, 2, pad_mode="valid", has_bias=True)
        self.near = nn.Conv2d(3, 16, 4, 2, pad_mode="valid", has_bias=True)

    def construct(self, pictures):
        x = ops.relu(self.near(pictures))
        x = ops.relu(self.middle(x))
        x = ops.relu(self.far(x))
        return ops.relu(self.squeeze(x.reshape(x.shape[0], -1)))


class Skin(nn.Cell):
    """sensors, centred and scaled by statistics that are not trained"""

    def __init__(self, n_in, width):
        super().__init__()
        self.spread = Parameter(Tensor(np.ones(n_in), ms.float32), name="spread", requires_grad=False)
        self.centre = Parameter(Tensor(np.zeros(n_in), ms.float32), name="centre", requires_grad=False)
        self.outer = nn.Dense(width, width)
        self.inner = nn.Dense(n_in, width)

    def construct(self, x):
        x = ops.clamp((x - self.centre) * ops.rsqrt(self.spread + 1e-5), -5.0, 5.0)
        return ops.relu(self.outer(ops.relu(self.inner(x))))


class Player(nn.Cell):
    def __init__(self, moves=6, sensors=12, width=32, habit=16, size=40, depth=2):
        super().__init__()
        self.merit = Ending(size, moves, ops.relu)
        self.choice = Ending(size, moves, ops.tanh)
        self.worth = Ending(size, 1, ops.relu)
        self.chain = nn.CellList([Memory(size) for _ in range(depth)])
        self.from_habit = nn.Dense(habit, size, has_bias=False)
        self.from_skin = nn.Dense(width, size, has_bias=False)
        self.from_retina = nn.Dense(width, size)
        self.habits = nn.Embedding(moves + 1, habit)
        self.skin = Skin(sensors, width)
        self.retina = Retina(width)

    def perceive(self, frames, sensors, prev_action):
        steps, batch = prev_action.shape
        seen = self.retina(frames.reshape(steps * batch, *frames.shape[2:])).reshape(steps, batch, -1)
        total = self.from_retina(seen) + self.from_skin(self.skin(sensors))
        return ops.tanh(total + self.from_habit(self.habits(prev_action)))

    def construct(self, frames, sensors, prev_action, first):
        x = self.perceive(frames, sensors, prev_action)
        rows = x.shape[1]
        state = [layer.fresh(rows) for layer in self.chain]
        outs = []
        for t in range(x.shape[0]):
            begin = first[t].expand_dims(1) > 0.5
            y = x[t]
            for n, layer in enumerate(self.chain):
                blank = layer.fresh(rows)
                out, cell = ops.where(begin, blank[0], state[n][0]), ops.where(begin, blank[1], state[n][1])
                state[n] = layer(y, out, cell)
                y = state[n][0]
            outs.append(y)
        y = ops.stack(outs)
        merit = self.merit(y)
        q = self.worth(y) + merit - ops.mean(merit, -1, True)
        return self.choice(y), q, (ops.stack([s[0] for s in state]), ops.stack([s[1] for s in state]))


def build():
    return Player()
