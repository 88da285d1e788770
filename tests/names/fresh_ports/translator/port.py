"""Translation model in MindSpore: a reader of the sentence and a writer of its translation."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, Zero, initializer


def new(shape, init):
    return Parameter(initializer(init, shape, ms.float32))


def width_norm(width):
    return nn.LayerNorm((width,), epsilon=1e-5)


class Lookup(nn.Cell):
    """Asks a memory; in self-attention the memory is the sequence itself."""

    def __init__(self, width, num_head):
        super().__init__()
        self.num_head = num_head
        self.back = nn.Dense(width, width)
        self.memory = nn.Dense(width, 2 * width)
        self.ask = nn.Dense(width, width)

    def heads(self, x):
        b, t, c = x.shape
        return x.reshape(b, t, self.num_head, c // self.num_head).transpose(0, 2, 1, 3)

    def construct(self, x, memory, hide):
        b, t, c = x.shape
        ask = self.heads(self.ask(x)) * ((c // self.num_head) ** -0.5)
        key, value = ops.split(self.memory(memory), c, -1)
        score = ops.matmul(ask, self.heads(key).swapaxes(-1, -2))
        weight = ops.softmax(ops.masked_fill(score, hide, -1e9), -1)
        return self.back(ops.matmul(weight, self.heads(value)).transpose(0, 2, 1, 3).reshape(b, t, c))


class TwoStep(nn.Cell):
    def __init__(self, width, inner):
        super().__init__()
        self.b_down = new((width,), Zero())
        self.w_down = new((inner, width), Normal(0.02))
        self.b_up = new((inner,), Zero())
        self.w_up = new((width, inner), Normal(0.02))

    def construct(self, x):
        x = ops.gelu(ops.matmul(x, self.w_up) + self.b_up, approximate="none")
        return ops.matmul(x, self.w_down) + self.b_down


class ReaderBlock(nn.Cell):
    def __init__(self, width, num_head, inner):
        super().__init__()
        self.think = TwoStep(width, inner)
        self.before_think = width_norm(width)
        self.look = Lookup(width, num_head)
        self.before_look = width_norm(width)

    def construct(self, x, hide):
        y = self.before_look(x)
        x = x + self.look(y, y, hide)
        return x + self.think(self.before_think(x))


class WriterBlock(nn.Cell):
    def __init__(self, width, num_head, inner):
        super().__init__()
        self.think = TwoStep(width, inner)
        self.before_think = width_norm(width)
        self.look_over = Lookup(width, num_head)
        self.before_look_over = width_norm(width)
        self.look_back = Lookup(width, num_head)
        self.before_look_back = width_norm(width)

    def construct(self, x, read, future, hide):
        y = self.before_look_back(x)
        x = x + self.look_back(y, y, future)
        x = x + self.look_over(self.before_look_over(x), read, hide)
        return x + self.think(self.before_think(x))


class Seq2Seq(nn.Cell):
    def __init__(self, words=61, longest=16, width=32, num_head=4, inner=80, depth=2, blank=0):
        super().__init__()
        self.blank, self.enlarge = blank, width**0.5
        self.word_bias = new((words,), Zero())
        self.closing = nn.CellDict({"writer": width_norm(width), "reader": width_norm(width)})
        self.writer = nn.CellList([WriterBlock(width, num_head, inner) for _ in range(depth)])
        self.reader = nn.CellList([ReaderBlock(width, num_head, inner) for _ in range(depth)])
        self.places_out = new((1, longest, width), Normal(0.02))
        self.places_in = new((1, longest, width), Normal(0.02))
        self.words_out = new((words, width), Normal(width**-0.5))
        self.words_in = nn.Embedding(words, width)

    def construct(self, src, tgt):
        hide = ops.equal(src, self.blank).expand_dims(1).expand_dims(1)
        read = self.words_in(src) * self.enlarge + self.places_in[:, : src.shape[1]]
        for block in self.reader:
            read = block(read, hide)
        read = self.closing["reader"](read)
        t = tgt.shape[1]
        future = Tensor(np.triu(np.ones((t, t), bool), 1))
        x = ops.gather(self.words_out, tgt, 0) * self.enlarge + self.places_out[:, :t]
        for block in self.writer:
            x = block(x, read, future, hide)
        return ops.matmul(self.closing["writer"](x), self.words_out.swapaxes(0, 1)) + self.word_bias


def build():
    return Seq2Seq()
