"""Files that are no checkpoints but hold tensors or tell of them: one tensor, JSON, a file that another one names.

They come from other tools, and are believed as far as checkpoints are: sizes are held against the file, pickles are
never run, and a name in a file leads nowhere but below the folder that the file lies in.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.extents import mapped
from align.checkpoints.format_parts.claims import FilesBeside, parse_json
from align.checkpoints.format_parts.npy_headers import MAGIC, read_npy_header
from align.checkpoints.thresholds import HEAD_BYTES, LONGEST_DUMP_BYTES
from align.core.atomic_files import existing_file
from align.core.checkpoints import Extent, StoredTensor
from align.core.dtypes import dtype_name, in_numpy, numpy_dtype
from align.core.registry import tensor_files
from align.errors import NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say, texts

__all__ = ["FilesBeside", "array_of_bytes", "npy_bytes", "open_tensor", "read_json", "torch_tensor_bytes"]

if TYPE_CHECKING:
    from pathlib import Path

    from align.checkpoints.format_parts.npy_headers import NpyHeader
    from align.core.dtypes import Array


def open_tensor(path: Path) -> StoredTensor:
    """The tensor that a file holds alone: `.npy`, or what `torch.save(tensor, path)` writes; only its header is read.

    Raises MissingFileError, NotACheckpointError or UnsupportedCheckpointError.
    """
    found = existing_file(path, "file")
    try:
        with found.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
            if head.startswith(MAGIC):
                return _npy(found, stream.read, head)
        for plugin in tensor_files():
            if plugin.recognizes(found, head):
                return plugin.read_tensor(found)
    except OSError as error:
        raise NotACheckpointError(path, error.strerror or str(error)) from error
    raise UnsupportedCheckpointError(path, *texts("single_file.no_tensor"))


def read_json(path: Path) -> Any:
    """The JSON of a file; raises MissingFileError, or NotACheckpointError for damage, too much of it, or too deep."""
    found = existing_file(path, "file")
    try:
        size = found.stat().st_size
        if size > LONGEST_DUMP_BYTES:
            raise UnsupportedCheckpointError(path, *texts("single_file.too_long", size=size, most=LONGEST_DUMP_BYTES))
        return parse_json(found.read_bytes())
    except OSError as error:
        raise NotACheckpointError(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise NotACheckpointError(path, say("single_file.no_json", error=error)) from error


def torch_tensor_bytes(value: Array) -> bytes:
    """The bytes of the file that `torch.save(tensor, path)` would write."""
    stream = io.BytesIO()
    tensor = StoredTensor(
        "", value.shape, dtype_name(value.dtype), lambda: np.ascontiguousarray(value).reshape(value.shape)
    )
    next(iter(tensor_files())).write_tensor(stream, tensor)
    return stream.getvalue()


def npy_bytes(value: Array) -> bytes:
    """The bytes of an `.npy` file; bfloat16 and float8, which it cannot hold, in float32."""
    stream = io.BytesIO()
    plain = value if in_numpy(dtype_name(value.dtype)) else value.astype(np.float32)
    np.save(stream, plain, allow_pickle=False)
    return stream.getvalue()


def array_of_bytes(path: Path, name: str, data: bytes) -> Array:
    """The array of the bytes of an `.npy` file inside of the file at `path`; raises as `open_tensor` does."""
    header = read_npy_header(path, name, len(data), lambda count: data[:count])
    if header.dtype.kind in "SU":
        raise UnsupportedCheckpointError(path, *texts("single_file.no_tensor"))
    value: Array = np.ndarray(header.shape, header.dtype, data, header.length, order="F" if header.fortran else "C")
    return value.astype(numpy_dtype(dtype_name(header.dtype)), copy=False)


def _npy(path: Path, more: Any, head: bytes) -> StoredTensor:
    size = path.stat().st_size
    header = read_npy_header(path, path.name, size, lambda count: (head + more(max(count - len(head), 0)))[:count])
    if header.dtype.kind in "SU":
        raise UnsupportedCheckpointError(path, *texts("single_file.no_tensor"))
    dtype, shape = dtype_name(header.dtype), header.shape
    little, rows_first = numpy_dtype(dtype), not header.fortran or len(shape) <= 1
    extent = Extent(path, header.length, size - header.length)
    if header.dtype == little and rows_first:
        return StoredTensor(path.name, shape, dtype, mapped(extent, shape, dtype), extent)
    return StoredTensor(path.name, shape, dtype, lambda: _other_order(header, extent))


def _other_order(header: NpyHeader, extent: Extent) -> Array:
    raw = mapped(extent, (extent.nbytes,), "uint8")()
    value: Array = np.ndarray(header.shape, header.dtype, raw.data, order="F" if header.fortran else "C")
    return value.astype(numpy_dtype(dtype_name(header.dtype)), copy=False)
