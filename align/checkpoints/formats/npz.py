"""NumPy `.npz`: a zip of `.npy` arrays, none of them a pickle.

An array's header is parsed here and its bytes are mapped straight from the archive; an array of objects, which NumPy
would unpickle, is refused. Written archives are plain (stored) and bear no date: equal tensors give equal files.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from align.checkpoints.extents import byte_blocks, mapped
from align.checkpoints.format_parts.claims import sound_shape
from align.checkpoints.format_parts.zip_records import (
    Record,
    ZipWriter,
    first_record_name,
    read_record,
    record_pieces,
    zip_records,
)
from align.checkpoints.thresholds import LONGEST_NPY_HEADER_BYTES, LONGEST_RECORD_NAME, USUAL_NPY_HEADER_BYTES
from align.core.checkpoints import Checkpoint, Extent, StoredTensor
from align.core.dtypes import dtype_name, numpy_dtype
from align.core.thresholds import BLOCK_BYTES
from align.errors import MissingEntryError, NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.parameters import Shape
    from align.core.protocols import FrameworkName

SUFFIX = ".npy"
NPY: Any = np.lib.format  # it carries no type hints
DTYPES = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64", "complex64", "complex128",
}  # fmt: skip
MAGIC = b"\x93NUMPY"
LENGTH_BYTES = {b"\x01": 2, b"\x02": 4, b"\x03": 4}
HEADER = re.compile(
    rb"\{'descr': '(?P<descr>[<>|=]?[a-zA-Z?][0-9]{0,7})', 'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>[\d ,]{0,1000})\),? ?\}\s*"
)
STRUCTURED = re.compile(rb"\{'descr': \[")


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
        return first_record_name(head).endswith(SUFFIX) and all(name.endswith(SUFFIX) for name in zip_records(path))

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Read the header of every array."""
        if key is not None:
            raise MissingEntryError(path, key, ())
        tensors: dict[str, StoredTensor] = {}
        other: dict[str, str] = {}
        for record in zip_records(path).values():
            name = record.name.removesuffix(SUFFIX)
            header = _read_header(path, record)
            if header.dtype.kind in "SU":
                other[name] = sentence("entry_note.text_array", shape=str(header.shape))
            else:
                tensors[name] = _tensor(path, name, record, header)
        return Checkpoint(path, self.name, tensors, {}, other)

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


@dataclass(frozen=True, slots=True)
class _Header:
    shape: Shape
    dtype: np.dtype[Any]
    fortran: bool
    length: int


def _read_header(path: Path, record: Record) -> _Header:
    """Parse an array's header by pattern: NumPy's own parser evaluates and tokenizes it."""
    head = read_record(record, USUAL_NPY_HEADER_BYTES)
    width = LENGTH_BYTES.get(head[len(MAGIC) : len(MAGIC) + 1])
    start = len(MAGIC) + 2 + (width or 0)
    length = int.from_bytes(head[len(MAGIC) + 2 : start], "little")
    if len(head) < start + length <= LONGEST_NPY_HEADER_BYTES:
        head = read_record(record, start + length)
    found = HEADER.fullmatch(head[start : start + length])
    if head.startswith(MAGIC) and STRUCTURED.match(head, start):
        raise UnsupportedCheckpointError(path, *texts("npz_file.structured", name=record.name))
    if not head.startswith(MAGIC) or width is None or len(head) < start + length or found is None:
        raise NotACheckpointError(path, say("npz_file.no_header", name=record.name))
    try:
        dtype = np.dtype(found["descr"].decode("ascii"))
        shape = tuple(int(n) for n in found["shape"].split(b",") if n.strip())
    except (TypeError, ValueError) as error:
        raise NotACheckpointError(path, say("npz_file.odd_header", name=record.name, error=error)) from error
    header = _Header(shape, dtype, found["fortran"] == b"True", start + length)
    _check_header(path, record, header)
    return header


def _check_header(path: Path, record: Record, header: _Header) -> None:
    if header.dtype.hasobject:
        raise UnsupportedCheckpointError(path, *texts("npz_file.objects", name=record.name))
    expected = header.length + prod(sound_shape(path, record.name, header.shape)) * header.dtype.itemsize
    if record.size != expected:
        raise NotACheckpointError(
            path, say("npz_file.other_size", name=record.name, size=record.size, expected=expected)
        )
    if header.dtype.kind not in "SU" and dtype_name(header.dtype) not in DTYPES:
        raise UnsupportedCheckpointError(
            path, *texts("npz_file.unknown_dtype", name=record.name, dtype=header.dtype.str)
        )


def _tensor(path: Path, name: str, record: Record, header: _Header) -> StoredTensor:
    dtype, shape = dtype_name(header.dtype), header.shape
    rows_first = not header.fortran or len(shape) <= 1
    little = header.dtype.newbyteorder("<") == header.dtype
    if record.compressed and rows_first and little:
        return StoredTensor(name, shape, dtype, lambda: _load(record, header), blocks=partial(_blocks, record, header))
    if record.compressed or not little:
        return StoredTensor(name, shape, dtype, lambda: _load(record, header))
    extent = Extent(path, record.extent.offset + header.length, record.size - header.length)
    if not rows_first:
        columns = mapped(extent, shape[::-1], dtype)
        return StoredTensor(name, shape, dtype, lambda: columns().T)
    return StoredTensor(name, shape, dtype, mapped(extent, shape, dtype), extent)


def _load(record: Record, header: _Header) -> Array:
    """Read an array whose bytes are compressed or big-endian to where they stay."""
    raw, done = np.empty(record.size - header.length, np.uint8), 0
    for block in _blocks(record, header, BLOCK_BYTES):
        raw[done : done + len(block)] = block
        done += len(block)
    value: Array = np.ndarray(header.shape, header.dtype, raw.data, order="F" if header.fortran else "C")
    little = numpy_dtype(dtype_name(header.dtype))
    return value if header.dtype == little else value.byteswap(inplace=True).view(little)


def _blocks(record: Record, header: _Header, block: int) -> Iterator[memoryview]:
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
