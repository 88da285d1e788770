"""Transforms between a tensor and its pieces: cut out, put in place, cropped, padded, blocks in another order.

A fused tensor is written as one pairing for each piece, each with its place in the whole, so that every pairing is
undone by itself: the inverse of a slice is a part of the source's shape, and the reverse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.transforms import OneStep, Transform, chained

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import Pairing
    from align.core.parameters import Shape

Region = tuple[slice, ...]
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Slice(OneStep):
    """The piece from `start` to `stop` along an axis; `origin` is the source's shape, where a map tells it."""

    axis: int
    start: int
    stop: int
    origin: Shape | None = field(default=None, compare=False)
    op = "slice"

    def apply(self, value: Array) -> Array:
        """Return a view of the piece."""
        self.output_shape(value.shape)
        return value[region(self.axis, self.start, self.stop)]

    def output_shape(self, shape: Shape) -> Shape:
        """Shape of the piece; raises ValueError if it does not lie in a tensor of this shape."""
        if self.origin not in (None, shape):
            raise ValueError(f"is to be cut from {self.origin}, and has the shape {shape}")
        _check_span(self.axis, self.start, self.stop, shape)
        return _resized(shape, self.axis, self.stop - self.start)

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """The part of the source that the piece is."""
        origin = self.origin if shape is None else shape
        if origin is None:
            raise ValueError("the shape before the slice is not known: add `from = [...]` to it")
        return Part(self.axis, self.start, self.stop, origin)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        origin = {} if self.origin is None else {"from": list(self.origin)}
        return {"op": self.op, "axis": self.axis, "start": self.start, "stop": self.stop, **origin}


@dataclass(frozen=True, slots=True)
class Part(OneStep):
    """The source is the piece from `start` to `stop` of a target of this shape, whose rest other sources make.

    It is the last step of a chain.
    """

    axis: int
    start: int
    stop: int
    shape: Shape
    op = "part"

    @property
    def region(self) -> Region:
        """Where in the target the piece lies."""
        return region(self.axis, self.start, self.stop)

    def apply(self, value: Array) -> Array:
        """Return the whole with the piece in its place and zeros, for other parts to replace, in the rest."""
        whole: Array = np.zeros(self.output_shape(value.shape), value.dtype)
        whole[self.region] = value
        return whole

    def output_shape(self, shape: Shape) -> Shape:
        """Shape of the whole; raises ValueError if a piece of this shape does not fit its place."""
        _check_span(self.axis, self.start, self.stop, self.shape)
        wanted = _resized(self.shape, self.axis, self.stop - self.start)
        if shape != wanted:
            raise ValueError(f"a part of shape {shape} does not fit a place of shape {wanted}")
        return self.shape

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """The slice that takes the piece out of the whole."""
        return Slice(self.axis, self.start, self.stop, self.shape)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return {"op": self.op, "axis": self.axis, "start": self.start, "stop": self.stop, "shape": list(self.shape)}


@dataclass(frozen=True, slots=True)
class Crop(OneStep):
    """The first `size` entries along an axis, as of a padded vocabulary; what is cut off is lost.

    The way back fills it with `value`; `origin` is the size before, where a map tells it.
    """

    axis: int
    size: int
    value: float = 0.0
    origin: int | None = field(default=None, compare=False)
    op = "crop"

    def apply(self, value: Array) -> Array:
        """Return a view of the beginning."""
        self.output_shape(value.shape)
        return value[region(self.axis, 0, self.size)]

    def output_shape(self, shape: Shape) -> Shape:
        """The shorter shape; raises ValueError if it would not be shorter."""
        _check_size(self, shape, shorter=True)
        return _resized(shape, self.axis, self.size)

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """Pad with `value` to the size before."""
        return Pad(self.axis, _size_before(self, shape), self.value, self.size)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return _sized_table(self)


@dataclass(frozen=True, slots=True)
class Pad(OneStep):
    """Entries of one `value` added behind the last along an axis until there are `size`, as of a padded vocabulary."""

    axis: int
    size: int
    value: float = 0.0
    origin: int | None = field(default=None, compare=False)
    op = "pad"

    def apply(self, value: Array) -> Array:
        """Return a longer copy."""
        whole: Array = np.full(self.output_shape(value.shape), self.value, value.dtype)
        whole[region(self.axis, 0, value.shape[self.axis])] = value
        return whole

    def output_shape(self, shape: Shape) -> Shape:
        """The longer shape; raises ValueError if it would not be longer."""
        _check_size(self, shape, shorter=False)
        return _resized(shape, self.axis, self.size)

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """Cut off what was added."""
        return Crop(self.axis, _size_before(self, shape), self.value, self.size)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return _sized_table(self)


@dataclass(frozen=True, slots=True)
class Reorder(OneStep):
    """Equal blocks along an axis in another order, as of the gates of an LSTM: block i is what `blocks[i]` was."""

    axis: int
    blocks: tuple[int, ...]
    op = "reorder"

    def apply(self, value: Array) -> Array:
        """Return a copy with its blocks in the new order."""
        self.output_shape(value.shape)
        pieces = np.split(value, len(self.blocks), self.axis)
        return np.concatenate([pieces[block] for block in self.blocks], self.axis)

    def output_shape(self, shape: Shape) -> Shape:
        """The same shape; raises ValueError if it cannot be cut into so many equal blocks."""
        if self.axis >= len(shape) or shape[self.axis] % len(self.blocks):
            raise ValueError(f"cannot cut axis {self.axis} of {shape} into {len(self.blocks)} equal blocks")
        return shape

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """The order that undoes this one."""
        return Reorder(self.axis, tuple(int(block) for block in np.argsort(self.blocks)))

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return {"op": self.op, "axis": self.axis, "blocks": list(self.blocks)}


def region(axis: int, start: int, stop: int) -> Region:
    """Index of a piece along an axis."""
    return (*(slice(None),) * axis, slice(start, stop))


def apart_from_whole(transform: Transform) -> tuple[Transform, Part | None]:
    """What makes the piece of a part, and its place; a transform that makes the whole target has no place."""
    *before, last = transform.steps or (transform,)
    return (chained(*before), last) if isinstance(last, Part) else (transform, None)


def is_cut(transform: Transform) -> bool:
    """Tell whether the target is made of a piece of the source."""
    return any(isinstance(step, Slice) for step in transform.steps[:1])


def filled_up(transform: Transform) -> bool:
    """Tell whether something of the target is a stated value, and nothing of the source."""
    return any(isinstance(step, Pad) for step in transform.steps)


def join_fault(transforms: Sequence[Transform]) -> str:
    """What keeps these from making one target together, "" if they are the parts of one whole and tile it."""
    parts = [apart_from_whole(transform)[1] for transform in transforms]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return "not all of them are parts of it"
    if len({(part.axis, part.shape) for part in known}) > 1:
        return "they are parts of different wholes"
    return tiling_fault([(part.start, part.stop) for part in known], known[0].shape[known[0].axis])


def cut_faults(pairings: Iterable[Pairing], shapes: Mapping[str, Shape]) -> dict[str, str]:
    """Each source of these shapes that is cut so that a value of it is used never, or twice -> what is wrong.

    A source of which something is made whole as well is not.
    """
    made: dict[str, list[Transform]] = {}
    for pairing in pairings:
        made.setdefault(pairing.source, []).append(pairing.transform)
    found = {name: _cut_fault(transforms, shapes[name]) for name, transforms in made.items() if name in shapes}
    return {name: fault for name, fault in found.items() if fault}


def _cut_fault(transforms: Sequence[Transform], shape: Shape) -> str:
    cuts = [step for transform in transforms for step in transform.steps[:1] if isinstance(step, Slice)]
    if not cuts or len(cuts) < len(transforms):
        return ""
    if len(axes := {cut.axis for cut in cuts}) > 1:
        return f"it is cut along the axes {' and '.join(map(str, sorted(axes)))}"
    axis = axes.pop()
    fault = tiling_fault([(cut.start, cut.stop) for cut in cuts], shape[axis]) if axis < len(shape) else ""
    return f"it is cut along axis {axis}, and {fault}" if fault else ""


def tiling_fault(spans: Sequence[Span], size: int) -> str:
    """All that keeps pieces from covering an axis of this size once each, "" if nothing does."""
    faults, end = [], 0
    for start, stop in [*sorted(spans), (size, size)]:
        if start > end:
            faults.append(f"nothing covers {end}:{start}")
        elif start < end:
            faults.append(
                f"{start}:{min(end, stop)} is covered twice" if start < size else f"{size}:{end} is not there"
            )
        end = max(end, stop)
    return ", ".join(faults)


def _resized(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _check_span(axis: int, start: int, stop: int, shape: Shape) -> None:
    if axis >= len(shape) or not 0 <= start < stop <= shape[axis]:
        raise ValueError(f"{start}:{stop} of axis {axis} does not lie in {shape}")


def _check_size(step: Crop | Pad, shape: Shape, *, shorter: bool) -> None:
    known = shape[step.axis] if step.axis < len(shape) else None
    if known is None or (known < step.size if shorter else known > step.size):
        raise ValueError(f"cannot {step.op} axis {step.axis} of {shape} to {step.size}")
    if step.origin not in (None, known):
        raise ValueError(f"axis {step.axis} is to be {step.origin} long, and is {known}")


def _size_before(step: Crop | Pad, shape: Shape | None) -> int:
    before = step.origin if shape is None else shape[step.axis]
    if before is None:
        raise ValueError(f"the size before the {step.op} is not known: add `from = ...` to it")
    return before


def _sized_table(step: Crop | Pad) -> dict[str, Any]:
    origin = {} if step.origin is None else {"from": step.origin}
    return {"op": step.op, "axis": step.axis, "size": step.size, "value": step.value, **origin}
