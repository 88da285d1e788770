"""What is known of a tensor that an operator is given: its rows, the parameters in it, or the code that makes it.

Two implementations lay tokens, pixels and heads out in other orders; a routed expert sees some rows of those that one
which computes all sees. So rows are compared as a set.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from copy import copy
from dataclasses import dataclass, replace
from math import prod
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from align.measure.tensor_statistics import relative_rms_distance
from align.names.thresholds import (
    AGREEING_DISTANCE,
    LEAST_RANGE,
    LEAST_SHARED_ROWS,
    MOST_SEEN_CALLS,
    MOST_SEEN_ROWS,
    MOST_SUMMED_PRODUCTS,
    REORDERED_SUM_DISTANCE,
    SEEN_PEAKS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from align.core.parameters import Array, Shape


@dataclass(frozen=True, slots=True)
class SeenRows:
    """Sorted marks of the rows, evenly chosen ones where there are too many; `count` rows and their `width`.

    `ends` are the first and the last row, `peaks` those of the smallest and of the largest marks. `earlier` has the
    counts and the ends of all calls where several were joined.
    """

    marks: NDArray[np.float64]
    count: int
    width: int
    ends: NDArray[np.float64]
    peaks: NDArray[np.float64]
    earlier: tuple[tuple[int, NDArray[np.float64]], ...] = ()

    @property
    def calls(self) -> tuple[tuple[int, NDArray[np.float64]], ...]:
        """The number of rows and the ends of each call that was seen, and of all calls as if they were one."""
        if not self.earlier:
            return ((self.count, self.ends),)
        both = np.stack([self.earlier[0][1][0], self.earlier[-1][1][-1]])
        return (*self.earlier, (self.count, both), (self.count, both[::-1]))

    def same(self, other: SeenRows) -> bool:
        """Tell whether two tensors have the same rows, or all of one's are among the other's."""
        if self.width != other.width or not (self.varies and other.varies):
            return False
        if self.count == other.count:
            return distance(self.marks, other.marks) < AGREEING_DISTANCE
        few, many = sorted((self, other), key=lambda one: one.count)
        if len(few.marks) < LEAST_SHARED_ROWS or many.count > len(many.marks):
            return False
        right = np.searchsorted(many.marks, few.marks).clip(1, len(many.marks) - 1)
        near = np.minimum(abs(many.marks[right] - few.marks), abs(many.marks[right - 1] - few.marks))
        return bool(np.sqrt(np.mean(near**2)) < AGREEING_DISTANCE * np.sqrt(np.mean(few.marks**2)))

    def overlaps(self, other: SeenRows) -> bool:
        """Tell whether most of the rows that are not zero are among the other's, up to rounding."""
        mine = self.marks[abs(self.marks) > LEAST_RANGE * abs(self.marks).max(initial=0.0)]
        if self.width != other.width or len(mine) < LEAST_SHARED_ROWS or other.count > len(other.marks):
            return False
        if self.count > len(self.marks) or len(other.marks) < 2:
            return False
        right = np.searchsorted(other.marks, mine).clip(1, len(other.marks) - 1)
        near = np.minimum(abs(other.marks[right] - mine), abs(other.marks[right - 1] - mine))
        shared = int((near < REORDERED_SUM_DISTANCE * abs(mine)).sum())
        return shared >= max(LEAST_SHARED_ROWS, len(mine) / 2)

    def moved(self, other: SeenRows) -> bool:
        """Tell whether the rows are others than in another run."""
        return self.count != other.count or distance(self.marks, other.marks) > AGREEING_DISTANCE

    def columns(self, other: SeenRows) -> NDArray[np.int64] | None:
        """Which feature of this one each feature of the other is; None where they stand alike, or nothing tells."""
        if self.count != other.count or self.peaks.shape != other.peaks.shape or self.width < 2:
            return None
        if self.alike(other):
            return None
        for order in _usual_orders(self.width):
            if distance(self.peaks[:, order], other.peaks) < AGREEING_DISTANCE:
                return order
        weights = np.random.default_rng(0).uniform(0.5, 1.5, len(self.peaks))
        mine, theirs = np.argsort(weights @ self.peaks, kind="stable"), np.argsort(weights @ other.peaks, kind="stable")
        found = np.empty(self.width, np.int64)
        found[theirs] = mine
        return found if distance(self.peaks[:, found], other.peaks) < AGREEING_DISTANCE else None

    @property
    def negated(self) -> SeenRows:
        """The rows of the negative tensor, as far as their features tell."""
        return replace(self, peaks=-self.peaks)

    def alike(self, other: SeenRows) -> bool:
        """Tell whether the features stand alike."""
        return self.peaks.shape == other.peaks.shape and distance(self.peaks, other.peaks) < AGREEING_DISTANCE

    def holds(self, other: SeenRows) -> int | None:
        """The feature of this one at which the features of the other, which are fewer, begin in every row."""
        if other.width >= self.width or not other.varies:
            return None
        for count, ends in self.calls:
            if count != other.count or ends.shape[:1] != other.ends.shape[:1]:
                continue
            margin = AGREEING_DISTANCE * max(float(abs(other.ends).max()), 1e-30)
            for at in np.flatnonzero(abs(ends[0] - other.ends[0, 0]) < margin):
                if _alike_from(ends, int(at), other.ends):
                    return int(at)
        return None

    def begins(self, other: SeenRows, at: int) -> bool:
        """Tell whether from this feature on the features are those of a call of the other, which are fewer."""
        return any(count == self.count and _alike_from(self.ends, at, ends) for count, ends in other.calls)

    @property
    def size(self) -> float:
        """How large the marks are: the same rows have the same size."""
        with np.errstate(all="ignore"):
            return float(np.sqrt(np.mean(self.marks**2))) if self.marks.size else 0.0

    @property
    def varies(self) -> bool:
        """Tell whether the rows are unlike."""
        return bool(self.marks.size) and float(np.ptp(self.marks)) > LEAST_RANGE * float(abs(self.marks).max())


def _alike_from(rows: NDArray[np.float64], at: int, few: NDArray[np.float64]) -> bool:
    own = rows[:, at : at + few.shape[1]]
    return own.shape == few.shape and bool(few.any()) and distance(few, own) < AGREEING_DISTANCE


def _usual_orders(width: int) -> Iterator[NDArray[np.int64]]:
    """Orders of features that two frameworks flatten two or three axes to: dead features tell none apart."""
    sizes = [size for size in range(2, width) if width % size == 0]
    for size in sizes:
        yield np.arange(width).reshape(size, -1).T.reshape(-1)
    for size in sizes:
        for other in (one for one in sizes if (width // size) % one == 0 and size * one < width):
            for turn in ((0, 2, 1), (1, 0, 2), (2, 1, 0)):
                yield np.arange(width).reshape(size, other, -1).transpose(turn).reshape(-1)


def distance(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """The relative RMS distance; infinite where nothing was kept."""
    return relative_rms_distance(one, two) if one.size else float("inf")


def see_rows(value: Array, axes: Sequence[int] = (-1,), *, signed: bool = True) -> SeenRows:
    """Keep what is known of a tensor whose features lie along these axes; of none, each element is a row.

    Unless `signed`, a tensor and its negative have the same marks: what scales may have the sign.
    """
    axes = sorted(axis % value.ndim for axis in axes) if value.ndim else []
    width = int(np.prod([value.shape[axis] for axis in axes], dtype=int))
    rest = [axis for axis in range(value.ndim) if axis not in axes]
    with np.errstate(all="ignore"):
        rows = value.transpose([*rest, *axes]).reshape(-1, width).astype(np.float64)
        marks = (rows * abs(rows) + 0.37 * rows**2).sum(1) if width > 1 else rows[:, 0]
        marks = marks if signed else abs(rows).sum(1)  # not of squares: a norm makes their sum one
    count = len(marks)
    order = np.argsort(marks, kind="stable")
    peaks = rows[[*order[:SEEN_PEAKS], *order[-SEEN_PEAKS:]]]
    marks = marks[order]
    if count > MOST_SEEN_ROWS:
        marks = marks[np.linspace(0, count - 1, MOST_SEEN_ROWS).astype(int)]
    return SeenRows(marks, count, width, rows[[0, -1]] if count else rows, peaks)


def joined_rows(parts: Sequence[SeenRows]) -> SeenRows:
    """Join what several calls were given."""
    if len(parts) == 1:
        return parts[0]
    marks, count = np.sort(np.concatenate([one.marks for one in parts])), sum(one.count for one in parts)
    peaks = parts[0].peaks if count == parts[0].count else parts[0].peaks[:0]
    calls = tuple((one.count, one.ends) for one in parts if one.count)[:MOST_SEEN_CALLS]
    return SeenRows(marks, count, parts[0].width, parts[0].ends, peaks, calls)


# Parameters found again in what operators are given: whole, cut, transposed, or computed from nothing but parameters.
#
# Frameworks copy views before an operator sees them, so a piece is known by its values, which are distinct, and not
# by where it lies in memory.


@dataclass(frozen=True, slots=True)
class Piece:
    """A view of a parameter: element (i, j, ...) is `offset + i * strides[0] + ...` of it in C order.

    `names` is the parameter, or all from which a tensor was computed that is `derived`; that tensor is then what is
    viewed, `number` of those that are known.
    """

    number: int
    names: tuple[str, ...]
    offset: int
    shape: Shape
    strides: tuple[int, ...]
    derived: bool = False

    def moved(self, order: Sequence[int]) -> Piece:
        """Return the view with its axes in another order."""
        axes = [(self.shape[axis], self.strides[axis]) for axis in order]
        return replace(self, shape=tuple(n for n, _ in axes), strides=tuple(s for _, s in axes))

    def taken(self, axis: int, index: int) -> Piece:
        """Return the view at an index of an axis, which goes."""
        order = [one for one in range(len(self.shape)) if one != axis]
        return replace(self.moved(order), offset=self.offset + index * self.strides[axis])

    @property
    def bare(self) -> Piece:
        """The view without axes of length 1, and of axes along which it repeats itself only the first."""
        return self.moved([axis for axis, n in enumerate(self.shape) if n != 1 and self.strides[axis]])

    def places(self) -> NDArray[np.int64]:
        """Where in the flat parameter each element stands."""
        found = np.full((), self.offset, np.int64)
        for size, stride in zip(self.shape, self.strides, strict=True):
            found = found[..., None] + np.arange(size) * stride
        return found


class PieceIndex:
    """Tensors that consist of parameters, to be found again by their values."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self._flat: list[Array] = []
        self._names: list[tuple[str, ...]] = []
        self._strides: list[tuple[int, ...]] = []
        self._late: dict[float, list[tuple[int, int]]] = defaultdict(list)
        self._origins: dict[int, dict[str, NDArray[np.int64]]] = {}
        self._terms: dict[int, list[Piece]] = {}
        self.batch = 0  # how many matrices the last product multiplied by at once
        self.states: set[str] = set()  # parameters that are multiplied as rows, as first states are
        starts = [self._keep((name,), value) for name, value in values.items()]
        numbers = np.repeat(np.arange(len(starts)), [len(own) for own in starts])
        places = np.concatenate([*starts, np.empty(0, np.int64)])
        firsts = np.concatenate([*(self._flat[at][own] for at, own in enumerate(starts)), np.empty(0)])
        order = np.argsort(firsts, kind="stable")
        self._firsts, self._begins = firsts[order], (numbers[order], places[order])
        self._plain = len(values)

    def anew(self) -> PieceIndex:
        """The same parameters, and nothing computed from them."""
        index = copy(self)
        index._flat, index._names = self._flat[: self._plain], self._names[: self._plain]  # noqa: SLF001
        index._strides, index._late, index._origins = self._strides[: self._plain], defaultdict(list), {}  # noqa: SLF001
        index._terms = {}  # noqa: SLF001
        return index

    def add(self, names: Iterable[str], value: Array, pieces: Sequence[Piece] = ()) -> None:
        """Know a tensor that was computed from these parameters, from these pieces of them alone."""
        number = len(self._flat)
        terms = [self.terms(piece) for piece in self._summed(pieces, value)]
        if terms and all(terms):
            self._terms[number] = [piece for own in terms for piece in own]
        for place in self._keep(names, value).tolist():
            self._late[float(self._flat[number][place])].append((number, place))

    def _keep(self, names: Iterable[str], value: Array) -> NDArray[np.int64]:
        """Keep a tensor, and return the flat places at which a view of it is likely to begin."""
        contiguous = np.ascontiguousarray(value).reshape(value.shape)
        self._flat.append(contiguous.reshape(-1))
        self._names.append(tuple(dict.fromkeys(names)))
        strides = [stride // max(contiguous.itemsize, 1) for stride in contiguous.strides]
        own_strides = [stride for size, stride in zip(contiguous.shape, strides, strict=True) if size > 1]
        self._strides.append(tuple(dict.fromkeys([*own_strides, *(2 * one for one in own_strides), 0])))
        return (
            _starts(contiguous.shape, strides)
            if contiguous.dtype.kind == "f" and contiguous.size
            else np.empty(0, np.int64)
        )

    def _summed(self, pieces: Sequence[Piece], value: Array) -> list[Piece]:
        """The pieces whose sum a tensor is: two of its shape, or those along an axis of one; none for anything else."""
        if len(pieces) == 2 and all(piece.shape == value.shape for piece in pieces):
            return list(pieces) if np.array_equal(self.value(pieces[0]) + self.value(pieces[1]), value) else []
        if len(pieces) != 1:
            return []
        piece = pieces[0]
        for axis in range(len(piece.shape)):
            parts = [piece.taken(axis, at) for at in range(min(piece.shape[axis], MOST_SUMMED_PRODUCTS + 1))]
            if 1 < len(parts) <= MOST_SUMMED_PRODUCTS and parts[0].bare.shape == _bare(value.shape):
                close = np.allclose(self.value(piece).sum(axis).reshape(value.shape), value, 1e-5, 1e-6)
                return parts if close else []
        return []

    def terms(self, piece: Piece) -> list[Piece]:
        """The pieces of parameters whose sum a piece is: itself alone where it is no sum; [] where nothing tells."""
        if not piece.derived:
            return [piece]
        terms = self._terms.get(piece.number, [])
        return [one.bare for one in terms] if terms and terms[0].bare.shape == piece.bare.shape else []

    def origins(self, piece: Piece) -> dict[str, NDArray[np.int64]]:
        """Where in which parameter each element of a piece stands, -1 where in another; {} where it was computed."""
        if not piece.derived:
            return {piece.names[0]: piece.places()}
        if piece.number not in self._origins:
            self._origins[piece.number] = self._traced(piece.number)
        return {name: places[piece.places()] for name, places in self._origins[piece.number].items()}

    def _traced(self, number: int) -> dict[str, NDArray[np.int64]]:
        """Find the elements of a tensor that was only moved about again in the parameters that it consists of."""
        flat, orders = self._flat[number], {}
        left = np.ones(len(flat), bool)
        for other in (one for one in range(self._plain) if self._names[one][0] in self._names[number]):
            known = self._flat[other]
            if known.dtype != flat.dtype or not known.size:
                continue
            order = np.argsort(known)
            at = np.searchsorted(known[order], flat).clip(0, known.size - 1)
            same = known[order][at] == flat
            orders[self._names[other][0]] = np.where(same, order[at], -1)
            left &= ~same
        return {} if left.any() else orders

    def find(self, value: Array) -> Piece | None:
        """Return the piece that a tensor is, None if it is none."""
        if value.dtype.kind != "f" or not value.size:
            return None
        first = float(value[(0,) * value.ndim])
        low, high = (int(np.searchsorted(self._firsts, first, side)) for side in ("left", "right"))
        known = [(int(own[0]), int(own[1])) for own in zip(*(one[low:high] for one in self._begins), strict=True)]
        known += self._late.get(first, ())
        return next((piece for one in known if (piece := self._viewed(*one, value)) is not None), None)

    def value(self, piece: Piece) -> Array:
        """Return the view."""
        flat = self._flat[piece.number]
        strides = tuple(stride * flat.itemsize for stride in piece.strides)
        return as_strided(flat[piece.offset :], piece.shape, strides, writeable=False)

    def _viewed(self, number: int, offset: int, value: Array) -> Piece | None:
        flat, strides = self._flat[number], []
        if flat.dtype != value.dtype:
            return None
        for axis, size in enumerate(value.shape):
            if size == 1:
                strides.append(0)
                continue
            one, last = ((0,) * axis + (at,) + (0,) * (value.ndim - axis - 1) for at in (1, size - 1))
            wanted = value[one], value[last]
            fits = (
                stride
                for stride in self._strides[number]
                if offset + stride * (size - 1) < flat.size
                and flat[offset + stride] == wanted[0]
                and flat[offset + stride * (size - 1)] == wanted[1]
            )
            stride = next(fits, None)
            if stride is None:
                return None
            strides.append(stride)
        reach = offset + sum(s * (n - 1) for s, n in zip(strides, value.shape, strict=True))
        piece = Piece(number, self._names[number], offset, value.shape, tuple(strides), number >= self._plain)
        return piece if reach < flat.size and np.array_equal(self.value(piece), value) else None


def _bare(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


def _starts(shape: Shape, strides: Sequence[int]) -> NDArray[np.int64]:
    """Flat places at which a view is likely to begin: along every axis alone, of a stack of matrices in every row."""
    if not shape:
        return np.zeros(1, np.int64)
    grid = np.arange(shape[0]) * strides[0]
    if len(shape) == 3:
        grid = (grid[:, None] + np.arange(shape[1]) * strides[1]).reshape(-1)
    sides = [np.arange(1, size) * stride for size, stride in zip(shape[1:], strides[1:], strict=True)]
    found: NDArray[np.int64] = np.unique(np.concatenate([grid, *sides])).astype(np.int64)
    return found


# What is known of a tensor in code that is followed: where it comes from, what it holds whole; plain attributes.


NUMBERS = (int, float, bool, str, type(None))
FRAMEWORKS = ("torch.", "mindspore.")  # with what stands behind the names of their modules


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor by the nodes that it comes from; `is_parameter` where nothing was computed with it yet.

    `whole` is the node whose features it holds whole, with the axis, from the end, of which its first pieces are
    slices; `ndim` is how many axes it has if that is known. `is_size` says that it is a size of another.
    """

    nodes: frozenset[str] = frozenset()
    is_parameter: bool = False
    is_size: bool = False
    ndim: int | None = None
    whole: tuple[str, int, int] | None = None


NOTHING = Tensor()


def tensor(value: Any) -> Tensor:
    """All that a value holds as one tensor."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return Tensor(frozenset().union(*(tensor(one).nodes for one in value)))
    return NOTHING


def tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors in values, those of lists one by one."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)


def reshaped(whole: tuple[str, int, int] | None, sizes: Sequence[Any]) -> tuple[str, int, int] | None:
    """The axis of the first pieces of a last axis that became several: the first that is no size of before."""
    if whole is None or whole[1] != -1:
        return None
    node, _, count = whole
    known = [one if isinstance(one, int) and one > 0 else 0 for one in sizes]
    filling = [axis for axis in range(1, len(known)) if all(known[-axis:]) and prod(known[-axis:]) == count]
    first = next((place for place, one in enumerate(sizes) if not (isinstance(one, Tensor) and one.is_size)), None)
    axis = filling[0] if filling else len(sizes) - first if first else 0
    return (node, -axis, count) if axis else None


def moved(tensor: Tensor, axes: Sequence[int]) -> tuple[str, int, int] | None:
    """Where the axis of the first pieces stands after axes were exchanged, or all put in an order."""
    if tensor.whole is None or tensor.ndim is None:
        return None
    node, axis, count = tensor.whole
    order = [one % tensor.ndim for one in axes]
    if len(order) == 2 != tensor.ndim:
        first, second = order
        order = [{first: second, second: first}.get(one, one) for one in range(tensor.ndim)]
    place = axis % tensor.ndim
    return (node, order.index(place) - tensor.ndim, count) if sorted(order) == list(range(tensor.ndim)) else None


def is_axis(whole: Tensor, axis: int) -> bool:
    """Tell whether an axis, counted from either end, is that of a tensor's first pieces."""
    place = whole.whole[1] if whole.whole else 0
    return axis == place or (whole.ndim is not None and axis == place + whole.ndim)


def merged(values: Sequence[Any]) -> Any:
    """One value for what may be any of several: equal ones stay, lists of one length are merged item by item."""
    first = values[0] if values else NOTHING
    if all(value is first for value in values):
        return first
    if isinstance(first, (list, tuple)) and all(
        isinstance(value, (list, tuple)) and len(value) == len(first) for value in values
    ):
        return [merged(items) for items in zip(*values, strict=True)]
    if all(isinstance(value, NUMBERS) for value in values) and all(value == first for value in values):
        return first
    return Tensor(frozenset().union(*(tensor(value).nodes for value in values)))


def plain_attribute(owner: Any, name: str) -> Any:
    """An attribute of an object, for which no code of the user's runs; NOTHING for a property of the user's own."""
    value = inspect.getattr_static(owner, name, NOTHING)
    if isinstance(owner, type):
        return value
    if isinstance(owner, ModuleType):
        return getattr(owner, name, NOTHING)
    if isinstance(value, FunctionType):
        return MethodType(value, owner)
    if isinstance(value, property):
        module = str(getattr(value.fget, "__module__", ""))
        return getattr(owner, name, NOTHING) if module.startswith(FRAMEWORKS) else NOTHING
    return getattr(owner, name, NOTHING) if hasattr(type(value), "__get__") else value
