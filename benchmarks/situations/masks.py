"""Masks: values that stand for "not there" in the outputs, rows that see nothing, and inputs that hide a mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._nets import MINDSPORE, TORCH, dtype_of, mlp, numbers, one_batch, reference
from ._situation import ALIGNED, PORT, REFUSED, WRONG, Recipe, clean, faulty, twins

MASKED = Recipe(masked=True)
FIRST = np.arange(6)[:, None] == 0  # the first place of [4, 6, 8]
SECOND = np.arange(6)[:, None] == 1
DIAGONAL = np.arange(6)[:, None] >= np.arange(6)[None, :]
NOTHING = float("-inf")
LOWEST = float(np.finfo(np.float32).min)


def put(x: Any, f: Any, where: np.ndarray, value: float) -> Any:
    """`x` with a value at some places."""
    shape = tuple(x.shape)
    return x.masked_fill(f.const(np.ascontiguousarray(np.broadcast_to(where, shape))), value)


def channel_times(x: Any, f: Any, channel: int, factor: float) -> Any:
    """`x` with its last axis scaled at one place."""
    scale = np.ones(x.shape[-1], np.float32)
    scale[channel] = factor
    return x * f.cast(f.const(scale), dtype_of(x))


def marked(value: float, where: np.ndarray = FIRST, factor: float = 1.0) -> Any:
    """The output with a value at masked places; one channel of the rest is scaled."""

    def code(net: Any, x: Any, f: Any) -> Any:
        y = mlp(net, x, f)
        return put(y if factor == 1.0 else channel_times(y, f, 3, factor), f, where, value)

    return code


def lowest_of_dtype(factor: float = 1.0) -> Any:
    """The lowest number of the dtype that is there, as most transformers write it."""

    def code(net: Any, x: Any, f: Any) -> Any:
        if f is TORCH:
            import torch

            return marked(torch.finfo(x.dtype).min, FIRST, factor)(net, x, f)
        return marked(float(np.finfo(dtype_of(x)).min), FIRST, factor)(net, x, f)

    return code


def shifted(value: float) -> Any:
    """All that is not masked is off by a half."""
    return lambda net, x, f: put(mlp(net, x, f) + 0.5, f, FIRST, value)


def attention_layers(f: Any) -> dict[str, Any]:
    """Queries, keys, values and the way back, 8 wide."""
    return {name: f.dense(8, 8) for name in "qkvo"}


ATTENTION = Recipe(attention_layers, masked=True)
ATTENTION_TWICE = Recipe(attention_layers, port=TORCH, masked=True)
CAUSAL = Recipe(attention_layers)
CAUSAL_F16 = Recipe(attention_layers, dtypes=("float16", "float16"))


def attended(net: Any, x: Any, f: Any, change: Any) -> Any:
    """One head; `change` masks the scores [batch, 6, 6]."""
    scores = f.matmul(net.q(x), f.swap(net.k(x), -1, -2)) * 0.35355338
    return net.o(f.matmul(f.softmax(change(scores)), net.v(x)))


def causal(value: float, diagonal: np.ndarray = DIAGONAL) -> Any:
    """Later places are masked by a value."""
    return lambda net, x, f: attended(net, x, f, lambda scores: put(scores, f, ~diagonal, value))


def unmasked(net: Any, x: Any, f: Any, mask: Any = None) -> Any:
    """All places see all."""
    return attended(net, x, f, lambda scores: scores)


def by_mask(value: float, added: bool = False, flipped: bool = False) -> Any:
    """Attention over the places where the mask is 1."""

    def code(net: Any, x: Any, f: Any, mask: Any) -> Any:
        hidden = f.unsqueeze((mask == (1 if flipped else 0)), 1)

        def change(scores: Any) -> Any:
            if added:
                return scores + (f.cast(hidden, dtype_of(scores)) * 0.0).masked_fill(hidden, value)
            return scores.masked_fill(hidden, value)

        return attended(net, x, f, change)

    return code


def pooled(by: bool = True) -> Any:
    """Mean over the places, by the mask or over all."""

    def code(net: Any, x: Any, f: Any, mask: Any) -> Any:
        y = mlp(net, x, f)
        if not by:
            return f.mean(y, 1)
        weight = f.unsqueeze(f.cast(mask, dtype_of(y)), -1)
        return (y * weight).sum(1) / weight.sum(1)

    return code


def times_mask(net: Any, x: Any, f: Any, mask: Any) -> Any:
    """The same attention; places that are not there return 0."""
    return by_mask(-1e9)(net, x, f, mask) * f.unsqueeze(f.cast(mask, dtype_of(x)), -1)


def other_padding(net: Any, x: Any, f: Any, mask: Any) -> Any:
    """Places that are not there see nobody but themselves: another way to handle rows that nobody reads."""
    hidden = f.unsqueeze(mask == 0, 1)
    alone = f.const(np.eye(6, dtype=bool)[None])
    rows = f.unsqueeze(mask == 0, 2)
    barred = (hidden & ~rows) | (rows & ~alone) if f is TORCH else _barred(hidden, rows, alone)
    return attended(net, x, f, lambda scores: scores.masked_fill(barred, -1e9))


def _barred(hidden: Any, rows: Any, alone: Any) -> Any:
    from mindspore import ops

    left = ops.logical_and(hidden, ops.logical_not(rows))
    return ops.logical_or(left, ops.logical_and(rows, ops.logical_not(alone)))


def with_mask(*short: int, first: int = 0) -> Any:
    """Four samples of six places; of the first ones so many are left, behind `first` that are not there."""

    def inputs() -> dict[str, np.ndarray]:
        mask = np.ones((4, 6), np.int64)
        for sample, length in enumerate(short):
            mask[sample, length:] = 0
        mask[0, :first] = 0
        return {"x": numbers(4, 6, 8), "attention_mask": mask}

    return inputs


PADDED, FULL, EMPTY = with_mask(3, 5), with_mask(), with_mask(0, 5)


def sentinel(name: str, value: float, factor: float, recipe: Recipe = PORT) -> list[Any]:
    """A masked place with this value, and a fault elsewhere."""
    title = f"{name}, {abs(factor - 1):.1%} elsewhere"
    return twins(title, marked(value), marked(value, factor=factor), recipe)


def attention_twins(name: str, right: Any, wrong: Any, inputs: Any = PADDED, **more: Any) -> list[Any]:
    """Attention with a mask."""
    return twins(name, right, wrong, ATTENTION, inputs=inputs, **more)


F16 = Recipe(dtypes=("float16", "float16"))
SITUATIONS = [
    *sentinel("-100", -100.0, 1.001),
    *sentinel("-1e4", -1e4, 1.01),
    *sentinel("-1e4", -1e4, 1.001),
    *sentinel("-1e9", -1e9, 1.05),
    *sentinel("-1e9", -1e9, 1.001),
    *sentinel("1e20", 1e20, 1.01),
    *sentinel("lowest float32", LOWEST, 1.01),
    *sentinel("-Inf", NOTHING, 1.001),
    *sentinel("float16, -1e4", -1e4, 1.1, F16),
    *twins("lowest of the dtype", lowest_of_dtype(), lowest_of_dtype(1.01)),
    *twins("-1e9, rest shifted", marked(-1e9), shifted(-1e9)),
    *twins("mask at another place", marked(-1e9), marked(-1e9, SECOND)),
    *twins("mask missing", marked(-1e4), mlp),
    faulty("-1e4 for -1e9", reference(TORCH, marked(-1e9)), reference(MINDSPORE, marked(-1e4))),
    *twins("causal attention", causal(NOTHING), unmasked, CAUSAL, rewritten=causal(-1e9)),
    *twins("causal, off by one", causal(-1e9), causal(-1e9, np.arange(6)[:, None] + 1 >= np.arange(6)), CAUSAL),
    *twins("causal attention in float16", causal(-1e4), unmasked, CAUSAL_F16),
    *attention_twins("mask of attention ignored", by_mask(-1e9), unmasked, rewritten=by_mask(-1e9, added=True)),
    *attention_twins("mask of attention turned round", by_mask(-1e9), by_mask(-1e9, flipped=True)),
    *attention_twins("padding on the left", by_mask(-1e9), unmasked, with_mask(first=3)),
    *attention_twins("a sample without anything", by_mask(-1e9), by_mask(-1.0), EMPTY, rewritten=by_mask(LOWEST)),
    clean("a sample that is NaN on both", ATTENTION_TWICE.original(by_mask(NOTHING)),
          ATTENTION_TWICE.other(by_mask(NOTHING, added=True)), inputs=EMPTY, caveat=("NaN",)),
    faulty("a sample that is NaN on both", ATTENTION_TWICE.original(by_mask(NOTHING)),
           ATTENTION_TWICE.other(by_mask(-1.0)), inputs=EMPTY),
    faulty("a sample that is NaN on one side", ATTENTION.original(by_mask(NOTHING)), ATTENTION.other(by_mask(-1e9)),
           inputs=EMPTY),
    clean("rows of padding differ", ATTENTION.original(by_mask(-1e9)), ATTENTION.other(other_padding), inputs=PADDED,
          expected=(ALIGNED, WRONG), caveat=("padding",), named=("padding",)),
    clean("rows of padding are zero", ATTENTION.original(by_mask(-1e9)), ATTENTION.other(times_mask), inputs=PADDED,
          expected=(ALIGNED, WRONG), caveat=("padding",), named=("padding",)),
    clean("mask of ones", ATTENTION.original(by_mask(-1e9)), ATTENTION.other(by_mask(-1e9)), inputs=FULL),
    faulty("mask of ones hides a fault", ATTENTION.original(by_mask(-1e9)), ATTENTION.other(unmasked), inputs=FULL,
           expected=(ALIGNED, REFUSED), caveat=("attention_mask",)),
    *twins("mean by the mask", pooled(), pooled(by=False), MASKED, inputs=PADDED),
    faulty("mean by a mask of ones", MASKED.original(pooled()), MASKED.other(pooled(by=False)), inputs=FULL,
           expected=(ALIGNED, REFUSED), caveat=("attention_mask",)),
    clean("one place is unmasked", ATTENTION.original(by_mask(-1e9)), ATTENTION.other(by_mask(NOTHING)),
          inputs=with_mask(1, 1, 1, 1)),
    *twins("one input is -1e4", mlp, lambda net, x, f: mlp(net, x * 1.001, f),
           inputs=lambda: {"x": np.where(FIRST, np.float32(-1e4), one_batch()["x"])}),
]  # fmt: skip
