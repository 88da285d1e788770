"""Operators by what they do, whatever a framework calls them: `torch.true_divide`, MindSpore's `Divs` and `RealDiv`."""

from __future__ import annotations

from functools import cache

# Plain names of what frameworks call otherwise; what is not here has its own name in small letters.
SAME: dict[str, tuple[str, ...]] = {
    "log": ("log2", "log10", "xlogy", "logext"),
    "log1p": (),
    "logit": (),
    "sqrt": ("sqrt_",),
    "rsqrt": (),
    "reciprocal": ("inv", "reciprocalext"),
    "div": (
        "true_divide", "truediv", "rtruediv", "itruediv", "divide", "divs", "realdiv", "rdiv", "div_", "divmod",
        "divnonan", "idiv",
    ),
    "pow": ("rpow", "ipow", "powtensorscalar", "powscalartensor", "float_power", "pow_", "powext"),
    "norm": ("vector_norm", "linalg_norm", "linalgvectornorm", "lpnormv2", "lpnorm", "normalize", "cosine_similarity",
             "cdist", "pairwise_distance", "dist"),
    "exp": ("exp2", "expm1", "expext", "exp_"),
    "softmax": ("softmaxext",),
    "log_softmax": ("logsoftmax", "logsoftmaxext"),
    "attention": ("scaled_dot_product_attention", "flashattentionscore"),
    "std": ("var", "std_mean", "var_mean", "stdext", "varext", "reducestd"),
    "mul": ("rmul", "imul", "muls", "multiply", "mul_"),
    "sub": ("rsub", "isub", "subs", "subext", "subscalar", "subtract", "sub_"),
    "add": ("radd", "iadd", "adds", "addext", "addscalar", "add_", "addn"),
    "asin": ("acos", "arcsin", "arccos", "acosext", "asinext"),
    "mean": ("reducemean", "meanext", "nanmean"),
    "sum": ("reducesum", "sumext"),
    "cross_entropy": ("nll_loss", "crossentropyloss", "nllloss"),
    "mask": ("masked_fill", "maskedfill", "masked_fill_", "masked_fill__", "where", "select", "full", "full_like",
             "triu", "tril", "fill_", "fillscalar", "fillv2", "scatter", "index_fill", "clamp", "masked_scatter",
             "maskedfillscalar", "triuext", "trilext", "setitem"),
    "sinh": ("cosh",),
    "binary_cross_entropy": ("bceloss", "binarycrossentropy"),
}  # fmt: skip
VIEWS = frozenset(
    ("reshape", "view", "flatten", "transpose", "permute", "unsqueeze", "squeeze", "t", "contiguous", "swapaxes",
     "expanddims", "reshapeview", "transposeview", "clone", "identity", "transposeext", "movedim", "view_as")
)  # fmt: skip
ADDING = frozenset(
    ("add", "sub", "sum", "mean", "cat", "concat", "concatenate", "stack", "split", "chunk", "unbind", "getitem",
     "expand", "broadcastto", "expandas", "neg", "tile", "repeat")
)  # fmt: skip
RISKY = frozenset(
    ("log", "sqrt", "rsqrt", "reciprocal", "div", "pow", "norm", "exp", "softmax", "log_softmax", "std", "asin",
     "log1p", "attention", "logit", "binary_cross_entropy")
)  # fmt: skip
_PLAIN = {other: name for name, others in SAME.items() for other in others}


@cache
def plain_name(name: str) -> str:
    """What an operator or a class of layers does.

    >>> plain_name("RealDiv"), plain_name("true_divide"), plain_name("Conv2d")
    ('div', 'div', 'conv2d')
    """
    small = name.lower().strip("_")
    return _PLAIN.get(small, small)
