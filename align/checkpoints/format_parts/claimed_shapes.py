"""Shapes that files claim, held to what an array can be."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from align.core.checkpoints import MOST_AXES
from align.errors import HostileFileError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from align.core.parameters import Shape

# NumPy counts bytes in 63 bits, of elements of up to 16 bytes, and leaves axes of length 0 out of the product.
MOST_ELEMENTS = 1 << 59


def sound_shape(path: Path, name: str, dims: Sequence[int]) -> Shape:
    """Return the dims as a shape; raises HostileFileError, naming the tensor, if no array can have it."""
    if len(dims) > MOST_AXES:
        raise HostileFileError(path, f"tensor {name!r} claims {len(dims)} axes, {MOST_AXES} are the most")
    if min(dims, default=0) < 0 or prod([dim or 1 for dim in dims]) > MOST_ELEMENTS:
        raise HostileFileError(path, f"tensor {name!r} claims the shape {tuple(dims)}")
    return tuple(dims)
