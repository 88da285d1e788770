"""Arrays by name that lie in a file without a name and are mapped when they are read: they take no memory meanwhile."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.models.thresholds import SMALLEST_SPILLED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.dtypes import Array

_NOTHING: Mapping[str, Array] = {}


class SpilledArrays(MutableMapping[str, "Array"]):
    """Copies of arrays; what is read is a read-only view of the file. A name that is given again takes new space.

    The file is deleted with the object; views stay valid as long as they are held.

    >>> kept = SpilledArrays({"w": np.ones(100_000)})
    >>> kept["w"] = kept["w"] + 1
    >>> float(kept["w"].sum())
    200000.0
    """

    def __init__(self, arrays: Mapping[str, Array] = _NOTHING) -> None:
        self._kept: dict[str, Array | tuple[int, np.dtype, tuple[int, ...]]] = {}  # type: ignore[type-arg]
        self._file: int | None = None
        self._end = 0
        self.update(arrays)

    def __setitem__(self, name: str, value: Array) -> None:
        if value.nbytes <= SMALLEST_SPILLED_BYTES:
            self._kept[name] = np.array(value)
            return
        if self._file is None:
            self._file = _file_without_name()
            weakref.finalize(self, os.close, self._file)
        content = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
        written = 0
        while written < len(content):
            written += os.pwrite(self._file, content[written:], self._end + written)
        self._kept[name] = self._end, value.dtype, value.shape
        self._end += -(-len(content) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY

    def __getitem__(self, name: str) -> Array:
        kept = self._kept[name]
        if isinstance(kept, np.ndarray) or self._file is None:
            return np.array(kept)
        offset, dtype, shape = kept
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        mapped = mmap.mmap(self._file, count, access=mmap.ACCESS_READ, offset=offset)
        return np.frombuffer(mapped, np.uint8).view(dtype).reshape(shape)

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __delitem__(self, name: str) -> None:
        del self._kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


class MadeArrays(Mapping[str, "Array"]):
    """Arrays that are made when they are read, each by its name, and not kept."""

    def __init__(self, makers: Mapping[str, Callable[[], Array]]) -> None:
        self._makers = makers

    def __getitem__(self, name: str) -> Array:
        return self._makers[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def _file_without_name() -> int:
    handle, path = tempfile.mkstemp(prefix="align-")
    Path(path).unlink()
    return handle
