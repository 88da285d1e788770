"""Transforms between a tensor and its pieces: cut out, put in place, added up, cropped, padded, blocks reordered.

A fused tensor is written as one pairing for each piece, each with its place in the whole, so that every pairing is
undone by itself: the inverse of a slice is a part of the source's shape, and the reverse. So are the terms of a sum,
whose inverse is a share of it. Spans that no piece makes, as the bias of a layer that has none, are stated as `zeros`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.align_sequences import grouped
from align.core.transforms import Chain, OneStep, Transform, chained
from align.words.catalogue import listed, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.parameters import Array, Shape

Region = tuple[slice, ...]
Span = tuple[int, int]
Spans = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Slice(OneStep):
    """The piece from `start` to `stop` along an axis; `origin` is the source's shape, where a map tells it.

    The source is zero in the spans `zeros` of the axis, which go nowhere.
    """

    axis: int
    start: int
    stop: int
    origin: Shape | None = field(default=None, compare=False)
    zeros: Spans = ()
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
        return Part(self.axis, self.start, self.stop, origin, self.zeros)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        origin = {} if self.origin is None else {"from": list(self.origin)}
        return {
            "op": self.op,
            "axis": self.axis,
            "start": self.start,
            "stop": self.stop,
            **origin,
            **_zeros_table(self),
        }


@dataclass(frozen=True, slots=True)
class Part(OneStep):
    """The source is the piece from `start` to `stop` of a target of this shape, whose rest other sources make.

    It is the last step of a chain, or before another part, which says where this whole lies in a larger one. No source
    makes the spans `zeros` of the axis, where zeros stand.
    """

    axis: int
    start: int
    stop: int
    shape: Shape
    zeros: Spans = ()
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
        return Slice(self.axis, self.start, self.stop, self.shape, self.zeros)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        span = {"axis": self.axis, "start": self.start, "stop": self.stop}
        return {"op": self.op, **span, "shape": list(self.shape), **_zeros_table(self)}


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
class Sum(OneStep):
    """The source is one of `of` terms whose sum the target is, or its place in it: what comes behind is done to that.

    The way back gives the first source all, and the others zeros. In a map for gradients `each` term has what the sum
    has, either way.
    """

    term: int
    of: int
    each: bool = field(default=False, compare=False)
    op = "sum"

    def __post_init__(self) -> None:
        _check_term(self)

    def apply(self, value: Array) -> Array:
        """Return the term, which `meant_value` adds the others to."""
        return value

    def output_shape(self, shape: Shape) -> Shape:
        """The same shape."""
        return shape

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """The share of the sum that the source gets back."""
        return Share(self.term, self.of, self.each)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return {"op": self.op, "term": self.term, "of": self.of}


@dataclass(frozen=True, slots=True)
class Share(OneStep):
    """The source is the sum of `of` targets, and this is one of them: the first gets all, the others zeros."""

    term: int
    of: int
    each: bool = field(default=False, compare=False)
    op = "share"

    def __post_init__(self) -> None:
        _check_term(self)

    def apply(self, value: Array) -> Array:
        """Return the value for the first target, zeros for the others."""
        return value if self.each or not self.term else np.zeros_like(value)

    def output_shape(self, shape: Shape) -> Shape:
        """The same shape."""
        return shape

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """The term of the sum that the target is."""
        return Sum(self.term, self.of, self.each)

    def as_table(self) -> dict[str, Any]:
        """Return the table form."""
        return {"op": self.op, "term": self.term, "of": self.of}


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
    parts = parts_of(transform)
    before = transform.steps[: len(transform.steps) - len(parts)]
    if not parts:
        return transform, None
    return chained(*before), parts[0] if len(parts) == 1 else NestedPart(parts)


def apart_from_cut(transform: Transform) -> tuple[Transform, Transform]:
    """What takes a piece out of the source, and what is done to it."""
    cuts = cuts_of(transform)
    return chained(*cuts), chained(*transform.steps[len(cuts) :])


def parts_of(transform: Transform) -> tuple[Part, ...]:
    """The parts that a transform ends in, the innermost first."""
    steps = takewhile(lambda step: isinstance(step, Part), reversed(transform.steps))
    return tuple(step for step in steps if isinstance(step, Part))[::-1]


def cuts_of(transform: Transform) -> tuple[Slice, ...]:
    """The slices that a transform begins with."""
    steps = takewhile(lambda step: isinstance(step, Slice), transform.steps)
    return tuple(step for step in steps if isinstance(step, Slice))


def zero_parts(transform: Transform) -> list[Place]:
    """The places in the target that are zeros, since no source makes them."""
    found = (tuple(one[::-1]) for one in _zero_steps(parts_of(transform)[::-1]))
    return [parts[0] if len(parts) == 1 else NestedPart(parts) for parts in found]


def zero_cuts(transform: Transform) -> list[Transform]:
    """What takes the rows out of the source that are zeros, since they go nowhere."""
    return [chained(*one) for one in _zero_steps(cuts_of(transform))]


def _zero_steps(steps: Sequence[Any]) -> Iterator[list[Any]]:
    """The way to each span of zeros of slices or of parts, the outermost step first."""
    before: list[Any] = []
    for step in steps:
        for start, stop in step.zeros:
            yield [*before, replace(step, start=start, stop=stop, zeros=())]
        before.append(replace(step, zeros=()))


def is_cut(transform: Transform) -> bool:
    """Tell whether the target is made of a piece of the source, or is a share of it."""
    return any(isinstance(step, Slice) for step in transform.steps[:1]) or isinstance(sum_step(transform), Share)


def filled_up(transform: Transform) -> bool:
    """Tell whether something of the target is a stated value, and nothing of the source."""
    return any(isinstance(step, Pad) for step in transform.steps)


def joins(transform: Transform) -> bool:
    """Tell whether several such transforms may make one target: as parts of it, or as terms of a sum."""
    return bool(parts_of(transform)) or isinstance(sum_step(transform), Sum)


def sum_step(transform: Transform) -> Sum | Share | None:
    """The step that says which term of a sum the source or the target is, if one does."""
    return next((step for step in transform.steps if isinstance(step, (Sum, Share))), None)


def around_sum(transform: Transform) -> tuple[Transform, Transform]:
    """What is done to a term, and what to the sum, without the parts at the end; of no sum all is done to the term."""
    steps = apart_from_whole(transform)[0].steps
    at = next((at for at, step in enumerate(steps) if isinstance(step, (Sum, Share))), len(steps))
    return chained(*steps[:at]), chained(*steps[at + 1 :])


def join_fault(transforms: Sequence[Transform]) -> str:
    """What keeps these from making one target together, "" if they are the parts of one whole and tile it.

    The terms of a sum make one part, or the whole.
    """
    places = grouped((parts_of(transform), transform) for transform in transforms)
    if fault := next(filter(None, map(_sum_fault, places.values())), ""):
        return fault
    if len(places) == 1 and isinstance(sum_step(transforms[0]), Sum) and not all(places):
        return ""
    parts = [piece for piece, ones in places.items() for _ in ones[: 1 if _is_sum(ones) else None]]
    if not all(parts):
        return say("cut_fault.no_parts")
    if len({(piece[-1].axis, piece[-1].shape) for piece in parts}) > 1:
        return say("cut_fault.other_wholes")
    return _nested_fault([piece[::-1] for piece in parts], parts[0][-1].shape)


def _is_sum(transforms: Sequence[Transform]) -> bool:
    return all(isinstance(sum_step(one), Sum) for one in transforms)


def _sum_fault(transforms: Sequence[Transform], kind: type[Sum | Share] = Sum) -> str:
    """What keeps these, which are at one place, from being the terms of one sum; "" if none of them is one."""
    steps = [step for transform in transforms if isinstance(step := sum_step(transform), kind)]
    if not steps:
        return ""
    terms, of = [step.term for step in steps], max(step.of for step in steps)
    if len(steps) < len(transforms) or sorted(terms) != [*range(of)] or len({step.of for step in steps}) > 1:
        return say("cut_fault.terms", of=of, last=of - 1, terms=terms)
    is_alike = kind is Share or len({around_sum(transform)[1] for transform in transforms}) == 1
    return "" if is_alike else say("cut_fault.other_forms")


def overlap(transforms: Sequence[Transform]) -> bool:
    """Tell whether these, which make one target, make anything in it twice: parts that lie apart and terms do not."""
    places = grouped((parts_of(transform), transform) for transform in transforms)
    for ones in places.values():
        steps = [sum_step(one) for one in ones]
        if len(ones) > 1 and not (_is_sum(ones) and len(set(steps)) == len(ones)):
            return True
    parts = [*places]
    if len(parts) == 1:
        return False
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
    spans += {span for place in places for span in place[0].zeros}
    if fault := tiling_fault(spans, shape[axis]):
        return fault
    for (start, stop), inner in within.items():
        if all(inner):
            if len({one[0].axis for one in inner}) > 1:
                return say("cut_fault.different_axes", start=start, stop=stop)
            if fault := _nested_fault(inner, _resized(shape, axis, stop - start)):
                return say("cut_fault.within", start=start, stop=stop, fault=fault)
    return ""


def cut_fault(transforms: Sequence[Transform], shape: Shape) -> str:
    """How a source of this shape is cut so that a value of it is used never, or twice; "" if it is not."""
    places = grouped((cuts_of(transform), transform) for transform in transforms)
    if fault := next(filter(None, (_sum_fault(ones, Share) for ones in places.values())), ""):
        return fault
    shared = {piece for piece, ones in places.items() if isinstance(sum_step(ones[0]), Share)}
    cuts = [piece for piece, ones in places.items() if piece for _ in ones[: 1 if piece in shared else None]]
    if not cuts or not all(places):
        return ""
    if len(axes := {piece[0].axis for piece in cuts}) > 1:
        return say("cut_fault.axes", axes=sorted(axes))
    fault = _nested_fault(cuts, shape)
    return say("cut_fault.axis", axis=axes.pop(), fault=fault) if fault else ""


def tiling_fault(spans: Sequence[Span], size: int) -> str:
    """All that keeps pieces from covering an axis of this size once each, "" if nothing does."""
    faults, end = [], 0
    for start, stop in [*sorted(spans), (size, size)]:
        if start > end:
            faults.append(say("cut_fault.not_covered", start=end, stop=start))
        elif start < end:
            faults.append(
                say("cut_fault.twice", start=start, stop=min(end, stop))
                if start < size
                else say("cut_fault.beyond", start=size, stop=end)
            )
        end = max(end, stop)
    return listed(faults) if faults else ""


def _check_term(step: Sum | Share) -> None:
    if step.of < 2 or not 0 <= step.term < step.of:
        raise ValueError(say("cut_fault.no_term", term=step.term, of=step.of))


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


def _zeros_table(step: Slice | Part) -> dict[str, Any]:
    return {"zeros": [list(span) for span in step.zeros]} if step.zeros else {}


def _sized_table(step: Crop | Pad) -> dict[str, Any]:
    origin = {} if step.origin is None else {"from": step.origin}
    return {"op": step.op, "axis": step.axis, "size": step.size, "value": step.value, **origin}


def summed(values: Sequence[Array]) -> Array:
    """The sum; where all others are zero the first one's bits."""
    total = values[0]
    for value in values[1:]:
        total = np.where(value == 0, total, total + value)
    return total
