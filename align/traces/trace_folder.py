"""Trace folders: a manifest of one JSON line a capture, flushed as it goes, and one safetensors file beside it.

The safetensors header is reserved and filled in when the trace is sealed; what was written before a crash stays
readable, because the manifest says where each tensor lies. A line is written only after its tensor.
"""

from __future__ import annotations

import json
import re
from dataclasses import astuple
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import xxhash

from align.core.documents import to_json_data
from align.core.parameters import dtype_name, numpy_dtype
from align.core.traces import Capture, KeptValues
from align.errors import DestinationError, RunFolderError, UsageError
from align.traces.manifest import (
    CHECKED,
    INPUTS,
    MANIFEST,
    MODEL_FILE,
    SCHEMA,
    TENSORS,
    VALUES,
    FileSum,
    LineChain,
    capture_as_json,
    check_file,
    last_check,
    read_manifest,
    returned_as_json,
    sum_file,
)
from align.traces.thresholds import LARGEST_SHUFFLED, TRACE_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from align.core.parameters import Array, Shape
    from align.core.traces import ReturnedParts, TraceHead
    from align.traces.manifest import TensorLocation


class TraceFolder:
    """A trace read back; tensors are memory-mapped.

    `complete` is False if the run ended before it was sealed, or before all that its seal names was written. Of a run
    that ended so, captures whose bytes did not reach the disk are left out. `manifest` is all that its
    manifest says. Raises RunFolderError for what is no trace, and for a file that is not what was written.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / TENSORS
        manifest = read_manifest(folder / MANIFEST, SCHEMA)
        if manifest is not None and manifest.tensors is not None:
            check_file(path, manifest.tensors)
        if manifest is None or not path.is_file():
            raise RunFolderError.of("traces_error.no_trace", folder=folder, schema=SCHEMA)
        self.folder, self.manifest = folder, manifest
        self._start = 8 + (manifest.header_bytes or TRACE_HEADER_BYTES)
        self._checked: set[int] = set()
        empty = not path.stat().st_size
        # A plain view of the file: frameworks that trace code refuse a memmap.
        self._data = np.empty(0, np.uint8) if empty else np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
        self.environment, self.complete = manifest.environment, manifest.sealed and not manifest.awaited
        captures = [one for one in manifest.captures if self._reached_the_disk(one)]
        self.captures = tuple(one for one in captures if one.role == "output")
        self.inputs = tuple(one for one in captures if one.role == "input")

    def holds(self, capture: Capture) -> bool:
        """Tell whether elements of a captured tensor were kept."""
        return capture.key in self.manifest.places

    def value(self, capture: Capture) -> Array:
        """Return a captured tensor, or the elements of it that were kept, as a read-only view of the file.

        Raises RunFolderError for bytes that are not those that were written.
        """
        place = self.manifest.places[capture.key]
        start = self._start + place.offset
        raw = self._data[start : start + place.nbytes]
        self._check(capture, place, raw)
        return np.asarray(raw).view(numpy_dtype(capture.dtype)).reshape(place.shape)

    def _check(self, capture: Capture, place: TensorLocation, raw: Array) -> None:
        """Hold bytes against their checksum when they are first read: they are about to be read anyway."""
        if place.crc32 is None or place.offset in self._checked:
            return
        if crc32(raw.data) != place.crc32:
            raise RunFolderError.of("traces_error.other_values", path=self.folder / TENSORS, tensor=capture.key)
        self._checked.add(place.offset)

    def _reached_the_disk(self, capture: Capture) -> bool:
        place = self.manifest.places.get(capture.key)
        end = 0 if place is None or not place.nbytes else self._start + place.offset + place.nbytes
        return end <= self._data.size


# A trace folder as it is written: its manifest, flushed line by line, and the safetensors file beside it.
#
# A line is written only after its tensor, so that what was written before a crash stays readable.

BESIDE = (MODEL_FILE, VALUES, INPUTS)
"""Files of a trace folder that are written before the run, and sealed with it."""

_encode = json.JSONEncoder(check_circular=False).encode

_SAFETENSORS_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip


class TraceWriter:
    """An InputSink that writes a trace folder; use it as a context manager, which seals it.

    With `inputs` it keeps what modules are given too; what was written before, as an output mostly, is not written
    again. `later` names the files that `tell_file` will be called for. The safetensors header has the room of
    `header_bytes`; one that does not fit is left out, and the manifest alone says where tensors lie.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *,
        inputs: bool = False,
        head: TraceHead | None = None,
        later: Sequence[str] = (),
        header_bytes: int | None = None,
    ) -> None:
        self._destination = _Destination(folder)
        self._folder, self._chain = folder, LineChain()
        self._header: dict[str, Any] = {}
        self._offset = 0
        self._inputs, self._later = inputs, list(later)
        self._outputs = 0
        self._known: dict[tuple[int, bytes], int] = {}
        self._room = header_bytes or TRACE_HEADER_BYTES
        with self._destination:
            folder.mkdir(parents=True, exist_ok=True)
            self._manifest = (folder / MANIFEST).open("w", encoding="utf-8")
            self._tensors = (folder / TENSORS).open("wb", buffering=0)
            self._tensors.seek(8 + self._room)
            first = {"schema": SCHEMA, "environment": dict(environment), "head": to_json_data(head)}
            first |= {} if header_bytes is None else {"header_bytes": header_bytes}
            self._line({**first, CHECKED: True})

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Append the inputs of a call, if they are kept."""
        for name, value in inputs.items() if self._inputs else ():
            shape, dtype = tuple(value.shape), dtype_name(value.dtype)
            self._keep(Capture(self._outputs, module, call, name, "", shape, dtype, role="input"), value)

    def returned(self, parts: ReturnedParts) -> None:
        """Note what the model returned that is no tensor."""
        self.note(returned_as_json(parts))

    def add(self, capture: Capture, value: Array) -> None:
        """Append one capture; raises DestinationError if it cannot be written."""
        self._outputs += 1
        self._keep(capture, value)

    def note(self, line: Mapping[str, Any], *, flush: bool = True) -> None:
        """Append a line to the manifest; without `flush` it reaches the disk with the next one that does."""
        with self._destination:
            self._line(line, flush=flush)

    def append(self, capture: Capture, value: Array) -> dict[str, int]:
        """Append the bytes of a tensor, or of some of its elements; return their place, which a line must say."""
        with self._destination:
            return self._bytes(capture, value)

    def _keep(self, capture: Capture, value: Array) -> None:
        with self._destination:
            self._line({**capture_as_json(capture), **self._bytes(capture, value)})

    def _bytes(self, capture: Capture, value: Array) -> dict[str, int]:
        content = np.ascontiguousarray(value, dtype=numpy_dtype(capture.dtype))
        data = content.reshape(-1).view(np.uint8).data
        end, checksum = self._offset, crc32(data)
        offset = self._place(data) if self._inputs else self._append(data)
        if offset == end:  # safetensors lets no two tensors share their bytes
            place = [offset, offset + content.nbytes]
            self._header[capture.key] = {**_tensor_type(capture.dtype, value.shape), "data_offsets": place}
        return {"offset": offset, "crc32": checksum}

    def _place(self, data: memoryview) -> int:
        """Offset of these bytes, in an earlier tensor if it is the same: 128 bits of a hash tell."""
        sign = len(data), xxhash.xxh3_128_digest(data)
        if sign not in self._known:
            self._known[sign] = self._append(data)
        return self._known[sign]

    def _append(self, data: memoryview) -> int:
        offset, written = self._offset, 0
        while written < len(data):
            written += self._tensors.write(data[written:])
        self._offset = offset + len(data)
        return offset

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._destination, self._manifest, self._tensors:
            if kind is None:
                self._seal()

    def _seal(self) -> None:
        header = json.dumps(self._header, separators=(",", ":")).encode()
        room = self._room if self._offset else len(header)
        start = room.to_bytes(8, "little") + header.ljust(room) if len(header) <= room else b""
        self._tensors.seek(0)
        self._tensors.write(start)
        tensors = FileSum(8 + room + self._offset, crc32(start), len(start))
        beside = {name: sum_file(self._folder / name) for name in BESIDE if (self._folder / name).is_file()}
        sums = {name: astuple(one) for name, one in beside.items()}
        self._line({"sealed": True, "tensors": astuple(tensors), "beside": sums, "later": self._later})

    def _line(self, value: Mapping[str, Any], *, flush: bool = True) -> None:
        self._manifest.write(self._chain.close(_encode(value)) + "\n")
        if flush:
            self._manifest.flush()


def tell_file(folder: Path, name: str) -> None:
    """Add the size and checksum of a file, written after the run, to the manifest of a sealed trace."""
    with _Destination(folder):
        sums = sum_file(folder / name)
        chain = LineChain(last_check((folder / MANIFEST).read_bytes()))
        with (folder / MANIFEST).open("a", encoding="utf-8") as manifest:
            manifest.write(chain.close(_encode({"file": name, "told": astuple(sums)})) + "\n")


class _Destination:
    """Tells what the disk refused as a DestinationError; entered for every line, so it is made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _tb: object) -> None:
        if isinstance(error, OSError):
            raise not_written(self._folder, error) from error


def not_written(folder: Path, error: OSError) -> DestinationError:
    """What the disk refused, as an error of the trace that is written."""
    return DestinationError.of("traces_error.not_written", folder=folder, reason=error.strerror or error)


def _tensor_type(dtype: str, shape: Shape) -> dict[str, Any]:
    """Dtype and shape as safetensors has them; bytes with one more axis for a dtype that it does not know."""
    if dtype in _SAFETENSORS_NAMES:
        return {"dtype": _SAFETENSORS_NAMES[dtype], "shape": list(shape)}
    return {"dtype": "U8", "shape": [*shape, numpy_dtype(dtype).itemsize]}


# Which elements of a captured tensor are kept: the same ones in every trace, so that two traces can be compared.

_PART = re.compile(r"(first|sample):([1-9][0-9]{0,11})")


def read_kept(words: Sequence[str]) -> KeptValues:
    """Read what the user wants kept; `first:N` and `sample:N` go together with globs.

    Raises UsageError for words that cannot go together.

    >>> read_kept(["layers.*", "first:100"])
    Kept(globs=('layers.*',), elements=100, sampled=False)
    """
    parts = [found for word in words if (found := _PART.fullmatch(word))]
    strange = [word for word in words if ":" in word and not _PART.fullmatch(word)]
    globs = tuple(word for word in words if ":" not in word and word not in ("all", "none"))
    alone = [word for word in words if word in ("all", "none")]
    if strange or len(parts) > 1 or len({*alone}) + bool(globs) > 1 or ("none" in alone and parts):
        raise UsageError.of("traces_error.what_to_keep", words=" ".join(words))
    part = parts[0] if parts else None
    return KeptValues(
        () if "none" in alone else globs or ("*",),
        int(part[2]) if part else None,
        part is not None and part[1] == "sample",
    )


def is_kept(kept: KeptValues, capture: Capture) -> bool:
    """Tell whether elements of a tensor are kept at all."""
    return bool(kept.globs) and (not capture.module or any(fnmatchcase(capture.module, glob) for glob in kept.globs))


def keep_part(kept: KeptValues, capture: Capture, value: Array) -> Array | None:
    """Return what is kept of a tensor: itself, some of its elements in C order, or None."""
    if not is_kept(kept, capture):
        return None
    places = kept_places(kept, value.size)
    return value if places is None else value.reshape(-1)[places]


def kept_places(kept: KeptValues, size: int) -> Array | None:
    """Places (in C order) of the elements that are kept of a tensor of `size` elements; None for all."""
    if kept.elements is None or size <= kept.elements:
        return None
    return _drawn(size, kept.elements) if kept.sampled else np.arange(kept.elements)


@lru_cache(maxsize=256)
def _drawn(size: int, count: int) -> Array:
    """Ascending places; a few less where the size is too large to be shuffled, and some are drawn twice."""
    generator = np.random.default_rng(size)
    small = size <= LARGEST_SHUFFLED
    places: Array = generator.choice(size, count, replace=False) if small else generator.integers(0, size, count)
    return np.asarray(np.unique(places))
