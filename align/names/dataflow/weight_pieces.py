"""Parameters found again in what operators are given: whole, cut, transposed, or computed from nothing but parameters.

Frameworks copy views before an operator sees them, so a piece is known by its values, which are distinct, and not by
where it lies in memory.
"""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.parameters import Shape


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
        made = copy(self)
        made._flat, made._names = self._flat[: self._plain], self._names[: self._plain]  # noqa: SLF001
        made._strides, made._late, made._origins = self._strides[: self._plain], defaultdict(list), {}  # noqa: SLF001
        return made

    def add(self, names: Iterable[str], value: Array) -> None:
        """Know a tensor that was computed from these parameters."""
        number = len(self._flat)
        for place in self._keep(names, value).tolist():
            self._late[float(self._flat[number][place])].append((number, place))

    def _keep(self, names: Iterable[str], value: Array) -> NDArray[np.int64]:
        """Keep a tensor, and return the flat places at which a view of it is likely to begin."""
        own = np.ascontiguousarray(value).reshape(value.shape)
        self._flat.append(own.reshape(-1))
        self._names.append(tuple(dict.fromkeys(names)))
        strides = [stride // max(own.itemsize, 1) for stride in own.strides]
        own_strides = [stride for size, stride in zip(own.shape, strides, strict=True) if size > 1]
        self._strides.append(tuple(dict.fromkeys([*own_strides, *(2 * one for one in own_strides), 0])))
        return _starts(own.shape, strides) if own.dtype.kind == "f" and own.size else np.empty(0, np.int64)

    def origins(self, piece: Piece) -> dict[str, NDArray[np.int64]]:
        """Where in which parameter each element of a piece stands, -1 where in another; {} where it was computed."""
        if not piece.derived:
            return {piece.names[0]: piece.places()}
        if piece.number not in self._origins:
            self._origins[piece.number] = self._traced(piece.number)
        return {name: places[piece.places()] for name, places in self._origins[piece.number].items()}

    def _traced(self, number: int) -> dict[str, NDArray[np.int64]]:
        """Find the elements of a tensor that was only moved about again in the parameters that it consists of."""
        flat, found = self._flat[number], {}
        left = np.ones(len(flat), bool)
        for own in (one for one in range(self._plain) if self._names[one][0] in self._names[number]):
            known = self._flat[own]
            if known.dtype != flat.dtype or not known.size:
                continue
            order = np.argsort(known)
            at = np.searchsorted(known[order], flat).clip(0, known.size - 1)
            same = known[order][at] == flat
            found[self._names[own][0]] = np.where(same, order[at], -1)
            left &= ~same
        return {} if left.any() else found

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
