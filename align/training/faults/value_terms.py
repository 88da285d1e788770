"""A term of the parameters' own values in a gradient: their multiple (L2, a decay), or that of their signs (L1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.training.thresholds import CLEAR_GAP_ROUNDINGS, TERM_FEWEST_ELEMENTS, TERM_TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array

TermKind = Literal["l2", "l1"]


@dataclass(frozen=True, slots=True)
class GradientGap:
    """What a gradient differs by from the right one, the value of its parameter, and the rounding (RMS) of the gap."""

    gap: Array
    value: Array
    rounding: float


@dataclass(frozen=True, slots=True)
class ValueTerm:
    """The gaps of `names` are `coefficient` times the values of the parameters, or times their signs."""

    kind: TermKind
    coefficient: float
    names: tuple[str, ...]


def value_term(gaps: Mapping[str, GradientGap]) -> ValueTerm | None:
    """Return the term that explains most elements; None if none does, and of fewer elements than TERM_FEWEST_ELEMENTS.

    Where all values are of one size there is none either: a constant is no multiple of the value.
    """
    clear = {name: one for name, one in gaps.items() if rms(one.gap) > CLEAR_GAP_ROUNDINGS * one.rounding}
    found = [*_terms("l2", clear), *_terms("l1", clear)]

    def size(term: ValueTerm) -> int:
        return sum(clear[name].gap.size for name in term.names)

    best = max(found, key=size, default=None)
    if best is None or size(best) < TERM_FEWEST_ELEMENTS:
        return None
    return best if any(np.ptp(np.abs(clear[name].value)) > 0.0 for name in best.names) else None


def _terms(kind: TermKind, gaps: Mapping[str, GradientGap]) -> Iterator[ValueTerm]:
    """For each coefficient that a gap gives by itself, the parameters that have it."""
    own = {name: found for name, one in gaps.items() if (found := _coefficient(kind, one)) is not None}
    for number in own.values():
        alike = tuple(name for name, other in own.items() if abs(other - number) <= TERM_TOLERANCE * abs(number))
        yield ValueTerm(kind, _together(kind, [gaps[one] for one in alike]), alike)


def _direction(kind: TermKind, one: GradientGap) -> Array:
    wide = one.value.reshape(-1).astype(np.float64)
    return wide if kind == "l2" else np.sign(wide)


def _coefficient(kind: TermKind, one: GradientGap) -> float | None:
    """The one number that makes a gap of a direction; None if there is none."""
    gap, direction = one.gap.reshape(-1), _direction(kind, one)
    weight = float(direction @ direction)
    if not weight or not np.isfinite(gap).all():
        return None
    found = float(gap @ direction) / weight
    return found if found and rms(gap - found * direction) <= max(TERM_TOLERANCE * rms(gap), one.rounding) else None


def _together(kind: TermKind, gaps: Sequence[GradientGap]) -> float:
    """One coefficient for all, as round as their figures are sure."""
    directions = [_direction(kind, one) for one in gaps]
    weight = sum(float(one @ one) for one in directions)
    found = sum(float(gap.gap.reshape(-1) @ one) for gap, one in zip(gaps, directions, strict=True)) / weight
    return float(f"{found:.3g}")


def rms(values: Array) -> float:
    """The root mean square in float64; 0 of an empty array."""
    wide = values.astype(np.float64)
    return float(np.sqrt(np.mean(wide * wide))) if wide.size else 0.0
