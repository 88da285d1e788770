"""Value changes between a source tensor and its target, each with an inverse, written as data.

A transform is one table in a map file, `{op = "reshape", shape = [...]}`; `parse_transform` reads it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from align.core.dtypes import dtype_name, is_complex, is_numeric, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.parameters import Shape


class Transform(Protocol):
    """Turns the source's value into the target's."""

    @property
    def op(self) -> str:
        """The word for it in a map file."""
        ...

    def apply(self, value: Array) -> Array:
        """Return the target's value."""
        ...

    def output_shape(self, shape: Shape) -> Shape:
        """Shape of the target; raises ValueError if the source's shape does not fit."""
        ...

    def output_dtype(self, dtype: str) -> str:
        """Dtype of the target."""
        ...

    def inverse(self, shape: Shape, dtype: str) -> Transform:
        """Return the transform that leads back to a source of this shape and dtype."""
        ...

    def as_table(self) -> dict[str, Any]:
        """The table that a map file holds."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """The same bytes."""

    op = "identity"

    def apply(self, value: Array) -> Array:
        """Return the value itself."""
        return value

    def output_shape(self, shape: Shape) -> Shape:
        """The same shape."""
        return shape

    def output_dtype(self, dtype: str) -> str:
        """The same dtype."""
        return dtype

    def inverse(self, shape: Shape, dtype: str) -> Transform:  # noqa: ARG002
        """Itself."""
        return self

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return {"op": self.op}


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same bytes in C order under another shape."""

    shape: Shape
    op = "reshape"

    def apply(self, value: Array) -> Array:
        """Return the value under the new shape."""
        return value.reshape(self.output_shape(value.shape))

    def output_shape(self, shape: Shape) -> Shape:
        """The new shape; raises ValueError if it holds another number of elements."""
        if prod(shape) != prod(self.shape) or any(n < 0 for n in self.shape):
            msg = f"cannot reshape {shape} to {self.shape}"
            raise ValueError(msg)
        return self.shape

    def output_dtype(self, dtype: str) -> str:
        """The same dtype."""
        return dtype

    def inverse(self, shape: Shape, dtype: str) -> Transform:  # noqa: ARG002
        """Back to the source's shape."""
        return Reshape(shape)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return {"op": self.op, "shape": list(self.shape)}


@dataclass(frozen=True, slots=True)
class Permute:
    """Axes in another order, as `numpy.transpose(value, axes)`."""

    axes: tuple[int, ...]
    op = "permute"

    def apply(self, value: Array) -> Array:
        """Return the value with its axes reordered."""
        shape = self.output_shape(value.shape)
        return np.ascontiguousarray(value.transpose(self.axes)).reshape(shape)  # which makes a 0-d array 1-d

    def output_shape(self, shape: Shape) -> Shape:
        """The shape with its axes reordered; raises ValueError if the number of axes differs."""
        if sorted(self.axes) != list(range(len(shape))):
            msg = f"cannot permute a tensor of shape {shape} by {self.axes}"
            raise ValueError(msg)
        return tuple(shape[axis] for axis in self.axes)

    def output_dtype(self, dtype: str) -> str:
        """The same dtype."""
        return dtype

    def inverse(self, shape: Shape, dtype: str) -> Transform:  # noqa: ARG002
        """The permutation that undoes this one."""
        return Permute(tuple(int(axis) for axis in np.argsort(self.axes)))

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return {"op": self.op, "axes": list(self.axes)}


@dataclass(frozen=True, slots=True)
class Cast:
    """Values rounded to another dtype; the inverse restores the dtype, not the lost digits.

    What a value becomes that the dtype cannot hold (NaN as an integer) is NumPy's affair; `steps.cast_loss` counts it.
    """

    dtype: str
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

    def inverse(self, shape: Shape, dtype: str) -> Transform:  # noqa: ARG002
        """Cast back."""
        return Cast(dtype)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return {"op": self.op, "dtype": self.dtype}


IDENTITY = Identity()


def parse_transform(table: Mapping[str, Any]) -> Transform:
    """Read the table form back; raises ValueError naming what is wrong."""
    fields = dict(table)
    op = fields.pop("op", None)
    argument = _ARGUMENTS.get(op) if isinstance(op, str) else None
    if argument is None:
        msg = f"unknown transform op {op!r}; known: {', '.join(_ARGUMENTS)}"
        raise ValueError(msg)
    try:
        return _with_argument(str(op), argument, fields)
    except ValueError as error:
        msg = f"transform {dict(table)} is malformed: {error}"
        raise ValueError(msg) from error


# What each op says beside its name.
_ARGUMENTS = {"identity": "", "reshape": "shape", "permute": "axes", "cast": "dtype"}


def _with_argument(op: str, argument: str, fields: dict[str, Any]) -> Transform:
    if unknown := sorted(fields.keys() - {argument}):
        msg = f"{op} takes {argument or 'nothing else'}, not {', '.join(unknown)}"
        raise ValueError(msg)
    if not argument:
        return IDENTITY
    if argument not in fields:
        msg = f"{op} needs {argument}"
        raise ValueError(msg)
    if op == "cast":
        return Cast(_dtype(fields[argument]))
    numbers = _counts(argument, fields[argument])
    return Reshape(numbers) if op == "reshape" else Permute(_permutation(numbers))


def _counts(what: str, values: object) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)) or not all(type(n) is int and n >= 0 for n in values):
        msg = f"{what} must be a list of whole numbers, none of them negative; got {values!r}"
        raise ValueError(msg)
    return tuple(values)


def _permutation(axes: tuple[int, ...]) -> tuple[int, ...]:
    if sorted(axes) != list(range(len(axes))):
        msg = f"axes must name each of {len(axes)} axes once, from 0 to {len(axes) - 1}; got {list(axes)}"
        raise ValueError(msg)
    return axes


def _dtype(name: object) -> str:
    try:
        canonical = dtype_name(numpy_dtype(name)) if isinstance(name, str) else ""
    except (TypeError, ValueError):
        canonical = ""
    if not is_numeric(canonical):
        msg = f"dtype must name numbers, such as float16; got {name!r}"
        raise ValueError(msg)
    return canonical
