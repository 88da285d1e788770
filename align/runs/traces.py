"""Trace folders: a manifest of one JSON line a capture, flushed as it goes, and one safetensors file beside it.

The safetensors header is reserved and filled in when the trace is sealed; what was written before a crash stays
readable, because the manifest says where each tensor lies.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from align.core.dtypes import numpy_dtype
from align.core.traces import Capture
from align.errors import RunFolderError

if TYPE_CHECKING:
    from collections.abc import Mapping
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
    """A CaptureSink that writes a trace folder; use it as a context manager, which seals it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._manifest = (folder / MANIFEST).open("w", encoding="utf-8")
        self._tensors: BinaryIO = (folder / TENSORS).open("wb")
        self._tensors.seek(8 + HEADER_BYTES)
        self._header: dict[str, Any] = {}
        self._offset = 0
        self._line({"schema": SCHEMA, "environment": dict(environment)})

    def add(self, capture: Capture, value: Array) -> None:
        """Append one capture."""
        content = np.ascontiguousarray(value)
        self._tensors.write(content.tobytes() if content.ndim == 0 else content.reshape(-1).view(np.uint8).data)
        end = self._offset + content.nbytes
        if capture.dtype in _SAFETENSORS_NAMES:
            name = _SAFETENSORS_NAMES[capture.dtype]
            entry = {"dtype": name, "shape": list(capture.shape), "data_offsets": [self._offset, end]}
            self._header[capture.key] = entry
        self._line({**asdict(capture), "offset": self._offset})
        self._offset = end

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self._seal()
        self._manifest.close()
        self._tensors.close()

    def _seal(self) -> None:
        header = json.dumps(self._header, separators=(",", ":")).encode()
        if len(header) <= HEADER_BYTES:
            self._tensors.flush()
            self._tensors.seek(0)
            self._tensors.write(HEADER_BYTES.to_bytes(8, "little") + header.ljust(HEADER_BYTES))
        self._line({"sealed": True})

    def _line(self, value: dict[str, Any]) -> None:
        self._manifest.write(json.dumps(value) + "\n")
        self._manifest.flush()


class TraceFolder:
    """A trace read back; tensors are memory-mapped. `complete` is False if the run ended before it was sealed."""

    def __init__(self, folder: Path) -> None:
        lines = _manifest_lines(folder / MANIFEST)
        if not lines or lines[0].get("schema") != SCHEMA:
            raise RunFolderError(f"{folder} is not a trace folder of schema {SCHEMA}", "capture the trace again")
        self.environment: dict[str, str] = lines[0]["environment"]
        self.complete = bool(lines[-1].get("sealed"))
        entries = [line for line in lines[1:] if "module" in line]
        self._offsets = {}
        captures = []
        for entry in entries:
            offset = entry.pop("offset")
            capture = Capture(**{**entry, "shape": tuple(entry["shape"])})
            captures.append(capture)
            self._offsets[capture.key] = 8 + HEADER_BYTES + offset
        self.captures = tuple(captures)
        path = folder / TENSORS
        self._data = np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)

    def value(self, capture: Capture) -> Array:
        """Return a captured tensor as a read-only view of the file."""
        dtype = numpy_dtype(capture.dtype)
        start = self._offsets[capture.key]
        count = int(np.prod(capture.shape, dtype=np.int64))
        raw = self._data[start : start + count * dtype.itemsize]
        return np.asarray(raw).view(dtype).reshape(capture.shape)


def _manifest_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a crash may have cut the last one short."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]
