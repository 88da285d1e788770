"""What stands at padded positions: what a model returns there is nobody's result, and implementations differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from align.core.traces import Capture


@dataclass(frozen=True, slots=True)
class Padding:
    """Elements of the reference's tensors that padded positions decide, as packed bits by the captures' keys."""

    packed: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)

    def at(self, capture: Capture) -> NDArray[np.bool_] | None:
        """These elements of one tensor, in its shape; None if it has none."""
        bits = self.packed.get(capture.key)
        if bits is None:
            return None
        return np.unpackbits(bits, count=prod(capture.shape)).view(np.bool_).reshape(capture.shape)


NO_PADDING = Padding()
