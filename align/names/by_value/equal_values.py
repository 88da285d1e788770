"""Which tensors of two sides hold one value: two files of the same weights do, whatever they call them.

A value pairs two names only if it stands once on each side among tensors of its shape, either way round, and is no
constant: zeros and ones are what every fresh layer holds. A few elements of each tensor are read; whole ones only where
these say something new.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.extents import byte_blocks
from align.core.dtypes import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from align.core.checkpoints import StoredTensor
    from align.core.dtypes import Array
    from align.core.parameters import Shape

    Values = Mapping[str, StoredTensor]

_POINTS = 8  # read along each axis of a matrix, and their square of any other tensor


@dataclass(frozen=True, slots=True)
class EqualValue:
    """Two names of one value; `turned` says that the target holds the matrix transposed."""

    source: str
    target: str
    turned: bool = False


def pair_equal_values(source: Values, target: Values, known: Set[EqualValue] = frozenset()) -> list[EqualValue]:
    """Return the pairs of one value; those that are `known` are not read whole where no other has their sample.

    Floats of two dtypes are compared in the narrower one.
    """
    found = []
    for mine, theirs in _alike(source, target):
        found += [EqualValue(a.tensor.name, b.tensor.name, a.turned) for a, b in _equal(mine, theirs, known)]
    return found


@dataclass(frozen=True, slots=True)
class _Reading:
    """A tensor as it stands, or turned; axes of length 1 count for nothing."""

    tensor: StoredTensor
    dtype: str
    turned: bool = False

    def sample(self, value: Array) -> object:
        """The shape and some elements of the tensor's value, None if these are all equal."""
        value = value.T if self.turned else value
        most = _POINTS if value.ndim == 2 else _POINTS**2
        table = value if value.ndim == 2 else value.reshape(-1)
        some = self._narrow(table[np.ix_(*(_spread(length, most) for length in table.shape))])
        return None if (some == some.reshape(-1)[0]).all() else (value.shape, some.tobytes())

    def digest(self) -> bytes:
        """A sum over all bytes."""
        digest = hashlib.blake2b()
        if self.turned or self.tensor.dtype != self.dtype:
            digest.update(self._narrow(self._value()).tobytes())
        else:
            for block in byte_blocks(self.tensor):
                digest.update(block)
        return digest.digest()

    def _value(self) -> Array:
        value = _loaded(self.tensor)
        return value.T if self.turned else value

    def _narrow(self, value: Array) -> Array:
        with np.errstate(all="ignore"):
            return value.astype(numpy_dtype(self.dtype))


def _equal(
    mine: Sequence[_Reading], theirs: Sequence[_Reading], known: Set[EqualValue]
) -> Iterator[tuple[_Reading, _Reading]]:
    """Yield those of some readings with one sample that are the only ones of their value on either side."""
    alone = len(mine) == len(theirs) == 1
    if alone and EqualValue(mine[0].tensor.name, theirs[0].tensor.name, mine[0].turned) in known:
        yield mine[0], theirs[0]
        return
    left, right = _by_digest(mine), _by_digest(theirs)
    for digest, a in left.items():
        b = right.get(digest)
        if a is not None and b is not None:
            yield a, b


def _by_digest(readings: Iterable[_Reading]) -> dict[bytes, _Reading | None]:
    """Digest of the value -> its reading, None if several have it."""
    found: dict[bytes, _Reading | None] = {}
    for reading in readings:
        digest = reading.digest()
        found[digest] = None if digest in found else reading
    return found


def _alike(source: Values, target: Values) -> Iterator[tuple[list[_Reading], list[_Reading]]]:
    """Yield the readings of both sides that have one sample."""
    targets = _by_shape(target)
    for shape, lefts in _by_shape(source).items():
        if rights := targets.get(shape):
            dtype = min((tensor.dtype for tensor in (*lefts, *rights)), key=lambda name: numpy_dtype(name).itemsize)
            ways = (False, True) if len(_plain(lefts[0])) == 2 else (False,)
            mine, theirs = _by_sample(lefts, dtype, ways), _by_sample(rights, dtype, (False,))
            yield from ((readings, theirs[sample]) for sample, readings in mine.items() if sample in theirs)


def _by_shape(side: Values) -> dict[object, list[StoredTensor]]:
    """Tensors by what their counterparts have in common with them: a shape either way round, and a kind of number."""
    found: dict[object, list[StoredTensor]] = defaultdict(list)
    for tensor in side.values():
        plain = _plain(tensor)
        whole = numpy_dtype(tensor.dtype).kind in "iub"
        if prod(plain) > 1:
            key = tuple(sorted(plain)) if len(plain) == 2 else plain
            found[key, tensor.dtype if whole else "float"].append(tensor)
    return found


def _by_sample(tensors: Iterable[StoredTensor], dtype: str, ways: Sequence[bool]) -> dict[object, list[_Reading]]:
    """Readings of tensors, turned or not, by their sample, each once: a symmetric matrix stands as it is."""
    found: dict[object, dict[str, _Reading]] = defaultdict(dict)
    for tensor in tensors:
        value = _loaded(tensor)
        for reading in (_Reading(tensor, dtype, turned) for turned in ways):
            if sample := reading.sample(value):
                found[sample].setdefault(tensor.name, reading)
    return {sample: list(named.values()) for sample, named in found.items()}


def _loaded(tensor: StoredTensor) -> Array:
    return tensor.load().reshape(_plain(tensor))


def _plain(tensor: StoredTensor) -> Shape:
    return tuple(length for length in tensor.shape if length != 1)


@cache
def _spread(length: int, most: int) -> Array:
    """At most so many indices, from the first to the last."""
    return np.linspace(0, length - 1, min(length, most)).astype(np.int64)
