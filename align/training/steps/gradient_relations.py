"""How a gradient that is wrong follows from the right one: missing, too many, a factor, cut off, or added up."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING

import numpy as np

from align.training.thresholds import (
    FACTOR_TOLERANCE,
    FEWEST_AT_BOUND,
    LEAST_LOSS_SCALE,
    RELATION_ELEMENTS,
    TERM_FEWEST_ELEMENTS,
    UNEXPLAINED_SHARE,
    UNEXPLAINED_SHARE_OF_HALF,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array

NOT_CLEARED = "gradients-not-cleared"


@dataclass(frozen=True, slots=True)
class GradientRelation:
    """The id of a relation and its figures."""

    cause: str
    facts: dict[str, float | int | str] = field(default_factory=dict)


UNKNOWN = GradientRelation("")


def relate_gradients(
    meant: Array | None, value: Array | None, earlier: Sequence[Array] = (), *, half: bool = False
) -> GradientRelation:
    """Say how `value` follows from what it is `meant` to be; `earlier` are the right gradients of the steps before.

    In `half` precision, whatever its dtype, more is left by rounding.
    """
    if value is None or not np.any(value):
        return GradientRelation("no-gradient") if meant is not None and np.any(meant) else UNKNOWN
    if meant is None or not np.any(meant):
        return GradientRelation("gradient-not-stopped")
    right, own, *before = (_spread(one) for one in (meant, value, *earlier))
    if own.shape != right.shape or not (np.isfinite(own).all() and np.isfinite(right).all()):
        return UNKNOWN
    return _related(
        right, own, before, UNEXPLAINED_SHARE_OF_HALF if half or value.dtype.itemsize < 4 else UNEXPLAINED_SHARE
    )


def _spread(value: Array) -> Array:
    """All elements in float64, or RELATION_ELEMENTS of them from everywhere."""
    flat = value.reshape(-1)
    places = (
        slice(None)
        if flat.size <= RELATION_ELEMENTS
        else np.linspace(0, flat.size - 1, RELATION_ELEMENTS).astype(np.int64)
    )
    return np.asarray(flat[places].astype(np.float64))


def _related(right: Array, own: Array, earlier: Sequence[Array], left: float) -> GradientRelation:
    return _summed(right, own, earlier, left) or _scaled(right, own, left) or _cut_off(right, own) or UNKNOWN


def _scaled(right: Array, own: Array, left: float) -> GradientRelation | None:
    if not right.any():
        return None
    factor = float(right @ own) / float(right @ right)
    rest = np.sqrt(np.mean((own - factor * right) ** 2))
    if not factor or rest > left * np.sqrt(np.mean(own**2)) or abs(factor - 1.0) <= left:
        return None
    return GradientRelation("gradient-factor", {"factor": float(f"{factor:.4g}")})


def _summed(right: Array, own: Array, earlier: Sequence[Array], left: float) -> GradientRelation | None:
    """The gradients of the steps before still in it."""
    if not earlier:
        return None
    whole = right + sum(earlier)
    rest = np.sqrt(np.mean((own - whole) ** 2))
    if rest > left * np.sqrt(np.mean(own**2)) or np.sqrt(np.mean((own - right) ** 2)) <= left * np.sqrt(
        np.mean(own**2)
    ):
        return None
    return GradientRelation(NOT_CLEARED, {"steps": len(earlier) + 1})


def scale_taken_off(computed: Mapping[str, Array], given: Mapping[str, Array], parts: int) -> float:
    """By what a step divides the gradients that it computed before optimizers get them: a loss scale; 1 for none.

    Most parameters have to show one number: a power of two or ten that scales are made of, or the number of `parts` of
    a batch, over which the gradients are averaged in the place of the losses.
    """
    factors = [
        float(found.facts["factor"])
        for name in computed
        if name in given and computed[name].shape == given[name].shape
        for found in (relate_gradients(computed[name], given[name]),)
        if found.cause == "gradient-factor"
    ]
    for one in factors:
        alike = sum(abs(other / one - 1.0) <= FACTOR_TOLERANCE for other in factors)
        if 2 * alike > len(computed):
            scale = 1.0 / one
            known = nearest_scale(scale) or float(parts)
            return known if known > 1.0 and abs(scale / known - 1.0) <= FACTOR_TOLERANCE else 1.0
    return 1.0


def nearest_scale(factor: float) -> float | None:
    """The power of two or ten that a factor is, such as losses are scaled by; None for any other number."""
    if factor < LEAST_LOSS_SCALE:
        return None
    powers = (float(base ** round(log(factor, base))) for base in (2, 10))
    return next((one for one in powers if abs(factor / one - 1.0) <= FACTOR_TOLERANCE), None)


def _cut_off(right: Array, own: Array) -> GradientRelation | None:
    """Clipped at a bound, or zero in some places and right in all others."""
    bound = float(np.abs(own).max())
    clipped = np.clip(right, -bound, bound)
    scale = np.abs(right).max()
    if (np.abs(right) > bound * (1 + UNEXPLAINED_SHARE)).sum() >= FEWEST_AT_BOUND and np.abs(
        own - clipped
    ).max() <= UNEXPLAINED_SHARE * scale:
        return GradientRelation("gradient-clipped", {"bound": float(f"{bound:.4g}")})
    places = {"gradient-masked": (own == 0.0) & (right != 0.0), "gradient-not-masked": (right == 0.0) & (own != 0.0)}
    for cause, other in places.items():
        factor = _factor_in(right[~other], own[~other]) if other.any() else None
        if factor is not None:
            facts: dict[str, float | int | str] = {"share": float(f"{other.mean():.3g}")}
            return GradientRelation(cause, facts if factor == 1.0 else {**facts, "factor": factor})
    return None


def _factor_in(right: Array, own: Array) -> float | None:
    """By what the one is the other, as of a mean over more places; 1 if it is the same, None if neither."""
    length = float(right @ right)
    factor = float(right @ own) / length if length and right.size >= TERM_FEWEST_ELEMENTS else 0.0
    room = UNEXPLAINED_SHARE * np.abs(own).max(initial=0.0)
    near = (one for one in (1.0, factor) if one and np.abs(own - one * right).max(initial=0.0) <= room)
    return next((float(f"{one:.4g}") for one in near), None)
