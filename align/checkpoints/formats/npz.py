"""NumPy `.npz`: a zip of `.npy` arrays, none of them a pickle.

An array's header is parsed here and its bytes are mapped straight from the archive; an array of objects, which NumPy
would unpickle, is refused. Written archives are plain (stored) and bear no date: equal tensors give equal files.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from align.checkpoints.extents import byte_blocks, mapped
from align.checkpoints.sound_records import (
    DTYPES,
    NpyHeader,
    Record,
    ZipWriter,
    first_record_name,
    read_npy_header,
    read_record,
    record_checksums,
    record_pieces,
    zip_names,
    zip_records,
)
from align.checkpoints.thresholds import LONGEST_RECORD_NAME
from align.core.parameters import Checkpoint, StoredTensor, dtype_name, numpy_dtype
from align.core.protocols import collector_paused
from align.core.thresholds import BLOCK_BYTES
from align.errors import MissingEntryError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import Array
    from align.core.protocols import FrameworkName

SUFFIX = ".npy"
NPY: Any = np.lib.format  # it carries no type hints


@dataclass(frozen=True, slots=True)
class NpzFormat:
    """Arrays by name, as `numpy.savez` writes them."""

    name: str = "npz"
    summary: str = "NumPy .npz, read and written; bfloat16 and float8 have no place in it"
    requires: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".npz",)
    framework: FrameworkName | None = None

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Tell by the records' names: all of them end in `.npy`."""
        return first_record_name(head).endswith(SUFFIX) and all(name.endswith(SUFFIX) for name in zip_names(path))

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Read the header of every array."""
        if key is not None:
            raise MissingEntryError(path, key, ())
        tensors: dict[str, StoredTensor] = {}
        other: dict[str, str] = {}
        records = zip_records(path)
        with collector_paused(), path.open("rb", buffering=0) as stream:
            for record in records.values():
                name = record.name.removesuffix(SUFFIX)
                start = partial(read_record, record, stream=stream)
                header = read_npy_header(path, record.name, record.size, start)
                if header.dtype.kind in "SU":
                    other[name] = sentence("entry_note.text_array", shape=str(header.shape))
                else:
                    tensors[name] = _tensor(name, record, header)
        return Checkpoint(path, self.name, tensors, {}, other, checksums=record_checksums(records))

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:  # noqa: ARG002
        """Name the tensors of a dtype that NumPy does not know, and names that a zip file cannot hold."""
        unknown = [say("npz_file.cannot_hold", name=t.name, dtype=t.dtype) for t in tensors if t.dtype not in DTYPES]
        return unknown + [say("npz_file.unsafe_name", name=t.name) for t in tensors if not _is_safe(t.name)]

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:  # noqa: ARG002
        """Write one stored record a tensor."""
        archive = ZipWriter(stream)
        for tensor in tensors:
            header = _header_bytes(tensor)
            archive.add_blocks(tensor.name + SUFFIX, len(header) + tensor.nbytes, chain((header,), byte_blocks(tensor)))
        archive.finish()


PLUGIN = NpzFormat()


def _tensor(name: str, record: Record, header: NpyHeader) -> StoredTensor:
    dtype, shape = dtype_name(header.dtype), header.shape
    rows_first = not header.fortran or len(shape) <= 1
    little = header.dtype.newbyteorder("<") == header.dtype
    if record.compressed and rows_first and little:
        return StoredTensor(name, shape, dtype, lambda: _load(record, header), blocks=partial(_blocks, record, header))
    if record.compressed or not little:
        return StoredTensor(name, shape, dtype, lambda: _load(record, header))
    whole = record.extent
    extent = replace(whole, offset=whole.offset + header.length, nbytes=record.size - header.length)
    if not rows_first:
        columns = mapped(extent, shape[::-1], dtype)
        return StoredTensor(name, shape, dtype, lambda: columns().T)
    return StoredTensor(name, shape, dtype, mapped(extent, shape, dtype), extent)


def _load(record: Record, header: NpyHeader) -> Array:
    """Read an array whose bytes are compressed or big-endian to where they stay."""
    raw, done = np.empty(record.size - header.length, np.uint8), 0
    for block in _blocks(record, header, BLOCK_BYTES):
        raw[done : done + len(block)] = block
        done += len(block)
    value: Array = np.ndarray(header.shape, header.dtype, raw.data, order="F" if header.fortran else "C")
    little = numpy_dtype(dtype_name(header.dtype))
    return value if header.dtype == little else value.byteswap(inplace=True).view(little)


def _blocks(record: Record, header: NpyHeader, block: int) -> Iterator[memoryview]:
    """Unpack an array in blocks, so that one which is much smaller in the file than in memory needs no memory."""
    waiting = bytearray()
    skip = header.length
    for piece in record_pieces(record):
        waiting += piece[skip:]
        skip = max(skip - len(piece), 0)
        while len(waiting) >= block:
            yield memoryview(bytes(waiting[:block]))
            del waiting[:block]
    if waiting:
        yield memoryview(bytes(waiting))


def _header_bytes(tensor: StoredTensor) -> bytes:
    stream = io.BytesIO()
    descr = NPY.dtype_to_descr(numpy_dtype(tensor.dtype))
    NPY.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": tensor.shape})
    return stream.getvalue()


def _is_safe(name: str) -> bool:
    return (
        0 < len(name.encode("utf-8")) < LONGEST_RECORD_NAME
        and not name.startswith("/")
        and ".." not in name.split("/")
        and not set(name) & {"\\", "\0"}
    )
