"""Outliers: a few huge values beside many small ones. A limit by the largest value hides what happens to the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._nets import MINDSPORE, dtype_of, mlp, one_batch
from ._situation import ALIGNED, REFUSED, WRONG, Recipe, twins

SHAPE = (4, 6, 8)


def table(place: Any, height: float) -> np.ndarray:
    """Ones [4, 6, 8] but for a place."""
    made = np.ones(SHAPE, np.float32)
    made[place] = height
    return made


def times(x: Any, f: Any, factors: np.ndarray) -> Any:
    """`x` times an array, in its own dtype."""
    return x * f.cast(f.const(factors.astype(np.float32)), dtype_of(x))


CHANNEL, SAMPLE, TOKEN, SPIKE = (..., 0), (1,), (slice(None), 0), (1, 2, 3)


def with_outlier(place: Any, height: float, fault: float = 0.0, at: Any = (..., 3)) -> Any:
    """The output with a huge (or tiny) place, and a fault at another, which may be all that is not huge."""
    heights = table(place, height)
    wrong = heights * np.where((table(at, 2.0) > 1) & (heights == 1), np.float32(1 + fault), np.float32(1))
    return lambda net, x, f: times(mlp(net, x, f), f, wrong)


def outlier_twins(name: str, place: Any, height: float, fault: float, at: Any = (..., 3)) -> list[Any]:
    """A huge place and a fault elsewhere."""
    title = f"{name} x {height:g}, {fault:.1%} elsewhere"
    return twins(title, with_outlier(place, height), with_outlier(place, height, fault, at))


def tiny_channel(height: float, fault: float) -> list[Any]:
    """A channel that is tiny, and wrong itself."""
    return twins(
        f"tiny channel x {height:g}, {fault:.0%} off",
        with_outlier(CHANNEL, height),
        with_outlier(CHANNEL, height * (1 + fault)),
    )


def massive(height: float, fault: float = 0.0) -> Any:
    """A hidden channel is huge; the last layer returns it with the hidden ones, of which one may be wrong."""
    scale = np.ones(16, np.float32)
    scale[2] = height
    wrong = scale.copy()
    wrong[5] += fault

    def code(net: Any, x: Any, f: Any) -> Any:
        h = f.relu(net.a(x))
        return net.b(net.n(h)), times(h, f, wrong)

    return code


def into_norm(height: float, factor: float = 1.0) -> Any:
    """A huge channel goes into the norm: all others become small, and have its rounding."""

    def code(net: Any, x: Any, f: Any) -> Any:
        scale = np.ones(16, np.float32)
        scale[2] = height
        wrong = scale.copy()
        wrong[5] *= factor
        return net.b(f.relu(net.n(times(net.a(x), f, wrong))))

    return code


def cancelled(height: float, factor: float = 1.0) -> Any:
    """A huge channel goes through the last layer and is taken away again: what remains has its rounding."""
    scale = np.ones(16, np.float32)
    scale[2] = height
    only = np.zeros(16, np.float32)
    only[2] = height

    def code(net: Any, x: Any, f: Any) -> Any:
        h = f.relu(net.n(net.a(x)))
        return net.b(times(h, f, scale)) - net.b(times(h, f, only)) * 1.0 + net.b(h) * (factor - 1.0)

    return code


def offset(height: float, size: float, factor: float = 1.0) -> Any:
    """Small numbers around a large one."""
    return lambda net, x, f: mlp(net, x, f) * (size * factor) + height


def centred(height: float, factor: float = 1.0) -> Any:
    """A large offset that is taken away with the mean."""

    def code(net: Any, x: Any, f: Any) -> Any:
        y = mlp(net, x, f) * factor + height
        return y - f.mean(y, -1, True)

    return code


def huge_input(height: float) -> Any:
    """Inputs of which one channel is huge."""
    return lambda: {"x": one_batch()["x"] * table(CHANNEL, height)}


def wide_range(factor: float = 1.0) -> Any:
    """Outputs of ten orders of magnitude, side by side."""
    scale = (10.0 ** np.arange(-6, 2)).astype(np.float32)
    wrong = scale.copy()
    wrong[1] *= factor
    return lambda net, x, f: times(mlp(net, x, f), f, wrong)


def two_outputs(factor: float = 1.0) -> Any:
    """A huge output beside a small one, which is wrong."""
    return lambda net, x, f: {"huge": mlp(net, x, f) * 1e6, "small": mlp(net, x, f) * factor}


ALL = (...,)
F16 = Recipe(port=MINDSPORE, dtypes=("float16", "float16"))
SITUATIONS = [
    *outlier_twins("channel", CHANNEL, 1e3, 1e-3),
    *outlier_twins("channel", CHANNEL, 1e4, 1e-2),
    *outlier_twins("channel", CHANNEL, 1e5, 1e-2),
    *outlier_twins("channel", CHANNEL, 1e6, 1e-3),
    *outlier_twins("channel", CHANNEL, 1e7, 5e-2),
    *outlier_twins("channel, all others wrong", CHANNEL, 1e5, 1e-3, ALL),
    *outlier_twins("sample", SAMPLE, 1e4, 1e-2, (0,)),
    *outlier_twins("sample", SAMPLE, 1e6, 1e-3, (2,)),
    *outlier_twins("first token", TOKEN, 1e5, 1e-2, (slice(None), 4)),
    *outlier_twins("single spike", SPIKE, 1e6, 1e-2),
    *outlier_twins("single spike, all others wrong", SPIKE, 1e7, 5e-3, ALL),
    *tiny_channel(1e-4, 0.05),
    *tiny_channel(1e-6, 0.05),
    *twins("hidden channel x 1e3, 0.1 % elsewhere", massive(1e3), massive(1e3, 1e-3)),
    *twins("hidden channel x 1e4, 1 % elsewhere", massive(1e4), massive(1e4, 1e-2)),
    *twins("huge channel into a norm", into_norm(300.0), into_norm(300.0, 1.05)),
    *twins("huge channel cancelled", cancelled(1e4), cancelled(1e4, 1.05)),
    *twins("offset 1000 of 0.1, 10 % off", offset(1e3, 0.1), offset(1e3, 0.1, 1.1)),
    # By 4 units in the last place of the offset, which limits allow: that so little can be told must be said.
    *twins("offset 1000 of 0.01, 10 % off", offset(1e3, 0.01), offset(1e3, 0.01, 1.1),
           expected=(WRONG, REFUSED, ALIGNED), caveat=("only|weak|little|less than|up to",)),
    *twins("offset 1e4 taken away, 5 % off", centred(1e4), centred(1e4, 1.05)),
    *twins("huge channel in the input", mlp, lambda net, x, f: mlp(net, x, f) * 1.001, inputs=huge_input(1e5)),
    *twins("ten orders of magnitude, 1 % off", wide_range(), wide_range(1.01)),
    *twins("a huge output beside a small one", two_outputs(), two_outputs(1.001)),
    *twins("float16 channel x 1e3, 5 % elsewhere", with_outlier(CHANNEL, 1e3), with_outlier(CHANNEL, 1e3, 0.05), F16),
]  # fmt: skip
