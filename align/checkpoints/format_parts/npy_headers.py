"""The header of a NumPy array file: parsed by pattern, and held against the size of what it heads.

NumPy's own parser evaluates and tokenizes it. An array of objects, which NumPy would unpickle, is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.format_parts.claims import sound_shape
from align.checkpoints.thresholds import LONGEST_NPY_HEADER_BYTES, USUAL_NPY_HEADER_BYTES
from align.core.dtypes import dtype_name
from align.errors import NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from align.core.parameters import Shape

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
class NpyHeader:
    """What an array file says of itself; its bytes begin behind `length` bytes."""

    shape: Shape
    dtype: np.dtype[Any]
    fortran: bool
    length: int


def read_npy_header(path: Path, name: str, size: int, read: Callable[[int], bytes]) -> NpyHeader:
    """Parse the header of the array `name` of `size` bytes, of which `read` gives the first few.

    Raises NotACheckpointError, HostileFileError or UnsupportedCheckpointError, which name the file at `path`.
    """
    head = read(USUAL_NPY_HEADER_BYTES)
    width = LENGTH_BYTES.get(head[len(MAGIC) : len(MAGIC) + 1])
    start = len(MAGIC) + 2 + (width or 0)
    length = int.from_bytes(head[len(MAGIC) + 2 : start], "little")
    if len(head) < start + length <= LONGEST_NPY_HEADER_BYTES:
        head = read(start + length)
    found = HEADER.fullmatch(head[start : start + length])
    if head.startswith(MAGIC) and STRUCTURED.match(head, start):
        raise UnsupportedCheckpointError(path, *texts("npz_file.structured", name=name))
    if not head.startswith(MAGIC) or width is None or len(head) < start + length or found is None:
        raise NotACheckpointError(path, say("npz_file.no_header", name=name))
    try:
        dtype = np.dtype(found["descr"].decode("ascii"))
        shape = tuple(int(n) for n in found["shape"].split(b",") if n.strip())
    except (TypeError, ValueError) as error:
        raise NotACheckpointError(path, say("npz_file.odd_header", name=name, error=error)) from error
    header = NpyHeader(shape, dtype, found["fortran"] == b"True", start + length)
    _check_header(path, name, size, header)
    return header


def _check_header(path: Path, name: str, size: int, header: NpyHeader) -> None:
    if header.dtype.hasobject:
        raise UnsupportedCheckpointError(path, *texts("npz_file.objects", name=name))
    expected = header.length + prod(sound_shape(path, name, header.shape)) * header.dtype.itemsize
    if size != expected:
        raise NotACheckpointError(path, say("npz_file.other_size", name=name, size=size, expected=expected))
    if header.dtype.kind not in "SU" and dtype_name(header.dtype) not in DTYPES:
        raise UnsupportedCheckpointError(path, *texts("npz_file.unknown_dtype", name=name, dtype=header.dtype.str))
