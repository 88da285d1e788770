"""MindSpore's `.ckpt`, read and written without MindSpore.

The file is a concatenation of protobuf messages, so that it can be scanned entry by entry without reading a value and
written as a stream. MindSpore's own loader never checks a length (short content is zero-filled, long cut): here every
length must lie inside what encloses it, and dims times itemsize must equal the content.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING, BinaryIO

from align.checkpoints.extents import byte_blocks, joined, mapped
from align.checkpoints.protobuf import NUMBER, ProtobufScan, field_key, number_bytes, scanned
from align.checkpoints.sound_records import sound_shape
from align.core.parameters import Checkpoint, Extent, StoredTensor, numpy_dtype
from align.core.thresholds import BLOCK_BYTES
from align.errors import MissingEntryError, NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import first_few, say, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.protocols import FrameworkName

TYPES = {
    "Int8": "int8", "UInt8": "uint8", "Int16": "int16", "UInt16": "uint16", "Int32": "int32", "UInt32": "uint32",
    "Int64": "int64", "UInt64": "uint64", "Float16": "float16", "Float32": "float32", "Float64": "float64",
    "Bool": "bool", "BFloat16": "bfloat16",
}  # fmt: skip
# MindSpore saves these and cannot load them again: read here, not written.
READ_ONLY = {
    "Complex64": "complex64", "Complex128": "complex128", "Float8E4M3FN": "float8_e4m3fn", "Float8E5M2": "float8_e5m2",
}  # fmt: skip
KNOWN = {**TYPES, **READ_ONLY}
# It saves these too, and NumPy has no element type for them.
UNREADABLE = frozenset({"Int4", "HiFloat8"})
TEXT = "str"
TYPE_NAMES = {dtype: name for name, dtype in TYPES.items()}
SLICE = 512 << 20  # format: bytes after which MindSpore itself begins another entry of a tensor
CRC_MARK = b"crc_num"
CRC_LENGTH = len(CRC_MARK) + 10
ENCRYPTED = tuple(magic.to_bytes(4, "little") for magic in (0x7F3A5ED8, 0x7F3A5ED9, 0x7F3A5EDA))
ENTRY, TAG, TENSOR, MAP_TENSOR = field_key(1), field_key(1), field_key(2), field_key(3)
DIM, PACKED_DIMS, TYPE, CONTENT = field_key(1, NUMBER), field_key(1), field_key(2), field_key(3)


@dataclass(frozen=True, slots=True)
class CkptFormat:
    """MindSpore's own checkpoint: `save_checkpoint` and `load_checkpoint`."""

    name: str = "ckpt"
    summary: str = "MindSpore .ckpt, read and written without MindSpore, with bfloat16, slices and crc"
    requires: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".ckpt",)
    framework: FrameworkName | None = "mindspore"

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Tell by the first entry's shape, or by the mark of an encrypted file."""
        if head[:4] in ENCRYPTED:
            return True
        scan = ProtobufScan(path, head)
        try:
            _, at = scan.number(1, len(head))
            length, _ = scan.number(at + 1, len(head))
        except NotACheckpointError:
            return False
        return head[0] == ENTRY and head[at] == TAG and length > 0

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Scan the entries; a crc, where there is one, is left to `Checkpoint.check`."""
        if key is not None:
            raise MissingEntryError(path, key, ())
        with scanned(path) as scan:
            if scan.data[:4] in ENCRYPTED:
                raise UnsupportedCheckpointError(path, *texts("ckpt_file.encrypted"))
            end, crc = _end_and_crc(scan)
            entries = _joined_entries(path, _entries(scan, end))
        readable = {name: entry for name, entry in entries.items() if entry.kind not in (TEXT, *UNREADABLE)}
        _check_types(path, readable.values())
        unreadable = [name for name, entry in entries.items() if entry.kind in UNREADABLE]
        return Checkpoint(
            path,
            self.name,
            tensors={name: _tensor(path, entry) for name, entry in readable.items()},
            metadata={"format": "ms"} if crc is None else {"format": "ms", "crc": f"{crc:#010x}"},
            other={
                n: "text" if e.kind == TEXT else f"{e.kind} tensor" for n, e in entries.items() if n not in readable
            },
            other_tensors=dict.fromkeys(unreadable, 1),
            check=None if crc is None else partial(_check_crc, path, end, crc),
        )

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:  # noqa: ARG002
        """Name the tensors that MindSpore could not load again: unknown dtypes and empty ones."""
        found = [say("ckpt_file.not_loaded", name=t.name, dtype=t.dtype) for t in tensors if t.dtype not in TYPE_NAMES]
        found += [say("ckpt_file.empty_tensor", name=t.name, shape=str(t.shape)) for t in tensors if prod(t.shape) == 0]
        return found + [say("ckpt_file.no_name", name=t.name) for t in tensors if not t.name]

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:  # noqa: ARG002
        """Write one entry a tensor, or one for every 512 MiB of it, as `save_checkpoint` does."""
        for tensor in tensors:
            left, room = tensor.nbytes, 0
            for block in byte_blocks(tensor):
                start = 0
                while start < len(block):
                    if not room:
                        room = min(left, SLICE)
                        left -= room
                        stream.write(_entry_head(tensor, room))
                    part = block[start : start + room]
                    stream.write(part)
                    start, room = start + len(part), room - len(part)


PLUGIN = CkptFormat()


@dataclass(slots=True)
class _Entry:
    """One entry: a tensor, or a slice of the one whose name stands before it."""

    name: str = ""
    dims: list[int] = field(default_factory=list)
    kind: str = ""
    content: list[Extent] = field(default_factory=list)


def _end_and_crc(scan: ProtobufScan) -> tuple[int, int | None]:
    """Where the entries end, and the crc that follows them, None without one."""
    end = len(scan.data) - CRC_LENGTH
    if end < 0 or scan.data[end : end + len(CRC_MARK)] != CRC_MARK:
        return len(scan.data), None
    return end, int.from_bytes(scan.data[end + len(CRC_MARK) :], "big")


def _check_crc(path: Path, end: int, written: int) -> None:
    crc = 0
    with path.open("rb") as stream:
        for left in range(end, 0, -BLOCK_BYTES):
            crc = zlib.crc32(stream.read(min(left, BLOCK_BYTES)), crc)
    if crc != written:
        raise NotACheckpointError(path, say("ckpt_file.other_crc", found=crc, written=written))


def _entries(scan: ProtobufScan, end: int) -> Iterator[_Entry]:
    for key, start, stop in scan.fields(0, end):
        if key != ENTRY:
            raise _unexpected(scan, key, stop)
        yield _entry(scan, start, stop)


def _entry(scan: ProtobufScan, start: int, end: int) -> _Entry:
    entry = _Entry()
    for key, value, stop in scan.fields(start, end):
        if key == TAG:
            entry.name = scan.text(value, stop)
        elif key == TENSOR:
            _read_tensor(scan, value, stop, entry)
        elif key == MAP_TENSOR:
            raise UnsupportedCheckpointError(scan.path, *texts("ckpt_file.map_parameter", name=entry.name))
        else:
            raise _unexpected(scan, key, stop)
    if not entry.name or not entry.kind or not entry.content:
        raise NotACheckpointError(scan.path, say("ckpt_file.entry_lacks", name=entry.name))
    return entry


def _read_tensor(scan: ProtobufScan, start: int, end: int, entry: _Entry) -> None:
    for key, value, stop in scan.fields(start, end):
        if key in (DIM, PACKED_DIMS):
            scan.add_dims(entry.dims, key, value, stop)
        elif key == TYPE:
            entry.kind = scan.text(value, stop)
        elif key == CONTENT and not entry.content:
            entry.content.append(Extent(scan.path, value, stop - value))
        else:
            raise _unexpected(scan, key, stop)


def _unexpected(scan: ProtobufScan, key: int, end: int) -> NotACheckpointError:
    return NotACheckpointError(scan.path, say("ckpt_file.odd_field", field=key, end=end))


def _joined_entries(path: Path, entries: Iterator[_Entry]) -> dict[str, _Entry]:
    """Join neighbours of one name into one tensor; an entry that comes again later replaces the earlier one."""
    joined: dict[str, _Entry] = {}
    last = _Entry()
    for entry in entries:
        if last.name == entry.name:
            if (last.dims, last.kind) != (entry.dims, entry.kind):
                raise NotACheckpointError(path, say("ckpt_file.unlike_slices", name=entry.name))
            last.content += entry.content
        else:
            joined.pop(entry.name, None)
            joined[entry.name] = last = entry
    if not joined:
        raise NotACheckpointError(path, say("ckpt_file.no_entries"))
    return joined


def _check_types(path: Path, entries: Iterable[_Entry]) -> None:
    if unknown := [
        say("ckpt_file.unknown_type", name=entry.name, kind=entry.kind) for entry in entries if entry.kind not in KNOWN
    ]:
        raise UnsupportedCheckpointError(
            path, first_few(unknown), f"known types: {', '.join([*KNOWN, *UNREADABLE, TEXT])}"
        )


def _tensor(path: Path, entry: _Entry) -> StoredTensor:
    dtype = KNOWN[entry.kind]
    itemsize = numpy_dtype(dtype).itemsize
    nbytes = sum([extent.nbytes for extent in entry.content])
    # Older files write a 0-d tensor as dims [0] with one element.
    shape = () if entry.dims == [0] and nbytes == itemsize else sound_shape(path, entry.name, entry.dims)
    expected = prod(shape) * itemsize
    if expected != nbytes:
        raise NotACheckpointError(
            path,
            say(
                "ckpt_file.other_size", name=entry.name, nbytes=nbytes, dtype=dtype, shape=str(shape), expected=expected
            ),
        )
    extent, *more = entry.content
    if more:
        return StoredTensor(entry.name, shape, dtype, joined(entry.content, shape, dtype), pieces=tuple(entry.content))
    return StoredTensor(entry.name, shape, dtype, mapped(extent, shape, dtype), extent)


def _entry_head(tensor: StoredTensor, nbytes: int) -> bytes:
    """Everything of an entry but its content."""
    dims = b"".join([bytes([DIM]) + number_bytes(n) for n in tensor.shape])
    kind = TYPE_NAMES[tensor.dtype].encode()
    inner = dims + bytes([TYPE]) + number_bytes(len(kind)) + kind + bytes([CONTENT]) + number_bytes(nbytes)
    name = tensor.name.encode("utf-8")
    head = bytes([TAG]) + number_bytes(len(name)) + name + bytes([TENSOR]) + number_bytes(len(inner) + nbytes) + inner
    return bytes([ENTRY]) + number_bytes(len(head) + nbytes) + head
