"""Trace folders: a manifest of one JSON line a capture, flushed as it goes, and one safetensors file beside it.

The safetensors header is reserved and filled in when the trace is sealed; what was written before a crash stays
readable, because the manifest says where each tensor lies. A line is written only after its tensor.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO
from zlib import crc32

import numpy as np

from align.core.dtypes import numpy_dtype
from align.core.traces import Capture
from align.errors import DestinationError, RunFolderError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from align.core.dtypes import Array

SCHEMA = "mindalign.trace/1"
MANIFEST = "manifest.jsonl"
TENSORS = "step0.safetensors"
# Room for the header; a capture takes about 150 bytes of it, so this holds some 28,000.
HEADER_BYTES = 1 << 22
_SAFETENSORS_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip


class TraceWriter:
    """An InputSink that writes a trace folder; use it as a context manager, which seals it.

    With `inputs` it keeps what modules are given too; what was written before, as an output mostly, is not written
    again.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], *, inputs: bool = False) -> None:
        self._folder = folder
        self._header: dict[str, Any] = {}
        self._offset = 0
        self._inputs = inputs
        self._outputs = 0
        self._known: dict[tuple[int, int], int] = {}
        with self._destination():
            folder.mkdir(parents=True, exist_ok=True)
            self._manifest = (folder / MANIFEST).open("w", encoding="utf-8")
            self._tensors: BinaryIO = (folder / TENSORS).open("w+b")
            self._tensors.seek(8 + HEADER_BYTES)
            self._line({"schema": SCHEMA, "environment": dict(environment)})

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Append the inputs of a call, if they are kept."""
        for name, value in inputs.items() if self._inputs else ():
            shape, dtype = tuple(value.shape), value.dtype.name
            self._keep(Capture(self._outputs, module, call, name, "", shape, dtype, role="input"), value)

    def add(self, capture: Capture, value: Array) -> None:
        """Append one capture; raises DestinationError if it cannot be written."""
        self._outputs += 1
        self._keep(capture, value)

    def _keep(self, capture: Capture, value: Array) -> None:
        content = np.ascontiguousarray(value, dtype=numpy_dtype(capture.dtype))
        data = content.reshape(-1).view(np.uint8).data
        end = self._offset
        with self._destination():
            offset = self._place(data) if self._inputs else self._append(data)
            self._line({**asdict(capture), "offset": offset})
        if offset == end:  # safetensors lets no two tensors share their bytes
            place = [offset, offset + content.nbytes]
            self._header[capture.key] = {**_tensor_type(capture, content), "data_offsets": place}

    def _place(self, data: memoryview) -> int:
        """Offset of these bytes, in an earlier tensor if it is the same."""
        sign = len(data), crc32(data)
        if (known := self._known.get(sign)) is not None and self._holds(known, data):
            return known
        self._known[sign] = offset = self._append(data)
        return offset

    def _append(self, data: memoryview) -> int:
        offset = self._offset
        self._tensors.write(data)
        self._tensors.flush()
        self._offset = offset + len(data)
        return offset

    def _holds(self, offset: int, data: memoryview) -> bool:
        self._tensors.seek(8 + HEADER_BYTES + offset)
        same = self._tensors.read(len(data)) == data
        self._tensors.seek(0, 2)
        return same

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._destination(), self._manifest, self._tensors:
            if kind is None:
                self._seal()

    def _seal(self) -> None:
        header = json.dumps(self._header, separators=(",", ":")).encode()
        if len(header) <= HEADER_BYTES:
            self._tensors.seek(0)
            self._tensors.write(HEADER_BYTES.to_bytes(8, "little") + header.ljust(HEADER_BYTES))
            self._tensors.flush()
        self._line({"sealed": True})

    def _line(self, value: dict[str, Any]) -> None:
        self._manifest.write(json.dumps(value) + "\n")
        self._manifest.flush()

    @contextmanager
    def _destination(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DestinationError(
                f"cannot write the trace {self._folder}: {error.strerror or error}",
                "check the folder, its permissions and the free space",
            ) from error


class TraceFolder:
    """A trace read back; tensors are memory-mapped. `complete` is False if the run ended before it was sealed.

    Captures whose bytes did not reach the disk are left out. Raises RunFolderError for what is no trace.
    """

    def __init__(self, folder: Path) -> None:
        lines = _manifest_lines(folder / MANIFEST)
        path = folder / TENSORS
        if not lines or lines[0].get("schema") != SCHEMA or not path.is_file():
            raise RunFolderError(f"{folder} is not a trace folder of schema {SCHEMA}", "capture the trace again")
        self._data = np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
        self.environment: dict[str, str] = lines[0]["environment"]
        self.complete = bool(lines[-1].get("sealed"))
        self._offsets: dict[str, int] = {}
        captures: list[Capture] = []
        for entry in (line for line in lines[1:] if "module" in line):
            start = 8 + HEADER_BYTES + entry.pop("offset")
            capture = Capture(**{**entry, "shape": tuple(entry["shape"])})
            if start + _nbytes(capture) <= self._data.size:
                captures.append(capture)
                self._offsets[capture.key] = start
        self.captures = tuple(one for one in captures if one.role == "output")
        self.inputs = tuple(one for one in captures if one.role == "input")

    def value(self, capture: Capture) -> Array:
        """Return a captured tensor as a read-only view of the file."""
        start = self._offsets[capture.key]
        raw = self._data[start : start + _nbytes(capture)]
        return np.asarray(raw).view(numpy_dtype(capture.dtype)).reshape(capture.shape)


def _nbytes(capture: Capture) -> int:
    return prod(capture.shape) * numpy_dtype(capture.dtype).itemsize


def _tensor_type(capture: Capture, content: Array) -> dict[str, Any]:
    """Dtype and shape as safetensors has them; bytes with one more axis for a dtype that it does not know."""
    if capture.dtype in _SAFETENSORS_NAMES:
        return {"dtype": _SAFETENSORS_NAMES[capture.dtype], "shape": list(capture.shape)}
    return {"dtype": "U8", "shape": [*capture.shape, content.itemsize]}


def _manifest_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a crash may have cut the last one short."""
    if not path.is_file():
        return []
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]]
    except json.JSONDecodeError as error:
        raise RunFolderError(f"{path} is damaged: {error}", "capture the trace again") from error
    return [line for line in lines if isinstance(line, dict)]
