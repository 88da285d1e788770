"""`.safetensors`, read and written byte by byte: a JSON header, then the tensors back to back.

The library's NumPy interface cannot hold bfloat16, so the header is parsed here. The MindSpore flavour is the same
layout with `{"format": "ms"}`; both order tensors by falling element size, then name, which keeps each aligned.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO

from align.checkpoints.extents import byte_blocks, mapped
from align.checkpoints.sound_records import parse_json, sound_shape
from align.checkpoints.thresholds import LONGEST_SAFETENSORS_HEADER_BYTES
from align.core.parameters import Checkpoint, Extent, StoredTensor, numpy_dtype
from align.errors import HostileFileError, MissingEntryError, NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from align.core.protocols import FrameworkName

DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip
CODES = {dtype: code for code, dtype in DTYPES.items()}
# One tensor of these makes MindSpore refuse the whole file.
NOT_IN_MINDSPORE = frozenset({"complex64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"})
METADATA = "__metadata__"
LENGTH = 8  # format: bytes of the number in front of the header


@dataclass(frozen=True, slots=True)
class SafetensorsFormat:
    """One safetensors file; `metadata["format"]` tells the flavour, `pt` or `ms`."""

    name: str = "safetensors"
    summary: str = ".safetensors, torch and MindSpore flavour, read and written, with bfloat16"
    requires: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".safetensors",)
    framework: FrameworkName | None = None

    def recognizes(self, path: Path, head: bytes) -> bool:  # noqa: ARG002
        """Tell by the opening brace after a length that a file could have."""
        return head[LENGTH : LENGTH + 1] == b"{" and _length(head) < 1 << 40

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Read and check the header."""
        if key is not None:
            raise MissingEntryError(path, key, ())
        size = path.stat().st_size
        header, start = _read_header(path, size)
        metadata = _metadata(path, header.pop(METADATA, {}))
        tensors = {name: _tensor(path, start, name, header.pop(name)) for name in [*header]}
        _check_cover(path, tensors.values(), start, size)
        return Checkpoint(path, self.name, tensors, metadata)

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:
        """Name the tensors that the format, or MindSpore reading it, has no dtype for."""
        refused = NOT_IN_MINDSPORE if metadata.get("format") == "ms" else frozenset[str]()
        dtypes = CODES.keys() - refused
        faults = [
            say("safetensors_file.cannot_hold", name=t.name, dtype=t.dtype) for t in tensors if t.dtype not in CODES
        ]
        faults += [
            say("safetensors_file.not_in_mindspore", name=t.name, dtype=t.dtype)
            for t in tensors
            if t.dtype in CODES and t.dtype not in dtypes
        ]
        return faults + [say("safetensors_file.reserved_name", name=t.name) for t in tensors if t.name == METADATA]

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:
        """Write the header, padded to 8 bytes, then the tensors by falling element size and name."""
        ordered = sorted(tensors, key=lambda t: (-numpy_dtype(t.dtype).itemsize, t.name))
        header = _header_bytes(ordered, metadata)
        stream.write(len(header).to_bytes(LENGTH, "little") + header)
        for tensor in ordered:
            stream.writelines(byte_blocks(tensor))


PLUGIN = SafetensorsFormat()


def _length(head: bytes) -> int:
    return int.from_bytes(head[:LENGTH], "little")


def _read_header(path: Path, size: int) -> tuple[dict[str, Any], int]:
    with path.open("rb") as stream:
        length = _length(stream.read(LENGTH))
        if length > LONGEST_SAFETENSORS_HEADER_BYTES or length > size - LENGTH:
            reason = say("safetensors_file.long_header", length=length, size=size)
            raise (HostileFileError if length > LONGEST_SAFETENSORS_HEADER_BYTES else NotACheckpointError)(path, reason)
        raw = stream.read(length)
    try:
        header = parse_json(raw)
    except ValueError as error:
        raise NotACheckpointError(path, say("safetensors_file.no_json", error=error)) from error
    if not isinstance(header, dict):
        raise NotACheckpointError(path, say("safetensors_file.no_object"))
    return header, LENGTH + length


def _metadata(path: Path, table: object) -> dict[str, str]:
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise NotACheckpointError(path, say("safetensors_file.odd_metadata", name=METADATA))
    return table


def _tensor(path: Path, start: int, name: str, entry: object) -> StoredTensor:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise NotACheckpointError(path, say("safetensors_file.lacks", name=name))
    shape, offsets = entry["shape"], entry["data_offsets"]
    counts = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2 else []
    if {*map(type, counts)} != {int} or min(counts) < 0:
        raise HostileFileError(path, say("safetensors_file.malformed", name=name))
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in DTYPES:
        raise UnsupportedCheckpointError(
            path, *texts("safetensors_file.unknown_dtype", name=name, dtype=entry["dtype"], known=sorted(DTYPES))
        )
    dtype = DTYPES[entry["dtype"]]
    (begin, end), shape = offsets, sound_shape(path, name, shape)
    expected = prod(shape) * numpy_dtype(dtype).itemsize
    if end - begin != expected:
        raise HostileFileError(
            path, say("safetensors_file.other_size", name=name, expected=expected, begin=begin, end=end)
        )
    extent = Extent(path, start + begin, expected)
    return StoredTensor(name, shape, dtype, mapped(extent, shape, dtype), extent)


def _check_cover(path: Path, tensors: Iterable[StoredTensor], start: int, size: int) -> None:
    """Tensors must fill the file without gap or overlap, as the reference implementation demands."""
    position = start
    for extent, name in sorted(
        ((t.extent, t.name) for t in tensors if t.extent), key=lambda e: (e[0].offset, e[0].nbytes)
    ):
        if extent.offset != position:
            fault = "safetensors_file.overlap" if extent.offset < position else "safetensors_file.gap"
            raise HostileFileError(path, say(fault, name=name, offset=extent.offset, position=position))
        position = extent.offset + extent.nbytes
    if position != size:
        raise NotACheckpointError(path, say("safetensors_file.other_end", position=position, size=size))


def _header_bytes(tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> bytes:
    table: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    position = 0
    for tensor in tensors:
        offsets = [position, position + tensor.nbytes]
        table[tensor.name] = {"dtype": CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
        position += tensor.nbytes
    header = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    return header + b" " * (-len(header) % LENGTH)
