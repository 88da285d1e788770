"""Value changes between a source tensor and its target, each with an inverse, written as data.

A transform is one table in a map file, `{op = "reshape", shape = [...]}`, which `names.parse_transform` reads. Those
that cut a tensor, join it, or put its blocks in another order are in `core.piece_transforms`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from align.core.parameters import is_complex, numpy_dtype

if TYPE_CHECKING:
    from align.core.parameters import Array, Shape


class Transform(Protocol):
    """Turns the source's value into the target's."""

    @property
    def op(self) -> str:
        """The word for it in a map file."""

    def apply(self, value: Array) -> Array:
        """Return the target's value."""

    def output_shape(self, shape: Shape) -> Shape:
        """Shape of the target; raises ValueError if the source's shape does not fit."""

    def output_dtype(self, dtype: str) -> str:
        """Dtype of the target."""

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:
        """Return the transform that leads back to a source of this shape and dtype; None is what is not known.

        Raises ValueError where what is not known is needed.
        """

    def as_table(self) -> dict[str, Any]:
        """The table that a map file holds."""

    @property
    def steps(self) -> tuple[Transform, ...]:
        """The single transforms that it is made of, in order; none of the identity."""


class OneStep:
    """What all transforms have in common but chains: one step, which keeps the dtype unless it says otherwise."""

    __slots__ = ()

    @property
    def steps(self: Transform) -> tuple[Transform, ...]:
        """The transform itself."""
        return (self,)

    def output_dtype(self, dtype: str) -> str:
        """The same dtype."""
        return dtype

    def as_table(self: Transform) -> dict[str, Any]:
        """The name alone, for a step without settings."""
        return {"op": self.op}


@dataclass(frozen=True, slots=True)
class Identity(OneStep):
    """The same bytes."""

    op = "identity"

    @property
    def steps(self) -> tuple[Transform, ...]:
        """No step."""
        return ()

    def apply(self, value: Array) -> Array:
        """Return the value itself."""
        return value

    def output_shape(self, shape: Shape) -> Shape:
        """The same shape."""
        return shape

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """Itself."""
        return self


@dataclass(frozen=True, slots=True)
class Reshape(OneStep):
    """The same bytes in C order under another shape; `origin` is the source's, where a map tells it, to go back."""

    shape: Shape
    origin: Shape | None = field(default=None, compare=False)
    op = "reshape"

    def apply(self, value: Array) -> Array:
        """Return the value under the new shape."""
        return value.reshape(self.output_shape(value.shape))

    def output_shape(self, shape: Shape) -> Shape:
        """The new shape; raises ValueError if it holds another number of elements, or is not reached from `origin`."""
        if prod(shape) != prod(self.shape) or any(n < 0 for n in self.shape):
            raise ValueError(f"cannot reshape {shape} to {self.shape}")
        if self.origin not in (None, shape):
            raise ValueError(f"is to be reshaped from {self.origin}, and has the shape {shape}")
        return self.shape

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """Back to the source's shape."""
        origin = self.origin if shape is None else shape
        if origin is None:
            raise ValueError(f"the shape before the reshape to {self.shape} is not known: add `from = [...]` to it")
        return Reshape(origin, self.shape)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        origin = {} if self.origin is None else {"from": list(self.origin)}
        return {"op": self.op, "shape": list(self.shape), **origin}


@dataclass(frozen=True, slots=True)
class Permute(OneStep):
    """Axes in another order, as `numpy.transpose(value, axes)`."""

    axes: tuple[int, ...]
    op = "permute"

    def apply(self, value: Array) -> Array:
        """Return a view of the value with its axes reordered: nothing is copied."""
        self.output_shape(value.shape)
        return value.transpose(self.axes)

    def output_shape(self, shape: Shape) -> Shape:
        """The shape with its axes reordered; raises ValueError if the number of axes differs."""
        if sorted(self.axes) != list(range(len(shape))):
            raise ValueError(f"cannot permute a tensor of shape {shape} by {self.axes}")
        return tuple(shape[axis] for axis in self.axes)

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """The permutation that undoes this one."""
        return Permute(tuple(int(axis) for axis in np.argsort(self.axes)))

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return {"op": self.op, "axes": list(self.axes)}


@dataclass(frozen=True, slots=True)
class Cast(OneStep):
    """Values rounded to another dtype; the inverse restores the dtype, not the lost digits.

    What a value becomes that the dtype cannot hold (NaN as an integer) is NumPy's affair; `steps.cast_loss` counts it.
    `origin` is the source's dtype, where a map tells it for the way back.
    """

    dtype: str
    origin: str | None = field(default=None, compare=False)
    op = "cast"

    def apply(self, value: Array) -> Array:
        """Return the value in the new dtype; a complex one keeps its real part in a dtype that is not."""
        real = value.real if np.iscomplexobj(value) and not is_complex(self.dtype) else value
        with np.errstate(all="ignore"):
            return real.astype(numpy_dtype(self.dtype))

    def output_shape(self, shape: Shape) -> Shape:
        """The same shape."""
        return shape

    def output_dtype(self, dtype: str) -> str:  # noqa: ARG002
        """The new dtype."""
        return self.dtype

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """Cast back."""
        origin = self.origin if dtype is None else dtype
        if origin is None:
            raise ValueError(f"the dtype before the cast to {self.dtype} is not known: add `from = '...'` to it")
        return Cast(origin, self.dtype)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        origin = {} if self.origin is None else {"from": self.origin}
        return {"op": self.op, "dtype": self.dtype, **origin}


class _Arithmetic(OneStep):
    """A change of each value by one number, computed in float64 and rounded once; a whole number stays whole."""

    __slots__ = ()

    def output_shape(self, shape: Shape) -> Shape:
        """The same shape."""
        return shape

    def _rounded(self, result: Array, value: Array) -> Array:
        made = np.rint(result) if value.dtype.kind in "iub" else result
        with np.errstate(all="ignore"):
            return made.astype(value.dtype)


@dataclass(frozen=True, slots=True)
class Add(_Arithmetic):
    """One number added to each value: a norm whose port keeps `w` where the source keeps `1 + w`.

    The way back takes it off; the digits that the sum rounds away do not come back. A gradient (`of_gradient`) stays.
    """

    value: float
    of_gradient: bool = field(default=False, compare=False)
    op = "add"

    def apply(self, value: Array) -> Array:
        """Return the sum in the value's dtype."""
        return value if self.of_gradient else self._rounded(_widened(value) + self.value, value)

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """Take the number off."""
        return Add(-self.value, self.of_gradient)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return {"op": self.op, "value": self.value}


@dataclass(frozen=True, slots=True)
class Scale(_Arithmetic):
    """Each value times one factor that is not 0; the way back divides by it, up to rounding.

    A gradient (`of_gradient`) is divided by it on the way there.
    """

    factor: float
    of_gradient: bool = field(default=False, compare=False)
    op = "scale"

    def apply(self, value: Array) -> Array:
        """Return the product in the value's dtype."""
        return self._rounded(_widened(value) * (1.0 / self.factor if self.of_gradient else self.factor), value)

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """The reciprocal factor."""
        return Scale(1.0 / self.factor, self.of_gradient)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return {"op": self.op, "factor": self.factor}


def _widened(value: Array) -> Array:
    return value.astype(np.complex128 if np.iscomplexobj(value) else np.float64)


@dataclass(frozen=True, slots=True)
class Chain:
    """Several transforms, one after the other."""

    steps: tuple[Transform, ...]
    op = "chain"

    def apply(self, value: Array) -> Array:
        """Return what the last step makes of the value."""
        for step in self.steps:
            value = step.apply(value)
        return value

    def output_shape(self, shape: Shape) -> Shape:
        """The shape after the last step; raises ValueError if one does not fit."""
        for step in self.steps:
            shape = step.output_shape(shape)
        return shape

    def output_dtype(self, dtype: str) -> str:
        """The dtype after the last step."""
        for step in self.steps:
            dtype = step.output_dtype(dtype)
        return dtype

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:
        """Each step undone, the last one first; what one step makes known the next one knows."""
        back: list[Transform] = []
        for step in self.steps:
            back.insert(0, step.inverse(shape, dtype))
            shape = step.shape if isinstance(step, Reshape) else None if shape is None else step.output_shape(shape)
            dtype = step.dtype if isinstance(step, Cast) else dtype
        return chained(*back)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return {"op": self.op, "steps": [step.as_table() for step in self.steps]}


IDENTITY = Identity()


def chained(*transforms: Transform) -> Transform:
    """The transforms one after the other as the simplest that does the same."""
    steps = tuple(step for transform in transforms for part in transform.steps for step in part.steps)
    return Chain(steps) if len(steps) > 1 else next(iter(steps), IDENTITY)


def turned_and_reshaped(before: Shape, wanted: Shape, turned: bool) -> Transform:
    """Turn a matrix, or a convolution of one position, as the target wants it; then shape it."""
    if not turned:
        return IDENTITY if before == wanted else Reshape(wanted, before)
    flat = before[:2]
    matrix = IDENTITY if flat == before else Reshape(flat, before)
    return chained(matrix, Permute((1, 0)), IDENTITY if flat[::-1] == wanted else Reshape(wanted, flat[::-1]))
