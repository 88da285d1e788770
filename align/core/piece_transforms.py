"""Transforms between a tensor and its pieces: cut out, put in place, cropped, padded, blocks in another order.

A fused tensor is written as one pairing for each piece, each with its place in the whole, so that every pairing is
undone by itself: the inverse of a slice is a part of the source's shape, and the reverse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.transforms import Chain, OneStep, Transform, chained

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

    It is the last step of a chain, or before another part, which says where this whole lies in a larger one.
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
class NestedPart(Chain):
    """Parts within parts, the innermost first: rows of one expert among those of all."""

    steps: tuple[Part, ...]

    @property
    def region(self) -> Region:
        """Where in the outermost target the piece lies."""
        spans = [(0, size) for size in self.shape]
        for part in reversed(self.steps):
            first = spans[part.axis][0]
            spans[part.axis] = first + part.start, first + part.stop
        return tuple(slice(*span) for span in spans)

    @property
    def shape(self) -> Shape:
        """That of the outermost target."""
        return self.steps[-1].shape


Place = Part | NestedPart


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


def apart_from_whole(transform: Transform) -> tuple[Transform, Place | None]:
    """What makes the piece of a part, and its place; a transform that makes the whole target has no place."""
    parts = _parts(transform)
    before = transform.steps[: len(transform.steps) - len(parts)]
    if not parts:
        return transform, None
    return chained(*before), parts[0] if len(parts) == 1 else NestedPart(parts)


def apart_from_cut(transform: Transform) -> tuple[Transform, Transform]:
    """What takes a piece out of the source, and what is done to it."""
    cuts = _cuts(transform)
    return chained(*cuts), chained(*transform.steps[len(cuts) :])


def _parts(transform: Transform) -> tuple[Part, ...]:
    """The parts that a transform ends in, the innermost first."""
    steps = takewhile(lambda step: isinstance(step, Part), reversed(transform.steps))
    return tuple(step for step in steps if isinstance(step, Part))[::-1]


def _cuts(transform: Transform) -> tuple[Slice, ...]:
    """The slices that a transform begins with."""
    steps = takewhile(lambda step: isinstance(step, Slice), transform.steps)
    return tuple(step for step in steps if isinstance(step, Slice))


def is_cut(transform: Transform) -> bool:
    """Tell whether the target is made of a piece of the source."""
    return any(isinstance(step, Slice) for step in transform.steps[:1])


def filled_up(transform: Transform) -> bool:
    """Tell whether something of the target is a stated value, and nothing of the source."""
    return any(isinstance(step, Pad) for step in transform.steps)


def join_fault(transforms: Sequence[Transform]) -> str:
    """What keeps these from making one target together, "" if they are the parts of one whole and tile it."""
    parts = [_parts(transform) for transform in transforms]
    if not all(parts):
        return "not all of them are parts of it"
    if len({(own[-1].axis, own[-1].shape) for own in parts}) > 1:
        return "they are parts of different wholes"
    return _nested_fault([own[::-1] for own in parts], parts[0][-1].shape)


def overlap(transforms: Sequence[Transform]) -> bool:
    """Tell whether these, which make one target, make anything in it twice: only parts that lie apart do not."""
    parts = [_parts(transform) for transform in transforms]
    if not all(parts) or len({(own[-1].axis, own[-1].shape) for own in parts}) > 1:
        return True
    return _lie_over([own[::-1] for own in parts])


def _lie_over(places: Sequence[Sequence[Slice | Part]]) -> bool:
    within = _by_span(places)
    spans = sorted(within)
    if any(later[0] < earlier[1] for earlier, later in pairwise(spans)):
        return True
    several = [inner for inner in within.values() if len(inner) > 1]
    return any(not all(inner) or len({one[0].axis for one in inner}) > 1 or _lie_over(inner) for inner in several)


def _by_span(places: Sequence[Sequence[Slice | Part]]) -> dict[Span, list[Sequence[Slice | Part]]]:
    """What further pieces are taken within each span, which the first of each tells."""
    within: dict[Span, list[Sequence[Slice | Part]]] = {}
    for first, *more in places:
        within.setdefault((first.start, first.stop), []).append(more)
    return within


def _nested_fault(places: Sequence[Sequence[Slice | Part]], shape: Shape) -> str:
    """What keeps pieces from tiling a tensor, each told by a span of it, and by others within that."""
    axis = places[0][0].axis
    if axis >= len(shape):
        return ""
    within = _by_span(places)
    spans = [span for span, inner in within.items() for _ in range(1 if all(inner) else len(inner))]
    if fault := tiling_fault(spans, shape[axis]):
        return fault
    for (start, stop), inner in within.items():
        if all(inner):
            if len({one[0].axis for one in inner}) > 1:
                return f"{start}:{stop} is cut along different axes"
            if fault := _nested_fault(inner, _resized(shape, axis, stop - start)):
                return f"in {start}:{stop} {fault}"
    return ""


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
    cuts = [own for transform in transforms if (own := _cuts(transform))]
    if not cuts or len(cuts) < len(transforms):
        return ""
    if len(axes := {own[0].axis for own in cuts}) > 1:
        return f"it is cut along the axes {' and '.join(map(str, sorted(axes)))}"
    fault = _nested_fault(cuts, shape)
    return f"it is cut along axis {axes.pop()}, and {fault}" if fault else ""


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
