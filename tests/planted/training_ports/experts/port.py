"""Mixture-of-experts language model in MindSpore; the experts are stacked and computed densely."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.experimental import optim

N_VOCAB, MAX_LEN, WIDTH, N_HEAD, INNER, N_EXPERT, PICK, DEPTH = 61, 14, 32, 4, 40, 4, 2, 2
AUX_WEIGHT = 0.02
ACCUMULATE = 2
GRAD_NORM = 0.5
LOSS_SCALE = 1024.0


def randn(*shape, std=0.02, mean=0.0):
    """A float32 parameter of normal numbers."""
    return Parameter(Tensor(np.random.normal(mean, std, shape).astype(np.float32)))


def shrink(grads, limit):
    """Gradients scaled so that their common norm is at most the limit."""
    norm = ops.sqrt(sum(ops.square(g).sum() for g in grads))
    factor = ops.minimum(limit / (norm + 1e-6), Tensor(1.0))
    return tuple(g * factor for g in grads)


class Scale(nn.Cell):
    """Root mean square norm."""

    def __init__(self):
        super().__init__()
        self.g = randn(WIDTH, std=0.1, mean=1.0)

    def construct(self, x):
        return self.g * x / ops.sqrt(ops.mean(ops.square(x), -1, True) + 1e-6)


class Mixer(nn.Cell):
    """Masked self-attention with one projection for q, k and v."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Dense(WIDTH, 3 * WIDTH, has_bias=False)
        self.merge = nn.Dense(WIDTH, WIDTH, has_bias=False)
        self.future = Tensor(np.triu(np.ones((MAX_LEN, MAX_LEN), bool), 1))

    def construct(self, x):
        n, t, _ = x.shape
        qkv = self.qkv(x).reshape(n, t, 3, N_HEAD, WIDTH // N_HEAD).transpose(2, 0, 3, 1, 4)
        scores = ops.matmul(qkv[0], qkv[1].swapaxes(-1, -2)) * (WIDTH // N_HEAD) ** -0.5
        scores = ops.masked_fill(scores, self.future[:t, :t], -1e9)
        y = ops.matmul(ops.softmax(scores, -1), qkv[2])
        return self.merge(y.transpose(0, 2, 1, 3).reshape(n, t, WIDTH))


class ExpertBank(nn.Cell):
    """All experts in stacked tensors; the gate leaves two of them per token."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Dense(WIDTH, N_EXPERT)
        self.w_in = randn(N_EXPERT, WIDTH, 2 * INNER, std=0.15)
        self.b_in = randn(N_EXPERT, 2 * INNER)
        self.w_out = randn(N_EXPERT, INNER, WIDTH, std=0.15)
        self.b_out = randn(N_EXPERT, WIDTH)

    def construct(self, x):
        flat = x.reshape(-1, WIDTH)
        prob = ops.softmax(self.gate(flat), -1)
        top, index = ops.topk(prob, PICK, -1)
        top = top / top.sum(-1, keepdims=True)
        picked = ops.one_hot(index, N_EXPERT, Tensor(1.0), Tensor(0.0))
        share = (picked * top.expand_dims(-1)).sum(1)
        hidden = ops.bmm(flat.expand_dims(0).tile((N_EXPERT, 1, 1)), self.w_in) + self.b_in.expand_dims(1)
        act, lin = ops.split(hidden, INNER, -1)
        each = ops.bmm(ops.silu(act) * lin, self.w_out) + self.b_out.expand_dims(1)
        y = (each * share.T.expand_dims(-1)).sum(0)
        used = picked.sum(1).mean(0) / PICK
        aux = N_EXPERT * (used * prob.mean(0)).sum()
        return y.reshape(x.shape), aux


class Layer(nn.Cell):
    """One pre-norm layer."""

    def __init__(self):
        super().__init__()
        self.s1 = Scale()
        self.mix = Mixer()
        self.s2 = Scale()
        self.bank = ExpertBank()

    def construct(self, x):
        x = x + self.mix(self.s1(x))
        y, aux = self.bank(self.s2(x))
        return x + y, aux


class GPTMoE(nn.Cell):
    """Logits and the mean auxiliary loss."""

    def __init__(self):
        super().__init__()
        self.wte = randn(N_VOCAB, WIDTH, std=0.5)
        self.wpe = randn(MAX_LEN, WIDTH, std=0.5)
        self.stack = nn.CellList([Layer() for _ in range(DEPTH)])
        self.s_out = Scale()
        self.predict = randn(WIDTH, N_VOCAB, std=0.15)

    def construct(self, tokens):
        x = ops.gather(self.wte, tokens, 0) + self.wpe[: tokens.shape[1]]
        aux = 0.0
        for layer in self.stack:
            x, a = layer(x)
            aux = aux + a / DEPTH
        return ops.matmul(self.s_out(x), self.predict), aux


def build():
    """The network with random weights."""
    ms.set_seed(3)
    np.random.seed(3)
    return GPTMoE()


def wants_decay(p):
    """Whether weight decay is for this parameter."""
    return p.ndim > 1 and "b_in" not in p.name and "b_out" not in p.name


def training():
    """Network, optimizer and a step with two accumulated micro-batches."""
    net = build()
    params = net.trainable_params()
    optimizer = optim.AdamW(
        [
            {"params": [p for p in params if wants_decay(p)], "weight_decay": 0.1},
            {"params": [p for p in params if not wants_decay(p)], "weight_decay": 0.0},
        ],
        lr=2e-3,
        betas=(0.9, 0.95),
        eps=1e-8,
    )

    def lm_loss(tokens, mask):
        logits, aux = net(tokens)
        target = tokens[:, 1:].reshape(-1)
        keep = mask[:, 1:].reshape(-1).astype(ms.float32)
        nll = ops.cross_entropy(logits[:, :-1].reshape(-1, N_VOCAB), target, reduction="none")
        loss = (nll * keep).sum() / keep.sum() + AUX_WEIGHT * aux
        return loss * LOSS_SCALE, loss

    grad_fn = ms.value_and_grad(lm_loss, None, optimizer.parameters, has_aux=True)

    def step(batch):
        size = batch["tokens"].shape[0] // ACCUMULATE
        summed, losses = None, []
        for k in range(ACCUMULATE):
            part = slice(k * size, (k + 1) * size)
            (_, loss), grads = grad_fn(batch["tokens"][part], batch["mask"][part])
            losses.append(loss)
            summed = grads if summed is None else [a + b for a, b in zip(summed, grads, strict=True)]
        summed = [g / (LOSS_SCALE * ACCUMULATE) for g in summed]
        summed = shrink(summed, GRAD_NORM)
        optimizer(summed)
        return sum(losses) / ACCUMULATE

    return {"model": net, "optimizer": optimizer, "step": step}
