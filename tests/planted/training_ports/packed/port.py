"""Sequence labelling in MindSpore: nn.LSTM for characters, an own masked LSTM for words, own Adam."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

ALPHABET, CHAR_SIZE, CHAR_STATE = 27, 8, 6
LEXICON, WORD_SIZE, STATE, N_LAYER = 60, 20, 16, 2
N_TAG = 7
RATE, CLIP_AT = 2e-3, 0.6


def uniform(*shape, bound=0.25):
    """A parameter of uniform numbers."""
    return Parameter(Tensor(np.random.uniform(-bound, bound, shape).astype(np.float32)))


class BiLayer(nn.Cell):
    """One bidirectional layer; gates in the order input, forget, output, candidate; padded steps keep the state."""

    def __init__(self, size):
        super().__init__()
        self.kernel = uniform(2, size, 4 * STATE)
        self.recurrent = uniform(2, STATE, 4 * STATE)
        self.offset = uniform(2, 2, 4 * STATE)

    def run(self, x, mask, way):
        """States of one direction, in the order of the steps."""
        n, length, _ = x.shape
        drive = ops.matmul(x, self.kernel[way]) + self.offset[way].sum(0)
        h = c = ops.zeros((n, STATE), ms.float32)
        states = [None] * length
        for t in range(length) if way == 0 else reversed(range(length)):
            gates = drive[:, t] + ops.matmul(h, self.recurrent[way])
            i, f, o = ops.split(ops.sigmoid(gates[:, : 3 * STATE]), STATE, 1)
            g = ops.tanh(gates[:, 3 * STATE :])
            m = mask[:, t]
            new_c = f * c + i * g
            c = m * new_c + (1 - m) * c
            h = m * o * ops.tanh(new_c) + (1 - m) * h
            states[t] = h
        return ops.stack(states, 1)

    def construct(self, x, mask):
        both = ops.cat((self.run(x, mask, 0), self.run(x, mask, 1)), -1)
        return both * mask


class Norm(nn.Cell):
    """Layer norm over the last axis."""

    def __init__(self, size):
        super().__init__()
        self.gain = Parameter(Tensor(np.random.normal(1, 0.1, size).astype(np.float32)))
        self.shift = Parameter(Tensor(np.random.normal(0, 0.1, size).astype(np.float32)))

    def construct(self, x):
        x = x - x.mean(-1, keep_dims=True)
        return x * ops.rsqrt(ops.square(x).mean(-1, keep_dims=True) + 1e-5) * self.gain + self.shift


class Labeller(nn.Cell):
    """Tag scores of every position."""

    def __init__(self):
        super().__init__()
        self.char_table = uniform(ALPHABET, CHAR_SIZE)
        self.word_table = uniform(LEXICON, WORD_SIZE)
        self.speller = nn.LSTM(CHAR_SIZE, CHAR_STATE, batch_first=True, bidirectional=True)
        width = WORD_SIZE + 2 * CHAR_STATE
        self.layers = nn.CellList([BiLayer(width if k == 0 else 2 * STATE) for k in range(N_LAYER)])
        self.scale = Norm(2 * STATE)
        self.mid = nn.Dense(2 * STATE, STATE, activation="tanh")
        self.top = nn.Dense(STATE, N_TAG)

    def spell(self, chars, char_lengths):
        """Last states of both directions for every word."""
        n, length, letters = chars.shape
        size = ops.maximum(char_lengths.reshape(-1), 1)
        x = ops.gather(self.char_table, chars.reshape(n * length, letters), 0)
        _, (h, _) = self.speller(x, None, size)
        return h.swapaxes(0, 1).reshape(n, length, 2 * CHAR_STATE)

    def construct(self, words, lengths, chars, char_lengths):
        steps = Tensor(np.arange(words.shape[1]), ms.int32)
        mask = (steps.expand_dims(0) < lengths.expand_dims(1)).astype(ms.float32).expand_dims(-1)
        x = ops.cat((ops.gather(self.word_table, words, 0), self.spell(chars, char_lengths)), -1)
        for layer in self.layers:
            x = layer(x, mask)
        return self.top(self.mid(self.scale(x)))


class Adam(nn.Optimizer):
    """Adam with bias correction."""

    def __init__(self, parameters, rate, beta1=0.9, beta2=0.999, eps=1e-8):
        super().__init__(rate, parameters)
        self.beta1, self.beta2, self.eps = beta1, beta2, eps
        self.first = self._parameters.clone(prefix="first", init="zeros")
        self.second = self._parameters.clone(prefix="second", init="zeros")
        self.count = 0

    def construct(self, grads):
        self.count += 1
        rate = self.get_lr()
        for p, g, m, v in zip(self._parameters, grads, self.first, self.second, strict=True):
            ops.assign(m, self.beta1 * m + (1 - self.beta1) * g)
            ops.assign(v, self.beta2 * v + (1 - self.beta2) * g * g)
            mean = m / (1 - self.beta1**self.count)
            square = v / (1 - self.beta2**self.count)
            ops.assign(p, p - rate * mean / (ops.sqrt(square) + self.eps))
        return True


def clip(grads):
    """Gradients of at most CLIP_AT by their global norm."""
    norm = ops.sqrt(sum(ops.square(g).sum() for g in grads))
    return [g * ops.minimum(CLIP_AT / (norm + 1e-6), Tensor(1.0)) for g in grads]


def build():
    """The network with random weights."""
    ms.set_seed(6)
    np.random.seed(6)
    return Labeller()


def training():
    """Network, optimizer and step."""
    net = build()
    net.set_train()
    optimizer = Adam(net.trainable_params(), RATE)

    def forward(words, lengths, chars, char_lengths, tags):
        logp = ops.log_softmax(net(words, lengths, chars, char_lengths), -1)
        hit = ops.one_hot(tags, N_TAG, Tensor(1.0), Tensor(0.0))
        real = (tags != 0).astype(ms.float32)
        return -((logp * hit).sum(-1) * real).sum() / real.sum()

    grad_fn = ms.value_and_grad(forward, None, optimizer.parameters)

    def step(batch):
        names = ("words", "lengths", "chars", "char_lengths", "tags")
        loss, grads = grad_fn(*[batch[name] for name in names])
        optimizer(clip(grads))
        return loss

    return {"model": net, "optimizer": optimizer, "step": step}
