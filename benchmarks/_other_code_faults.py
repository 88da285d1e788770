"""Wrong code of the ports in tests/planted/code_ports/other_port.py, written down before any of it was run."""

from __future__ import annotations

from _code_faults import CodeFault

KEPT = ("y = ops.matmul(scores * self.decay(t), v)",)
CUT = "part = flow[:, :, i // 3 : i // 3 + h, i % 3 : i % 3 + w]"
SPREAD = ("y = y + part.reshape",)
PLACED = ("p = self.p(table)", "angles = place", "table = Tensor")
STATED = "state = state * kept[:, i] + added[:, i]"
READ_OUT = "outs.append(ops.matmul(state, read[:, i].expand_dims(-1)).squeeze(-1))"
ROUNDED = ("z = ops.round(z)", "z = z * self.half")
NEIGHBOURS = ("y = ops.elu(ops.matmul(a", "a = a * root")
GATE = "h = n + z * (h - n)"
WAY = "ways = alpha.expand_dims(2) + self.moves"
COUNTED = "places = ops.cumsum(mask, 1).astype(ms.int32) * mask + 1"

OTHERS = (
    CodeFault(
        "Retained",
        "what comes after is kept",
        "np.where(apart >= 0, gammas.reshape(2, 1, 1) ** np.maximum(apart, 0), 0.0)",
        "gammas.reshape(2, 1, 1) ** np.abs(apart)",
        ("attention-mask",),
        KEPT,
    ),
    CodeFault(
        "Retained", "slower decay", "1.0 - 0.5 ** (1 + np.arange(2))", "1.0 - 0.5 ** (2 + np.arange(2))", also=KEPT
    ),
    CodeFault(
        "Retained",
        "no scale",
        "scores = ops.matmul(q, k) / math.sqrt(8)",
        "scores = ops.matmul(q, k)",
        ("scaled", "attention-scale"),
    ),
    CodeFault(
        "Retained",
        "norm over all tokens",
        "self.norm(y.transpose(0, 2, 1, 3).reshape(b * t, 16))",
        "self.norm(y.transpose(0, 1, 3, 2).reshape(b, 16, t)).transpose(0, 2, 1).reshape(b * t, 16)",
        ("norm-groups", "norm-axes"),
        ("return self.o(y).reshape(b, t, 16)",),
    ),
    CodeFault(
        "Convex",
        "softmax over the places",
        "mask = ops.softmax(mask, axis=1)",
        "mask = ops.softmax(mask, axis=2)",
        ("softmax-axis",),
        SPREAD,
    ),
    CodeFault("Convex", "not larger", "self.flow(x) * 2.0", "self.flow(x)", ("scaled",)),
    CodeFault(
        "Convex",
        "columns before rows",
        CUT,
        "part = flow[:, :, i % 3 : i % 3 + h, i // 3 : i // 3 + w]",
        ("transposed", "reordered"),
        SPREAD,
    ),
    CodeFault(
        "Convex",
        "rows and columns of the new points",
        "y = y.transpose(0, 1, 4, 2, 5, 3)",
        "y = y.transpose(0, 1, 4, 3, 5, 2)",
        ("reordered",),
    ),
    CodeFault(
        "Relative",
        "places from the front",
        "np.arange(t - 1, -t, -1.0)",
        "np.arange(1 - t, t, 1.0)",
        causes=("flipped",),  # of the table: left out at first
        also=(*PLACED, "index = Tensor", "placed = ops.matmul", "placed = ops.gather_elements"),
    ),
    CodeFault(
        "Relative",
        "one place beside",
        "Tensor(t - 1 - np.arange(t).reshape(-1, 1) + np.arange(t), ms.int32)",
        "Tensor(np.minimum(t - np.arange(t).reshape(-1, 1) + np.arange(t), 2 * t - 2), ms.int32)",
        ("displaced", "rolled"),
        ("placed = ops.gather_elements",),
    ),
    CodeFault(
        "Relative", "one bias for both", "ops.matmul((q + self.w).transpose", "ops.matmul((q + self.u).transpose"
    ),
    CodeFault(
        "Selective",
        "no softplus",
        "delta = ops.log(1 + ops.exp(self.step(u)))",
        "delta = ops.relu(self.step(u))",
        ("activation-differs", "activation-missing"),
        ("kept = ops.exp", "added = (delta"),
    ),
    CodeFault(
        "Selective",
        "rate without exp",
        "ops.exp(-delta.expand_dims(-1) * ops.exp(self.rate))",
        "ops.exp(-delta.expand_dims(-1) * ops.abs(self.rate))",
    ),
    CodeFault(
        "Selective",
        "read before written",
        f"{STATED}\n            {READ_OUT}",
        f"{READ_OUT}\n            {STATED}",
        ("displaced", "rolled"),
        ("y = ops.stack(outs",),
    ),
    CodeFault(
        "Selective",
        "no skip",
        "y = y + u * self.skip\n        return",
        "return",
        ("residual-missing", "term-*"),
        ("y = ops.stack(outs",),
    ),
    CodeFault("Levels", "down to whole numbers", "z = ops.round(z)", "z = ops.floor(z)"),
    CodeFault(
        "Levels",
        "no shift",
        "z = ops.tanh(self.first(x) + self.shift)",
        "z = ops.tanh(self.first(x))",
        ("slices-shifted*", "shifted"),
        ROUNDED,
    ),
    CodeFault(
        "Centred",
        "length over centres",
        "y = y / ops.sqrt((y * y).sum(2, keepdims=True))",
        "y = y / ops.sqrt((y * y).sum(1, keepdims=True))",
        ("norm-axes",),
    ),
    CodeFault("Centred", "centres once", "shares.sum(1).expand_dims(-1) * self.centres", "self.centres"),
    CodeFault(
        "Centred",
        "shares over tokens",
        "ops.softmax(self.assign(x), axis=-1)",
        "ops.softmax(self.assign(x), axis=1)",
        ("softmax-axis",),
    ),
    CodeFault(
        "Graphed",
        "torch's slope taken for another",
        "near.expand_dims(2) + far.expand_dims(1), 0.2)",
        "near.expand_dims(2) + far.expand_dims(1), 0.01)",
        ("activation-*", "negative-slope"),
    ),
    CodeFault(
        "Graphed",
        "without itself",
        "a = edges.astype(x.dtype) + ops.eye(12, 12, x.dtype)",
        "a = edges.astype(x.dtype) + 1e-6",
        also=(*NEIGHBOURS, "scores = ops.where", "root = "),
    ),
    CodeFault(
        "Graphed",
        "divided by rows alone",
        "root = 1.0 / ops.sqrt(a.sum(-1))\n        a = a * root.expand_dims(2) * root.expand_dims(1)",
        "root = 1.0 / a.sum(-1)\n        a = a * root.expand_dims(2)",
        also=NEIGHBOURS,
    ),
    CodeFault(
        "Graphed",
        "neighbours' scores across",
        "near.expand_dims(2) + far.expand_dims(1)",
        "near.expand_dims(1) + far.expand_dims(2)",
        ("transposed",),
    ),
    CodeFault(
        "Squeezed",
        "another hard sigmoid",
        "ops.clamp(self.more(scale) / 6 + 0.5, 0, 1)",
        "ops.clamp(self.more(scale) * 0.2 + 0.5, 0, 1)",
        ("activation-differs",),
        ("y = ops.pad(y * scale",),
    ),
    CodeFault(
        "Squeezed",
        "silu",
        "y = y * ops.clamp(y + 3, 0, 6) / 6",
        "y = y * ops.sigmoid(y)",
        ("activation-differs",),
        ("scale = y.mean",),
    ),
    CodeFault(
        "Squeezed", "padded by zeros", "(1, 1, 1, 1), value=-1e9)", "(1, 1, 1, 1))", also=("y = ops.max_pool2d",)
    ),
    CodeFault(
        "Squeezed",
        "largest for the mean",
        "scale = y.mean((2, 3), keep_dims=True)",
        "scale = ops.amax(y, (2, 3), keepdims=True)",
        ("reduction-differs",),
    ),
    CodeFault(
        "Recurrent",
        "gates the other way round",
        "r, z = gates[:, :8], gates[:, 8:]",
        "z, r = gates[:, :8], gates[:, 8:]",
        ("halves-swapped",),
        ("n = ops.tanh", GATE),
    ),
    CodeFault("Recurrent", "the new for the old", GATE, "h = h + z * (n - h)"),
    CodeFault(
        "Recurrent",
        "reset before the layer",
        "n = ops.tanh(given[:, i, 16:] + r * before[:, 16:])",
        "n = ops.tanh(given[:, i, 16:] + self.h(r * h)[:, 16:])",
    ),
    CodeFault(
        "Chained",
        "moves transposed",
        WAY,
        "ways = alpha.expand_dims(2) + self.moves.T",
        ("transposed",),
        ("alpha = ops.log(",),
    ),
    CodeFault(
        "Chained",
        "the best way alone",
        "alpha = ops.log(ops.exp(ways).sum(1)) + e",
        "alpha = ops.amax(ways, 1) + e",
        ("reduction-differs",),
    ),
    CodeFault(
        "Chained",
        "no start",
        "alpha = e[:, 0] + self.start",
        "alpha = e[:, 0]",
        ("slices-shifted*", "shifted", "term-*"),
    ),
    CodeFault(
        "Mixed",
        "sines alone",
        "        real = real - ops.matmul(ops.matmul(self.sin_t, x), self.sin_d)\n",
        "",
        ("term-*",),
        ("real = ops.matmul(ops.matmul(self.cos_t", "y = self.norm(x + real)"),
    ),
    CodeFault(
        "Mixed",
        "divided by the root of the size",
        "y = self.norm(x + real)",
        "y = self.norm(x + real / math.sqrt(192))",
        ("scaled", "term-scaled"),
    ),
    CodeFault(
        "Mixed",
        "another cube",
        "0.044715 * ops.pow(h, 3)",
        "0.44715 * ops.pow(h, 3)",
        ("activation-differs",),
        ("return y + self.down(h)",),
    ),
    CodeFault(
        "Placed",
        "places from zero",
        COUNTED,
        "places = ops.cumsum(mask, 1).astype(ms.int32) * mask",
        ("index-*", "displaced", "shifted"),
        ("y = self.token(ids)",),
    ),
    CodeFault(
        "Placed",
        "places by NumPy",
        COUNTED,
        "places = Tensor(np.broadcast_to(np.arange(2, 14), ids.shape).copy(), ms.int32)",
        ("index-*",),
        ("y = self.token(ids)",),
    ),
    CodeFault(
        "Placed",
        "tokens are not scaled",
        "self.token(ids) * math.sqrt(16)",
        "self.token(ids)",
        ("scaled", "term-scaled"),
    ),
    CodeFault(
        "Placed",
        "padding is not hidden",
        "        y = y + (1 - mask.expand_dims(-1).astype(y.dtype)) * -1e4\n",
        "",
        ("padding-differs", "attention-mask"),
        ("y = ops.amax(y, 1)",),
    ),
    CodeFault(
        "Pyramid",
        "rounded up",
        "np.arange(5) * 3 // 5",
        "(np.arange(5) * 3 + 2) // 5",
        ("interpolation",),
        ("top = ops.gather",),
    ),
    CodeFault(
        "Pyramid",
        "divided by the number twice",
        "0.3 * near / 3, 0.75)",
        "0.3 * near / 9, 0.75)",
        also=("y = y / ops.pow",),
    ),
    CodeFault(
        "Pyramid",
        "norm over what stands beside",
        "square = ops.pad(y * y, (0, 0, 0, 0, 1, 1))",
        "square = ops.pad(y * y, (0, 0, 0, 0, 0, 2))",
        also=("near = square",),
    ),
)
