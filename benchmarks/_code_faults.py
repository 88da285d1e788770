"""Wrong code of the ports in tests/planted/code_ports: what is written instead, and what is right to say of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeFault:
    """One slip in the port of a class: the text `right` is `wrong`.

    `causes` are globs of causes that name it; `also` are other lines of the port, by a part of their text, that may be
    named instead: where a wrong table is used.
    """

    port: str
    name: str
    right: str
    wrong: str
    causes: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


SHARES = "shares = ops.softmax(scores, axis=-1)\n        top, index = ops.topk(shares, 2, dim=-1)"
ROUTED = "weights = (chosen * top"
WINDOW, FRAMED = "np.arange(32) / 32)", "frames = frames * self.window"
RECURRENT = ("out, _ = self.rnn",)
SMALLER = "y = ops.matmul(ops.matmul(self.rows, y), self.columns.T)"
READ = ('y = ops.grid_sample(y, grid, mode="bilinear"',)
SLOPED = ("scores = scores + self.slopes",)
NORM = "y = self.norm(y, "
HALVES, PAIRS = "a, b = x[..., : d // 2], x[..., d // 2 :]", "[a * cos - b * sin, b * cos + a * sin]"
TURNED = ("return ops.concat([a * cos",)
ACTIVATED = "gate = 0.5 * gate * (1 + ops.erf(gate / math.sqrt(2)))"
DILATED = 'pad_mode="pad", padding=2, dilation=2, has_bias=True'
NEAR = 'self.near = nn.Conv2d(4, 4, 3, pad_mode="same", '
INDEXED = ("bias = ops.gather(",)
NORMALISED = "length = ops.sqrt(ops.square(y).sum(-1, keepdims=True))"
TIMED = ("made = self.time(ops.concat", "angles = t.expand_dims")

FAULTS = (
    CodeFault(
        "Router",
        "softmax behind top-k",
        SHARES,
        "top, index = ops.topk(scores, 2, dim=-1)\n        top = ops.softmax(top, axis=-1)",
        causes=("activation-extra",),
        also=(ROUTED,),
    ),
    CodeFault(
        "Router",
        "shares of the chosen add up to one",
        SHARES,
        f"{SHARES}\n        top = top / top.sum(-1, keepdims=True)",
        causes=("activation-extra",),
        also=(ROUTED,),
    ),
    CodeFault(
        "Router",
        "softmax over the tokens",
        "scores, axis=-1)\n        top",
        "scores, axis=1)\n        top",
        ("softmax-axis",),
    ),
    CodeFault(
        "Router", "one expert too many", "ops.topk(shares, 2,", "ops.topk(shares, 3,", also=("chosen = ", ROUTED)
    ),
    CodeFault("Spectrogram", "symmetric window", WINDOW, "np.arange(32) / 31)", also=(FRAMED,)),
    CodeFault(
        "Spectrogram",
        "symmetric window by NumPy",
        "Tensor(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(32) / 32), ms",
        "Tensor(np.hanning(32), ms",
        also=(FRAMED,),
    ),
    CodeFault("Spectrogram", "another window", "0.5 - 0.5 * np.cos", "0.54 - 0.46 * np.cos", also=(FRAMED,)),
    CodeFault(
        "Spectrogram",
        "padding by zeros",
        '(16, 16), mode="reflect"',
        '(16, 16), mode="constant"',
        also=("frames = ops.stack",),
    ),
    CodeFault(
        "Spectrogram",
        "size for power",
        "power = ops.square(real) + ops.square(imaginary)",
        "power = ops.sqrt(ops.square(real) + ops.square(imaginary))",
        also=("return self.fc(ops.log(",),
    ),
    CodeFault(
        "Spectrogram",
        "logarithm to ten",
        "ops.log(power + 1e-3)",
        "ops.log(power + 1e-3) / math.log(10.0)",
        ("scaled",),
    ),
    CodeFault(
        "Packed",
        "lengths are not given",
        "self.rnn(x, seq_length=lengths.astype(ms.int32))",
        "self.rnn(x)",
        ("*length*",),
        RECURRENT,
    ),
    CodeFault(
        "Packed",
        "mean over all places",
        "self.head(total / lengths.expand_dims(1).astype(x.dtype))",
        "self.head(out.mean(1))",
        ("padding-differs", "reduction-differs"),
        ("total = ",),
    ),
    CodeFault(
        "Packed",
        "the last place",
        "self.head(total / lengths.expand_dims(1).astype(x.dtype))",
        "self.head(out[:, -1])",
        ("reduction-differs",),
        ("total = ",),
    ),
    CodeFault(
        "Resized",
        "no filter",
        SMALLER,
        'y = ops.interpolate(y, size=(5, 6), mode="bilinear", align_corners=False)',
        ("interpolation",),
    ),
    CodeFault("Resized", "the mean of pixels", SMALLER, "y = ops.avg_pool2d(y, 2, 2)"),
    CodeFault(
        "Resized",
        "corners on corners",
        'mode="bilinear", align_corners=False)',
        'mode="bilinear", align_corners=True)',
        ("interpolation",),
    ),
    CodeFault(
        "Resized",
        "nearest",
        'size=(10, 12), mode="bilinear", align_corners=False)',
        'size=(10, 12), mode="nearest")',
        ("interpolation",),
    ),
    CodeFault("Warped", "corners on corners", '"zeros", align_corners=False)', '"zeros", align_corners=True)'),
    CodeFault("Warped", "borders go on", 'padding_mode="zeros"', 'padding_mode="border"'),
    CodeFault("Warped", "nearest", 'grid, mode="bilinear"', 'grid, mode="nearest"'),
    CodeFault(
        "Warped",
        "rows before columns",
        "grid + moved.transpose(0, 2, 3, 1)",
        "grid + ops.flip(moved.transpose(0, 2, 3, 1), (-1,))",
        also=READ,
    ),
    CodeFault(
        "Warped",
        "corners of the grid",
        "columns = (2 * ops.arange(w).astype(x.dtype) + 1) / w - 1",
        "columns = 2 * ops.arange(w).astype(x.dtype) / (w - 1) - 1",
        also=("places = ", "grid = "),
    ),
    CodeFault(
        "Biased",
        "slopes of a power of two",
        "self.slopes = Tensor(slopes(6)",
        "self.slopes = Tensor((2.0 ** (-8 / 6 * np.arange(1, 7)))",
        also=SLOPED,
    ),
    CodeFault(
        "Biased",
        "slopes in another order",
        "np.concatenate([first, more])",
        "np.sort(np.concatenate([first, more]))[::-1].copy()",
        also=SLOPED,
    ),
    CodeFault(
        "Biased", "slopes of eight heads", "slopes(6).reshape(6, 1, 1)", "slopes(8)[:6].reshape(6, 1, 1)", also=SLOPED
    ),
    CodeFault(
        "Biased",
        "distance without sign",
        "(place.expand_dims(0) - place.expand_dims(1))",
        "ops.abs(place.expand_dims(0) - place.expand_dims(1))",
    ),
    CodeFault(
        "Biased",
        "divided by the width",
        "ops.matmul(q, k) / math.sqrt(8)",
        "ops.matmul(q, k) / 8",
        ("scaled", "attention-scale", "softmax-scale"),
        SLOPED,
    ),
    CodeFault(
        "Biased",
        "one more is hidden",
        "ops.triu(ops.ones((t, t), x.dtype), 1)",
        "ops.triu(ops.ones((t, t), x.dtype), 0)",
        ("attention-mask",),
        ("scores = scores + hidden",),
    ),
    CodeFault(
        "Biased",
        "one less is hidden",
        "ops.triu(ops.ones((t, t), x.dtype), 1)",
        "ops.triu(ops.ones((t, t), x.dtype), 2)",
        ("attention-mask",),
        ("scores = scores + hidden",),
    ),
    CodeFault(
        "Biased",
        "softmax over queries",
        "y = ops.matmul(ops.softmax(scores, axis=-1), v)\n        return self.o(y.t",
        "y = ops.matmul(ops.softmax(scores, axis=-2), v)\n        return self.o(y.t",
        ("softmax-axis",),
    ),
    CodeFault(
        "Grouped",
        "turned by neighbours",
        f"{HALVES}\n    return ops.concat({PAIRS}, axis=-1)",
        f"a, b = x[..., 0::2], x[..., 1::2]\n    return ops.stack({PAIRS}, axis=-1).reshape(x.shape)",
        ("turn-differs",),
    ),
    CodeFault(
        "Grouped",
        "turned back",
        "a * cos - b * sin, b * cos + a * sin",
        "a * cos + b * sin, b * cos - a * sin",
        ("turn-differs",),
    ),
    CodeFault("Grouped", "another base", "inverse = 1.0 / 100.0", "inverse = 1.0 / 10000.0", also=TURNED),
    CodeFault(
        "Grouped",
        "keys tiled",
        "k = ops.repeat_interleave(k, 2, 1)\n        v = ops.repeat_interleave(v, 2, 1)",
        "k = ops.tile(k, (1, 2, 1, 1))\n        v = ops.tile(v, (1, 2, 1, 1))",
    ),
    CodeFault("Grouped", "values tiled", "v = ops.repeat_interleave(v, 2, 1)", "v = ops.tile(v, (1, 2, 1, 1))"),
    CodeFault(
        "Grouped",
        "keys are not turned",
        "k = turned(self.k(x).reshape(b, t, 2, 8).swapaxes(1, 2))",
        "k = self.k(x).reshape(b, t, 2, 8).swapaxes(1, 2)",
        also=("k = ops.repeat_interleave",),
    ),
    CodeFault(
        "Grouped",
        "divided by the width",
        "* 8**-0.5\n        k = turned",
        "* 8**-1.0\n        k = turned",
        ("scaled", "attention-scale", "softmax-scale"),
        ("scores = ops.matmul",),
    ),
    CodeFault(
        "Gated",
        "epsilon outside of the root",
        "ops.sqrt(ops.square(x).mean(-1, keep_dims=True) + 1e-3)",
        "ops.sqrt(ops.square(x).mean(-1, keep_dims=True)) + 1e-3",
        ("epsilon-outside",),
        ("y = x / size",),
    ),
    CodeFault(
        "Gated",
        "another epsilon",
        "keep_dims=True) + 1e-3)\n        y = x / size",
        "keep_dims=True) + 1e-5)\n        y = x / size",
        ("epsilon",),
        ("y = x / size",),
    ),
    CodeFault(
        "Gated",
        "the sum for the mean",
        "ops.square(x).mean(-1, keep_dims=True) + 1e-3",
        "ops.square(x).sum(-1, keepdims=True) + 1e-3",
        also=("y = x / size",),
    ),
    CodeFault(
        "Gated",
        "gelu by tanh",
        ACTIVATED,
        "gate = 0.5 * gate * (1 + ops.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))",
        ("activation-differs", "gate-differs"),
        ("return x + self.down(gate * value)",),
    ),
    CodeFault(
        "Gated",
        "gelu by sigmoid",
        ACTIVATED,
        "gate = gate * ops.sigmoid(1.702 * gate)",
        ("activation-differs", "gate-differs"),
        ("return x + self.down(gate * value)",),
    ),
    CodeFault(
        "Gated",
        "the other half is the gate",
        "gate, value = y[..., :24], y[..., 24:]",
        "value, gate = y[..., :24], y[..., 24:]",
        ("halves-swapped",),
        (ACTIVATED, "return x + self.down(gate * value)"),
    ),
    CodeFault("Dilated", "less padding, no dilation", DILATED, DILATED.replace("2", "1"), ("*dilation*",)),
    CodeFault(
        "Dilated",
        "padding in the code, no dilation",
        DILATED + ")\n        self.near",
        'pad_mode="pad", padding=1, has_bias=True)\n        self.near',
        ("*dilation*",),
    ),
    CodeFault(
        "Dilated",
        "the other one is dilated",
        f"{NEAR}has_bias=True)",
        f"{NEAR}dilation=2, has_bias=True)",
        ("*dilation*",),
    ),
    CodeFault(
        "Windows",
        "moved back the wrong way",
        "rolled(y, 2)",
        "rolled(y, -2)",
        ("rolled",),
    ),
    CodeFault(
        "Windows", "not moved back", "return rolled(y, 2)", "return y", ("rolled",), ("y = y.transpose(0, 1, 3",)
    ),
    CodeFault(
        "Windows",
        "moved the wrong way",
        "rolled(x, -2)",
        "rolled(x, 2)",
        ("rolled",),
        ("x = x.reshape(b, h // 4",),
    ),
    CodeFault(
        "Windows",
        "biases of the other direction",
        "self.index = Tensor(apart.reshape(-1)",
        "self.index = Tensor(apart.T.reshape(-1)",
        also=INDEXED,
    ),
    CodeFault(
        "Windows",
        "windows put together transposed",
        "y = y.transpose(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)",
        "y = y.reshape(b, h, w, c)",
        ("reordered", "reshaped", "transposed"),
    ),
    CodeFault(
        "Windows",
        "no scale",
        "qkv[0] * 8**-0.5, qkv[1]",
        "qkv[0], qkv[1]",
        ("scaled", "attention-scale", "softmax-scale"),
        ("scores = ops.matmul",),
    ),
    CodeFault("Pooled", "mean over all", "(y * mask).sum(1) / count", "y.mean(1)", ("padding-differs",)),
    CodeFault(
        "Pooled",
        "divided by the length",
        "count = ops.maximum(mask.sum(1), Tensor(1e-9))",
        "count = x.shape[1]",
        also=("y = self.proj((y * mask)",),
    ),
    CodeFault("Pooled", "length over the batch", NORMALISED, NORMALISED.replace("-1", "0"), also=("y = y / length",)),
    CodeFault(
        "Pooled", "sum of sizes", NORMALISED, "length = ops.abs(y).sum(-1, keepdims=True)", also=("y = y / length",)
    ),
    CodeFault(
        "Pooled", "scale without exp", "ops.exp(self.scale) * ops.matmul", "self.scale * ops.matmul", ("scaled",)
    ),
    CodeFault(
        "Pixels",
        "channels last in a patch",
        "transpose(0, 2, 4, 1, 3, 5)",
        "transpose(0, 2, 4, 3, 5, 1)",
        ("interleaved", "parts-reordered", "reordered", "permuted"),
        ("y = self.embed",),
    ),
    CodeFault(
        "Pixels",
        "depth to space",
        "y = y.reshape(b, 3, 2, 2, h // 2, w // 2)\n        return y.transpose(0, 1, 4, 2, 5, 3)",
        "y = y.reshape(b, 2, 2, 3, h // 2, w // 2)\n        return y.transpose(0, 3, 4, 1, 5, 2)",
        ("reordered",),
    ),
    CodeFault(
        "Pixels",
        "rows and columns of a patch",
        "transpose(0, 1, 4, 2, 5, 3)",
        "transpose(0, 1, 4, 3, 5, 2)",
        ("reordered",),
    ),
    CodeFault(
        "Normed",
        "variance for its root",
        "spread = ops.sqrt(ops.square(flat).sum(1, keepdims=True) / 26)",
        "spread = ops.square(flat).sum(1, keepdims=True) / 26",
        (),
        ("weight = flat / (spread",),
    ),
    CodeFault(
        "Normed",
        "groups by turns",
        "y = y.reshape(b, 4, -1)",
        "y = y.reshape(b, 2, 4, -1).swapaxes(1, 2).reshape(b, 4, -1)",
        ("norm-groups",),
    ),
    CodeFault("Normed", "another epsilon", "ops.sqrt(variance + 1e-3)", "ops.sqrt(variance + 1e-1)", ("epsilon",)),
    CodeFault(
        "Timed",
        "sines first",
        "ops.concat([ops.cos(angles), ops.sin(angles)]",
        "ops.concat([ops.sin(angles), ops.cos(angles)]",
        ("parts-reordered", "swapped", "halves-swapped"),
    ),
    CodeFault("Timed", "frequencies to the end", "-np.arange(8) / 8)", "-np.arange(8) / 7)", also=TIMED),
    CodeFault("Timed", "scale without one", "y * (1 + scale) + shift", "y * scale + shift"),
    CodeFault(
        "Timed",
        "shift first",
        "scale, shift = ops.chunk",
        "shift, scale = ops.chunk",
        also=("return self.last(y * (1",),
    ),
    CodeFault("Scanned", "relu for elu", "ops.elu(self.k(x)) + 1", "ops.relu(self.k(x)) + 1", ("activation-differs",)),
    CodeFault(
        "Scanned",
        "without itself",
        "states = ops.cumsum(k.expand_dims(-1) * v.expand_dims(-2), 1)",
        "pairs = k.expand_dims(-1) * v.expand_dims(-2)\n        states = ops.cumsum(pairs, 1) - pairs",
        also=("above = ",),
    ),
    CodeFault("Scanned", "not divided", "self.o(above / below)", "self.o(above)", also=("above = ",)),
    CodeFault(
        "Scanned", "sums over features", "sums = ops.cumsum(k, 1)", "sums = ops.cumsum(k, 2)", also=("below = ",)
    ),
    CodeFault("Boxes", "centres and sizes", "[center - 0.5 * size, center + 0.5 * size]", "[center, size]"),
    CodeFault("Boxes", "another bound", "max=0.5)", "max=4.135)", ("clipp*",), ("size = size * ops.exp",)),
    CodeFault(
        "Boxes",
        "moved by shares of the new size",
        "center = center + deltas[..., :2] * size\n        size = size * ops.exp(ops.clamp(deltas[..., 2:], max=0.5))",
        "size = size * ops.exp(ops.clamp(deltas[..., 2:], max=0.5))\n        center = center + deltas[..., :2] * size",
    ),
    CodeFault("Handmade", "another epsilon", "epsilon=1e-3)", "epsilon=1e-1)", ("epsilon",), (NORM,)),
    CodeFault("Handmade", "norm of each sample", "begin_norm_axis=-1", "begin_norm_axis=1", ("norm-axes",), (NORM,)),
    CodeFault(
        "Handmade", "gelu for its estimate", "y * ops.sigmoid(y * 1.702)", "ops.gelu(y)", ("activation-differs",)
    ),
    CodeFault(
        "Handmade", "no gain", "self.norm(y, self.gain", "self.norm(y, ops.ones_like(self.gain)", ("slices-scaled*",)
    ),
    CodeFault("Convolved", "the kernel the other way round", "self.kernel[:, i]", "self.kernel[:, 3 - i]"),
    CodeFault(
        "Convolved",
        "padding behind",
        "[ops.zeros((y.shape[0], 3, 8), y.dtype), y]",
        "[y, ops.zeros((y.shape[0], 3, 8), y.dtype)]",
        ("displaced", "parts-reordered"),
    ),
    CodeFault(
        "Convolved", "no silu", "ops.silu(made)", "made", ("activation-missing", "activation-differs", "gate-differs")
    ),
    CodeFault(
        "Convolved",
        "gate on the wrong branch",
        "ops.silu(made) * ops.sigmoid(self.gate(x))",
        "ops.sigmoid(made) * ops.silu(self.gate(x))",
        ("gate-differs", "halves-swapped"),
    ),
    CodeFault(
        "Buckets",
        "the other direction",
        "4 * (apart > 0)",
        "4 * (apart < 0)",
        ("transposed",),
        also=("bias = self.bias(places)", "places = "),
    ),
    CodeFault(
        "Buckets",
        "largest distance",
        "math.log(16 / 2)",
        "math.log(128 / 2)",
        also=("bias = self.bias(places)", "places = "),
    ),
    CodeFault(
        "Buckets", "biases transposed", ".transpose(2, 0, 1)\n        scores", ".transpose(2, 1, 0)\n        scores"
    ),
    CodeFault(
        "Buckets",
        "scaled where it is not",
        "ops.matmul(q, k.swapaxes(-1, -2)) + bias",
        "ops.matmul(q, k.swapaxes(-1, -2)) / math.sqrt(8) + bias",
        ("attention-scale", "term-scaled"),
    ),
    CodeFault("Codes", "the farthest", "ops.argmin(apart, axis", "ops.argmax(apart, dim"),
    CodeFault(
        "Codes",
        "by the product",
        "apart = ops.square(y.expand_dims(-2) - self.codes).sum(-1)",
        "apart = -ops.matmul(y, self.codes.T)",
        also=("index = ",),
    ),
    CodeFault(
        "Codes",
        "no length of the codes",
        "apart = ops.square(y.expand_dims(-2) - self.codes).sum(-1)",
        "apart = ops.amax(ops.abs(y.expand_dims(-2) - self.codes), -1)",
        also=("index = ",),
    ),
    CodeFault("Codes", "no rest", "chosen + y * 0.1", "chosen", ("residual-missing", "term-*")),
    CodeFault(
        "Shifted",
        "the other direction",
        "(before, behind, y[:, :, 8:])",
        "(ops.concat((y[:, 1:, :4], nothing), axis=1), ops.concat((nothing, y[:, :-1, 4:8]), axis=1), y[:, :, 8:])",
    ),
    CodeFault(
        "Shifted",
        "turned round at the ends",
        "ops.concat((nothing, y[:, :-1, :4]), axis=1)",
        "ops.concat((y[:, -1:, :4], y[:, :-1, :4]), axis=1)",
        also=("y = ops.concat((before",),
    ),
    CodeFault(
        "Shifted",
        "mean for largest",
        "ops.amax(y.reshape(y.shape[0], -1, 2, 16), 2)",
        "y.reshape(y.shape[0], -1, 2, 16).mean(2)",
        ("reduction-differs",),
    ),
    CodeFault(
        "Shifted",
        "largest of both halves",
        "y.reshape(y.shape[0], -1, 2, 16), 2)",
        "y.reshape(y.shape[0], 2, -1, 16), 1)",
        ("reduction-differs",),
    ),
    CodeFault(
        "Crossed",
        "mask the wrong way round",
        "(1 - attention_mask.astype(x.dtype)) * -1e9",
        "attention_mask.astype(x.dtype) * -1e9",
        ("attention-mask",),
        ("scores = scores + hidden",),
    ),
    CodeFault(
        "Crossed",
        "no mask",
        "scores = scores + hidden.reshape(b, 1, 1, t)",
        "scores = scores + 0.0",
        ("attention-mask",),
        ("y = ops.matmul(ops.softmax(scores",),
    ),
    CodeFault(
        "Crossed",
        "values first",
        "kv[..., :16], kv[..., 16:]",
        "kv[..., 16:], kv[..., :16]",
        ("halves-swapped",),
        ("k = k.reshape", "v = v.reshape"),
    ),
    CodeFault(
        "Crossed",
        "heads are not turned back",
        "y.transpose(0, 2, 1, 3).reshape(b, 3, 16)",
        "y.reshape(b, 3, 16)",
        ("reordered", "reshaped", "transposed"),
    ),
)
