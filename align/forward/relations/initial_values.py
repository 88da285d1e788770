"""Whether a parameter looks as it was drawn when its layer was made, rather than loaded.

The distributions are those that torch and MindSpore start layers with. A trained weight that has one of them to
the percent, and is unlike what it should hold, was most likely never filled.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from align.core.dtypes import Array

FEWEST = 64
SURE = 4.0  # standard deviations of the estimate
NORMAL_KURTOSIS, UNIFORM_KURTOSIS, CLOSE_KURTOSIS = 3.0, 1.8, 0.3
CUT_NORMAL = 0.8796  # standard deviation of a normal distribution cut at two


def initial_distribution(values: Array) -> str:
    """Name of the distribution that the values seem drawn from, with its width; "" if none is known or they are few."""
    if values.size < FEWEST:
        return ""
    flat = values.reshape(-1).astype(np.float64)
    spread, middle = float(flat.std()), float(flat.mean())
    if spread == 0.0 or abs(middle) * sqrt(flat.size) > SURE * spread:
        return ""
    kurtosis = float(np.mean(((flat - middle) / spread) ** 4))
    allowed = CLOSE_KURTOSIS + SURE * sqrt(24.0 / flat.size)
    names = []
    if abs(kurtosis - UNIFORM_KURTOSIS) < allowed:
        names += [name for name, bound in _bounds(values.shape).items() if _is_uniform(flat, bound)]
    if kurtosis > UNIFORM_KURTOSIS + CLOSE_KURTOSIS and kurtosis < NORMAL_KURTOSIS + allowed:
        names += [name for name, width in _widths(values.shape).items() if _close(spread, width, flat.size)]
    return " or ".join(names)


def _is_uniform(values: Array, bound: float) -> bool:
    largest = float(np.abs(values).max())
    return bound * (1.0 - 20.0 / values.size) < largest <= bound * (1.0 + 1e-6)


def _close(spread: float, width: float, count: int) -> bool:
    return abs(spread / width - 1.0) < SURE / sqrt(2.0 * count)


def _bounds(shape: tuple[int, ...]) -> dict[str, float]:
    inside, outside = _fans(shape)
    return {
        "uniform 1/sqrt(fan_in)": 1.0 / sqrt(inside),
        "uniform sqrt(6/fan_in)": sqrt(6.0 / inside),
        "uniform sqrt(6/(fan_in+fan_out))": sqrt(6.0 / (inside + outside)),
    }


def _widths(shape: tuple[int, ...]) -> dict[str, float]:
    inside, outside = _fans(shape)
    return {
        "normal 0.01": 0.01,
        "normal 0.02": 0.02,
        "truncated normal 0.02": 0.02 * CUT_NORMAL,
        "normal 1": 1.0,
        "normal sqrt(1/fan_in)": sqrt(1.0 / inside),
        "normal sqrt(2/fan_in)": sqrt(2.0 / inside),
        "normal sqrt(2/fan_out)": sqrt(2.0 / outside),
        "normal sqrt(2/(fan_in+fan_out))": sqrt(2.0 / (inside + outside)),
    }


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Inputs and outputs of one unit, of a weight whose outputs come first."""
    window = prod(shape[2:])
    return (prod(shape[1:]) or 1) if len(shape) > 1 else shape[0], shape[0] * window
