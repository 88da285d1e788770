"""Precision: low precision on one side or both, where a loose limit hides a fault, and a tight one alarms."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ._nets import MINDSPORE, TORCH, dtype_of, mlp, one_batch, reference
from ._situation import Recipe, clean, faulty, twins

BF16 = Recipe(port=TORCH, dtypes=("bfloat16", "bfloat16"))
ONE_LAYER = partial(Recipe, lambda f: {"a": f.dense(8, 16)})
F16 = Recipe(dtypes=("float16", "float16"))
F16_PORT = Recipe(dtypes=("float32", "float16"))
BF16_PORT = Recipe(port=TORCH, dtypes=("float32", "bfloat16"))
BF16_ORIGINAL = Recipe(dtypes=("bfloat16", "float32"), weights="bfloat16")
F64 = Recipe(port=TORCH, dtypes=("float64", "float64"))
F64_ORIGINAL = Recipe(port=TORCH, dtypes=("float64", "float32"))


def scaled(factor: float) -> Any:
    """The activation times a factor."""
    return lambda net, x, f: net.b(f.relu(net.n(net.a(x))) * factor)


def gelu(net: Any, x: Any, f: Any) -> Any:
    """The exact GELU."""
    return net.b(f.gelu(net.n(net.a(x))))


def quick_gelu(net: Any, x: Any, f: Any) -> Any:
    """GELU by a sigmoid: off by up to 0.02."""
    h = net.n(net.a(x))
    return net.b(h * f.sigmoid(h * 1.702))


def tanh_gelu(net: Any, x: Any, f: Any) -> Any:
    """GELU by tanh: off by up to 0.0005."""
    h = net.n(net.a(x))
    return net.b(h * 0.5 * (f.tanh((h + h * h * h * 0.044715) * 0.7978845608) + 1.0))


def weak_bias(net: Any, x: Any, f: Any) -> Any:
    """The last bias counts 0.9 of itself."""
    return net.b(f.relu(net.n(net.a(x)))) - net.b.bias * 0.1


def by_hand(net: Any, x: Any, f: Any) -> Any:
    """The last layer in other operations: the products are summed by an own kernel."""
    h = f.relu(net.n(net.a(x)))
    return f.matmul(h, f.swap(net.b.weight, 0, 1)) + net.b.bias


def lifted(code: Any) -> Any:
    """What half layers made, given as float32."""
    return lambda net, x, f: f.cast(code(net, x, f), "float32")


def autocast(net: Any, x: Any, f: Any) -> Any:
    """All in bfloat16 by autocast, given as float32."""
    import torch

    with torch.autocast("cpu", dtype=torch.bfloat16):
        return mlp(net, x, f).float()


def softmax_up(factor: float = 1.0) -> Any:
    """Softmax in float32 amid half layers."""

    def code(net: Any, x: Any, f: Any) -> Any:
        h = net.n(net.a(x))
        return net.b(f.cast(f.softmax(f.cast(h, "float32") * (3 * factor)), dtype_of(h)))

    return code


def early_half(factor: float, back: str = "float32") -> Any:
    """The first layer computes in float16, and what follows in float32."""

    def code(net: Any, x: Any, f: Any) -> Any:
        first = f.matmul(f.cast(x, "float16"), f.cast(f.swap(net.a.weight, 0, 1), "float16"))
        h = f.cast(first + f.cast(net.a.bias, "float16"), back)
        return net.b(f.relu(net.n(h)) * factor)

    return code


def half_cells(factor: float, *names: str) -> Any:
    """A port some of whose cells compute in float16; what they return is cast back by the code."""

    def code(net: Any, x: Any, f: Any) -> Any:
        h = f.cast(net.n(net.a(x)), "float32")
        return f.cast(net.b(f.relu(h) * factor), "float32")

    def build() -> Any:
        import mindspore

        port = reference(MINDSPORE, code)()
        for name in names:
            getattr(port, name).to_float(mindspore.float16)
        return port

    return build


def half_front(factor: float, behind: float = 1.0) -> Any:
    """The first layer computes in the dtype of its weights, all others in float32."""

    def code(net: Any, x: Any, f: Any) -> Any:
        h = f.cast(net.a(f.cast(x, dtype_of(net.a.weight))), "float32")
        return net.b(f.relu(net.n(h)) * factor) * behind

    def build() -> Any:
        import torch

        port = reference(TORCH, code)()
        port.a.to(torch.bfloat16)
        return port

    return build


def half_inside(net: Any, x: Any, f: Any) -> Any:
    """One activation goes through float16 and back."""
    return net.b(f.cast(f.cast(f.relu(net.n(net.a(x))), "float16"), "float32"))


def table_of(make: Any) -> Any:
    """Inputs turned by a float32 table of sines and cosines that `make` gives, as arrays [1000, 4]."""

    def code(net: Any, x: Any, f: Any) -> Any:
        cos, sin = make()
        one, two = x[..., :4], x[..., 4:]
        c, s = f.cast(f.const(cos), dtype_of(x)), f.cast(f.const(sin), dtype_of(x))
        return mlp(net, f.cat([one * c - two * s, two * c + one * s]), f)

    return code


def angles(base: float = 10000.0, first: int = 0) -> np.ndarray:
    """Angles [1000, 4] of up to 1000, computed in float32 throughout."""
    powers = np.float32(base) ** (np.arange(4, dtype=np.float32) / np.float32(4))
    return np.outer(np.arange(first, first + 1000, dtype=np.float32), np.float32(1) / powers).astype(np.float32)


def torch_table() -> Any:
    """Sines and cosines by PyTorch."""
    import torch

    turned = torch.from_numpy(angles())
    return turned.cos().numpy(), turned.sin().numpy()


def numpy_table(base: float = 10000.0, first: int = 0) -> Any:
    """The same by NumPy: other last bits."""
    return np.cos(angles(base, first)), np.sin(angles(base, first))


def nudged_table(units: int) -> Any:
    """The same with each entry up to so many units in the last place off."""
    generator = np.random.default_rng(5)
    return tuple(
        one + (np.spacing(one) * generator.integers(-units, units + 1, one.shape)).astype(np.float32)
        for one in torch_table()
    )


def exact_table() -> Any:
    """By float64 throughout: what float32 angles of up to 1000 are off by shows, 5e-6 at most."""
    turned = np.outer(np.arange(1000), 10000.0 ** (-np.arange(4) / 4))
    return np.cos(turned).astype(np.float32), np.sin(turned).astype(np.float32)


def long_batch() -> dict[str, np.ndarray]:
    """One sample of 1000 positions."""
    return one_batch(1, 1000, 8)


def overflowing(square: Any) -> Any:
    """Large activations that are squared, then made small again; in float16 the squares are Inf from 256 on."""
    return lambda net, x, f: square(net.a(x) * 400, f)


def squares(h: Any, f: Any) -> Any:
    """The squares themselves."""
    return h * h + f.abs(h)


def wide_squares(h: Any, f: Any) -> Any:
    """They are made in float32, and cut at what float16 holds."""
    wide = f.cast(h, "float32")
    return f.cast((wide * wide + f.abs(wide)).clip(0.0, 60000.0), "float16")


SITUATIONS = [
    *twins("bf16 both, activation x 1.1", mlp, scaled(1.1), BF16, rewritten=by_hand),
    *twins("bf16 both, activation x 1.03", mlp, scaled(1.03), BF16),
    *twins("bf16 both, quick GELU", gelu, quick_gelu, BF16),
    *twins("bf16 both, bias x 0.9", mlp, weak_bias, BF16),
    *twins("f16 both, activation x 1.014", mlp, scaled(1.014), F16, rewritten=by_hand),
    *twins("f16 both, quick GELU", gelu, quick_gelu, F16),
    *twins("f16 both, bias x 0.9", mlp, weak_bias, F16),
    *twins("f16 port of f32, x 1.014", mlp, scaled(1.014), F16_PORT),
    *twins("f16 port of f32, quick GELU", gelu, quick_gelu, F16_PORT),
    *twins("bf16 port of f32, x 1.1", mlp, scaled(1.1), BF16_PORT),
    *twins("f32 port of bf16, x 1.1", mlp, scaled(1.1), BF16_ORIGINAL),
    *twins("f32 port of bf16, quick GELU", gelu, quick_gelu, BF16_ORIGINAL),
    *twins("f32, tanh GELU", gelu, tanh_gelu),
    *twins("f64 both, x 1.0000001", mlp, scaled(1 + 1e-7), F64, rewritten=by_hand),
    *twins("f32 port of f64, x 1.0001", mlp, scaled(1 + 1e-4), F64_ORIGINAL),
    *twins("f16 both, logits lifted", lifted(mlp), lifted(scaled(1.02)), F16, rewritten=lifted(by_hand)),
    *twins("bf16 both, logits lifted", lifted(mlp), lifted(scaled(1.1)), BF16, rewritten=lifted(by_hand)),
    *twins("f32 port of bf16, logits lifted", lifted(mlp), lifted(scaled(1.1)), BF16_ORIGINAL),
    *twins("f16 port of f32, logits lifted", lifted(mlp), lifted(scaled(1.02)), F16_PORT),
    *twins("f16 both, softmax in f32", softmax_up(), softmax_up(1.05), F16),
    *twins("bf16 both, softmax in f32", softmax_up(), softmax_up(1.2), BF16),
    clean("autocast reference", reference(TORCH, autocast), reference(MINDSPORE)),
    faulty("autocast reference", reference(TORCH, autocast), reference(MINDSPORE, scaled(1.1))),
    clean("first cells in f16", reference(TORCH), half_cells(1.0, "a", "n")),
    faulty("first cells in f16", reference(TORCH), half_cells(1.012, "a", "n")),
    clean("all cells in f16", reference(TORCH), half_cells(1.0, "a", "n", "b")),
    faulty("all cells in f16", reference(TORCH), half_cells(1.014, "a", "n", "b")),
    clean("first layer in bf16", reference(TORCH), half_front(1.0)),
    faulty("first layer in bf16", reference(TORCH), half_front(1.001)),
    clean("first layer in bf16 on both", half_front(1.0), half_front(1.0)),
    faulty("first layer in bf16 on both", half_front(1.0), half_front(1.0, behind=1.001)),
    faulty("first layer in f16 by its code", reference(TORCH), reference(MINDSPORE, early_half(1.0))),
    faulty("through f16 and back", reference(TORCH), reference(MINDSPORE, half_inside)),
    *twins(
        "table of f32, angles to 1000",
        table_of(torch_table),
        table_of(lambda: numpy_table(base=10010.0)),
        rewritten=table_of(numpy_table),
        inputs=long_batch,
    ),
    *twins(
        "table off by 4 units",
        table_of(torch_table),
        table_of(lambda: numpy_table(first=1)),
        rewritten=table_of(lambda: nudged_table(4)),
        inputs=long_batch,
    ),
    clean(
        "table of f64 in the port",
        reference(TORCH, table_of(torch_table)),
        reference(MINDSPORE, table_of(exact_table)),
        inputs=long_batch,
    ),
    *twins("f16 overflow on both", overflowing(squares), overflowing(wide_squares), ONE_LAYER(dtypes=F16.dtypes)),
    faulty("f16 port overflows", *ONE_LAYER(dtypes=F16_PORT.dtypes).both(overflowing(squares))),
]
