"""What a chip does to numbers, operator by operator, and what was seen of it while a model ran so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Format = Literal["float16", "HF32", "float32"]

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
    holds.
    """

    operators: Mapping[str, OperatorRounding]
    saturates: bool = False


@dataclass(frozen=True, slots=True)
class EmulatedCalls:
    """The calls of one operator inside of one module that were computed as the chip does.

    `largest` is the largest magnitude of what the operator was given or made, `overflowed` the number of elements that
    were finite and beyond float16.
    """

    module: str
    operator: str
    entry: str
    calls: int
    largest: float
    overflowed: int
