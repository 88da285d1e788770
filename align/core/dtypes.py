"""One vocabulary for element types, whatever a framework calls them.

The canonical name is NumPy's (`float32`), with bfloat16 and the float8 kinds of `ml_dtypes`; comparing
`Float32` with `torch.float32` as strings is how other tools turn every row into an error. At the end stands in which
formats a chip computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

Array = np.ndarray[Any, np.dtype[Any]]

_EXTENDED: dict[str, npt.DTypeLike] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}

INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
FLOATS = frozenset({"float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"})

# Machine epsilon: distance from 1 to the next larger number (IEEE 754; bfloat16 has 8 bits of significand).
EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}


@cache  # asked several times for each tensor
def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy dtype (little-endian) of a canonical name; raises TypeError for an unknown one."""
    return np.dtype(_EXTENDED.get(name, name)).newbyteorder("<") if name not in _EXTENDED else np.dtype(_EXTENDED[name])


def dtype_name(dtype: npt.DTypeLike) -> str:
    """Return the canonical name of a NumPy dtype."""
    return _name(np.dtype(dtype))


@cache  # NumPy puts it together anew each time
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name


def in_numpy(name: str) -> bool:
    """Tell whether NumPy has a dtype of this name itself, and not from `ml_dtypes`: what an `.npz` file can hold."""
    return name not in _EXTENDED


def is_float(name: str) -> bool:
    """Tell whether values of this dtype are rounded, so that a tolerance makes sense."""
    return name in FLOATS


def rounded_as(name: str) -> str:
    """Floating dtype whose rounding the values of a dtype carry (float32 for complex64); "" for exact ones."""
    return name if name in FLOATS else {"complex64": "float32", "complex128": "float64"}.get(name, "")


def is_numeric(name: str) -> bool:
    """Tell whether this is the canonical name of a dtype that tensors have: a number or a bool."""
    return name in FLOATS | INTEGERS | {"bool", "complex64", "complex128"}


def is_complex(name: str) -> bool:
    """Tell whether the dtype is complex64 or complex128."""
    return name.startswith("complex")


Format = Literal["float16", "HF32", "TF32", "float32"]

LARGEST_FLOAT16: Final = 65504.0  # format: (2 - 2^-10) * 2^15


@dataclass(frozen=True, slots=True)
class OperatorRounding:
    """How one operator computes: its inputs are rounded to a format, sums are taken in float32, the result is rounded.

    `entry` is the id of the rule that says so.
    """

    entry: str
    computes: Format
    result: Format


@dataclass(frozen=True, slots=True)
class Emulation:
    """Roundings by the names of operators as the framework that runs them calls them.

    On a chip that `saturates`, what is beyond float16 becomes its largest number and NaN becomes 0; on others IEEE 754
    holds. Those `reordered` add in another order.
    """

    operators: Mapping[str, OperatorRounding]
    saturates: bool = False
    reordered: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GradientsMet:
    """Gradients inside of one module that one operator is given or makes and that the chip would hold in float16.

    `exponents` counts those other than zero by the exponent of their largest power of two; `largest` is a magnitude.
    """

    module: str
    operator: str
    entry: str
    largest: float
    exponents: Mapping[int, int]


NOT_EMULATED: Final = ""
"""The entry of an operator that may hold what a chip computes otherwise, but cannot be looked into."""


@dataclass(frozen=True, slots=True)
class EmulatedCalls:
    """The calls of one operator inside of one module that were computed as the chip does.

    Where the `entry` is NOT_EMULATED they were not: what such an operator does inside is not seen. `largest` is the
    largest magnitude of what the operator was given or made, `overflowed` the number of elements that were finite and
    beyond float16.
    """

    module: str
    operator: str
    entry: str
    calls: int
    largest: float
    overflowed: int
