"""Unrelated inputs of the same kind: what else a model could have been given without breaking it.

Values are drawn from those that the input has: word indices stay words, pixels stay in their range. What looks like a
mask or an order (two values; whole numbers that rise or fall) may not be mixed: samples exchange theirs instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array

_SEED = 0
MOST_ALONE = 3


def unrelated_inputs(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Other values for those inputs that have any; masks and orders are mixed only if nothing else can be changed."""
    generator = np.random.default_rng(_SEED)
    gentle = {n: _exchanged(v) if _is_structure(v) else _redrawn(v, generator) for n, v in inputs.items()}
    changed = _changed(inputs, gentle)
    return changed or _changed(inputs, {name: _redrawn(value, generator) for name, value in inputs.items()})


def replaced_in_turn(inputs: Mapping[str, Array], others: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Inputs of one run each, by the names of those that are replaced: the first few alone, all further ones together.

    So a model with many inputs, as with a cache, costs no more than MOST_ALONE runs.
    """
    names = list(others)
    alone = MOST_ALONE if len(names) <= MOST_ALONE else MOST_ALONE - 1
    groups = [[name] for name in names[:alone]] + ([names[alone:]] if names[alone:] else [])
    return {", ".join(group): {**inputs, **{name: others[name] for name in group}} for group in groups}


def _is_structure(value: Array) -> bool:
    if not value.size:
        return True
    low, high = value.min(), value.max()
    if low != high and ((value == low) | (value == high)).all():
        return True
    if value.dtype.kind not in "iu" or not value.ndim or value.shape[-1] < 2:
        return bool(value.dtype.kind == "b")
    earlier, later = value[..., :-1], value[..., 1:]
    return bool((earlier <= later).all() or (earlier >= later).all())


def _exchanged(value: Array) -> Array:
    return np.roll(value, 1, axis=0) if value.ndim else value


def _redrawn(value: Array, generator: np.random.Generator) -> Array:
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


def _changed(inputs: Mapping[str, Array], others: Mapping[str, Array]) -> dict[str, Array]:
    return {name: other for name, other in others.items() if not np.array_equal(other, inputs[name])}
