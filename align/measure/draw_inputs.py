"""Other inputs like the given ones: drawn from their elements, and left as they are where they are masks or orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array


def inputs_drawn_from(inputs: Mapping[str, Array], seed: int, *, times: int = 1) -> dict[str, Array]:
    """Draw each input from its own elements, with so many `times` as many samples; masks and orders stay."""
    generator = np.random.default_rng(seed)
    more = {name: np.concatenate([one] * times) if one.ndim else one for name, one in inputs.items()}
    return {name: one if is_structure(one) else drawn_from(one, generator) for name, one in more.items()}


def is_structure(value: Array) -> bool:
    """Tell whether an input looks like a mask or an order."""
    if not value.size:
        return True
    low, high = value.min(), value.max()
    if low != high and ((value == low) | (value == high)).all():
        return True
    if value.dtype.kind not in "iu" or not value.ndim or value.shape[-1] < 2:
        return bool(value.dtype.kind == "b")
    earlier, later = value[..., :-1], value[..., 1:]
    return bool((earlier <= later).all() or (earlier >= later).all())


def drawn_from(value: Array, generator: np.random.Generator) -> Array:
    """Draw each element from all of them; floats that are all alike become normal ones of that size."""
    flat = value.reshape(-1)
    if not flat.size:
        return value
    if value.dtype.kind in "fcV" and (flat == flat[0]).all():
        size = abs(flat[0].astype(np.complex128)) or 1.0
        normal: Array = (size * generator.standard_normal(value.shape)).astype(value.dtype)
        return normal
    drawn: Array = flat[generator.integers(0, flat.size, flat.size)].reshape(value.shape)
    return drawn
