"""BatchNorm that an exporter multiplied into the convolution before it, taken apart again.

One product has many factors: the norm's own values are taken from the other side, and what then differs is said of the
convolution's weight and of the norm's bias. Values that agree within rounding of the product count as equal, since the
exporter computed it in the model's own precision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON
from align.models.thresholds import FOLDED_ROUNDING_UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array

ATTRIBUTES = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True, slots=True)
class FoldedNorm:
    """A norm at `path` in a convolution whose weight and bias are called so.

    `channels` is the weight's axis of outputs. `norm` holds the other side's values by torch's attributes, `weight`
    and `bias` those of its convolution.
    """

    path: str
    weight_name: str
    bias_name: str
    epsilon: float
    norm: Mapping[str, Array] = field(repr=False)
    weight: Array = field(repr=False)
    bias: Array | None = field(repr=False, default=None)
    channels: int = 0

    @property
    def names(self) -> set[str]:
        """The names of all that goes into the product."""
        return {self.weight_name, self.bias_name, *(f"{self.path}.{name}" for name in self.norm)}

    def unfolded(self, own: Mapping[str, Array]) -> dict[str, Array]:
        """The values of the convolution and the norm whose product is the `own` weight and bias of the file."""
        scale = self._scale(self.norm)
        weight, bias = own[self.weight_name], own[self.bias_name]
        meant = self.product(self.norm, self.weight, self.bias)
        found = {f"{self.path}.{name}": value for name, value in self.norm.items()}
        with np.errstate(all="ignore"):
            apart = (weight.astype(np.float64) / self._along(scale, weight.ndim)).astype(weight.dtype)
        found[self.weight_name] = self.weight if agrees(weight, meant[0]) else apart
        if not agrees(bias, meant[1], self._size_of_bias()):
            off = bias.astype(np.float64) - meant[1]
            found[f"{self.path}.bias"] = (self.norm["bias"].astype(np.float64) + off).astype(bias.dtype)
        if self.bias is not None:
            found[self.bias_name] = self.bias
        return found

    def folded(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The weight and bias of the file that these values make; {} where they are not all there."""
        norm = {name: values[key] for name in ATTRIBUTES if (key := f"{self.path}.{name}") in values}
        if self.weight_name not in values or len(norm) < len(ATTRIBUTES):
            return {}
        bias = values.get(self.bias_name) if self.bias is not None else None
        made = self.product(norm, values[self.weight_name], bias)
        return dict(zip((self.weight_name, self.bias_name), made, strict=True))

    def product(self, norm: Mapping[str, Array], weight: Array, bias: Array | None) -> tuple[Array, Array]:
        """The weight and bias of the convolution and the norm as one, in float64."""
        scale = self._scale(norm)
        moved = (0.0 if bias is None else bias.astype(np.float64)) - norm["running_mean"].astype(np.float64)
        return (
            weight.astype(np.float64) * self._along(scale, weight.ndim),
            norm["bias"].astype(np.float64) + moved * scale,
        )

    def confirmed(self, weight: Array, bias: Array) -> bool:
        """Tell whether the file's weight and bias are this product, within rounding."""
        meant = self.product(self.norm, self.weight, self.bias)
        return agrees(weight, meant[0]) and agrees(bias, meant[1], self._size_of_bias())

    def _scale(self, norm: Mapping[str, Array]) -> Array:
        with np.errstate(all="ignore"):  # a variance below 0 is somebody's fault, and shows
            deviation = np.sqrt(norm["running_var"].astype(np.float64) + self.epsilon)
            found: Array = norm["weight"].astype(np.float64) / deviation
        return found

    def _along(self, scale: Array, axes: int) -> Array:
        return scale.reshape([-1 if axis == self.channels else 1 for axis in range(axes)])

    def _size_of_bias(self) -> Array:
        """How large what is added up in the bias is: its rounding goes by the largest of it."""
        moved = (
            self.norm["running_mean"] if self.bias is None else np.abs(self.norm["running_mean"]) + np.abs(self.bias)
        )
        size: Array = np.abs(self.norm["bias"]) + np.abs(moved * self._scale(self.norm))
        return size


def agrees(held: Array, meant: Array, size: Array | None = None) -> bool:
    """Tell whether values are those that are meant, within rounding of what they were made of."""
    unit = EPSILON.get(held.dtype.name, EPSILON["float32"])
    bound = FOLDED_ROUNDING_UNITS * unit * (np.abs(meant) if size is None else size)
    return held.shape == meant.shape and bool(np.all(np.abs(held.astype(np.float64) - meant) <= bound))
