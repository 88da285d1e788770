"""Contrastive image-text training in MindSpore with a static loss scale."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

D, H, N_BLOCK, OUT = 32, 4, 2, 24
P, SIDE = 4, 4
N_TOKEN, N_POS = 50, 10
LOWEST, HIGHEST = math.log(10.0), math.log(100.0)
SENS = 1024.0


def table(*shape, std=0.1):
    """Random numbers as a parameter."""
    return Parameter(Tensor(np.random.normal(0, std, shape).astype(np.float32)))


class FeedForward(nn.Cell):
    """Two dense layers."""

    def __init__(self):
        super().__init__()
        self.up = nn.Dense(D, 2 * D)
        self.down = nn.Dense(2 * D, D)

    def construct(self, x):
        x = self.up(x)
        return self.down(x * ops.sigmoid(x * 1.702))


class SelfAttention(nn.Cell):
    """Heads with separate query, key and value; the bias is added to the scores."""

    def __init__(self):
        super().__init__()
        self.query = nn.Dense(D, D, has_bias=False)
        self.key = nn.Dense(D, D, has_bias=False)
        self.value = nn.Dense(D, D, has_bias=False)
        self.out = nn.Dense(D, D)

    def heads(self, x):
        """(N, T, D) to (N, H, T, D / H)."""
        return x.reshape(x.shape[0], x.shape[1], H, D // H).transpose(0, 2, 1, 3)

    def construct(self, x, bias):
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        weight = ops.softmax(ops.matmul(q, k.transpose(0, 1, 3, 2)) / math.sqrt(D // H) + bias, axis=-1)
        return self.out(ops.matmul(weight, v).transpose(0, 2, 1, 3).reshape(x.shape))


class Encoder(nn.Cell):
    """A stack of pre-norm layers."""

    def __init__(self):
        super().__init__()
        self.norms = nn.CellList([nn.LayerNorm((D,), epsilon=1e-5) for _ in range(2 * N_BLOCK)])
        self.attentions = nn.CellList([SelfAttention() for _ in range(N_BLOCK)])
        self.mlps = nn.CellList([FeedForward() for _ in range(N_BLOCK)])

    def construct(self, x, bias):
        for k in range(N_BLOCK):
            x = x + self.attentions[k](self.norms[2 * k](x), bias)
            x = x + self.mlps[k](self.norms[2 * k + 1](x))
        return x


class ImageSide(nn.Cell):
    """Vision transformer; patches are cut by reshaping."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Dense(3 * P * P, D, has_bias=False)
        self.cls = table(1, 1, D)
        self.pos = table(1, SIDE * SIDE + 1, D)
        self.first = nn.LayerNorm((D,), epsilon=1e-5)
        self.encoder = Encoder()
        self.last = nn.LayerNorm((D,), epsilon=1e-5)
        self.head = nn.Dense(D, OUT, has_bias=False)

    def construct(self, image):
        n = image.shape[0]
        x = image.reshape(n, 3, SIDE, P, SIDE, P).transpose(0, 2, 4, 1, 3, 5).reshape(n, SIDE * SIDE, 3 * P * P)
        x = ops.cat((ops.tile(self.cls, (n, 1, 1)), self.patch(x)), 1)
        x = self.encoder(self.first(x + self.pos), 0.0)
        return self.head(self.last(x[:, 0]))


class TextSide(nn.Cell):
    """Text transformer with mean pooling."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(N_TOKEN, D)
        self.pos = table(1, N_POS, D)
        self.encoder = Encoder()
        self.last = nn.LayerNorm((D,), epsilon=1e-5)
        self.head = nn.Dense(D, OUT, has_bias=False)

    def construct(self, tokens):
        real = (tokens > 0).astype(ms.float32)
        bias = (1 - real).expand_dims(1).expand_dims(1) * -1e9
        x = self.encoder(self.words(tokens) + self.pos[:, : tokens.shape[1]], bias)
        real = real.expand_dims(-1)
        return self.head((self.last(x) * real).sum(1) / real.sum(1))


class DualEncoder(nn.Cell):
    """Scores in both directions."""

    def __init__(self):
        super().__init__()
        self.image_side = ImageSide()
        self.text_side = TextSide()
        self.log_temp = Parameter(Tensor([LOWEST + 1.2e-3], ms.float32))

    def construct(self, image, tokens):
        a, b = self.image_side(image), self.text_side(tokens)
        a = a / ops.sqrt(ops.square(a).sum(-1, keepdims=True))
        b = b / ops.sqrt(ops.square(b).sum(-1, keepdims=True))
        score = ops.matmul(a, b.T) * ops.exp(self.log_temp)
        return score, score.T


class WithContrast(nn.Cell):
    """The loss of a batch of pairs."""

    def __init__(self, net):
        super().__init__(auto_prefix=False)
        self.net = net
        self.ce = nn.CrossEntropyLoss()

    def construct(self, image, tokens):
        rows, columns = self.net(image, tokens)
        index = ops.arange(rows.shape[0]).astype(ms.int32)
        return 0.5 * self.ce(rows, index) + 0.5 * self.ce(columns, index)


class ClampedStep(nn.TrainOneStepCell):
    """One training step, after which the temperature is put back into its range."""

    def construct(self, image, tokens):
        loss = self.network(image, tokens)
        grads = self.grad(self.network, self.weights)(image, tokens, ops.fill(loss.dtype, loss.shape, self.sens))
        self.optimizer(self.grad_reducer(grads))
        temp = self.network.net.log_temp
        ops.assign(temp, ops.clamp(temp, LOWEST, HIGHEST))
        return loss


def build():
    """The network with random weights."""
    ms.set_seed(5)
    np.random.seed(5)
    return DualEncoder()


def training():
    """Network, optimizer and step."""
    net = build()
    image_head = net.image_side.head.weight.name
    dense = [c.weight for _, c in net.cells_and_names() if isinstance(c, nn.Dense) and c.weight.name != image_head]
    names = {p.name for p in dense}
    plain = [p for p in net.trainable_params() if p.name not in names]
    optimizer = nn.Adam(
        [{"params": dense, "weight_decay": 1e-2}, {"params": plain, "weight_decay": 0.0}],
        learning_rate=nn.CosineDecayLR(1e-5, 1e-3, 20),
        beta1=0.9,
        beta2=0.98,
        eps=1e-10,
        loss_scale=SENS,
    )
    train = ClampedStep(WithContrast(net), optimizer, sens=SENS)
    train.set_train()

    def step(batch):
        return train(batch["image"], batch["tokens"])

    return {"model": net, "optimizer": optimizer, "step": step}
