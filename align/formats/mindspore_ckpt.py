"""MindSpore's `.ckpt`, read and written without MindSpore.

The file is a concatenation of protobuf messages, so that it can be scanned entry by entry without reading a value and
written as a stream. MindSpore's own loader never checks a length (short content is zero-filled, long cut): here every
length must lie inside what encloses it, and dims times itemsize must equal the content.
"""

from __future__ import annotations

import mmap
import zlib
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, BinaryIO

from align.core.checkpoints import MOST_AXES, Checkpoint, Extent, StoredTensor
from align.core.dtypes import numpy_dtype
from align.core.extents import byte_blocks, joined, mapped
from align.core.files import BLOCK
from align.errors import HostileFileError, MissingEntryError, NotACheckpointError, UnsupportedCheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import Shape

TYPES = {
    "Int8": "int8", "UInt8": "uint8", "Int16": "int16", "UInt16": "uint16", "Int32": "int32", "UInt32": "uint32",
    "Int64": "int64", "UInt64": "uint64", "Float16": "float16", "Float32": "float32", "Float64": "float64",
    "Bool": "bool", "BFloat16": "bfloat16",
}  # fmt: skip
# MindSpore saves these and cannot load them again: read here, not written.
READ_ONLY = {
    "Complex64": "complex64", "Complex128": "complex128", "Float8E4M3FN": "float8_e4m3fn", "Float8E5M2": "float8_e5m2",
}  # fmt: skip
TYPE_NAMES = {dtype: name for name, dtype in TYPES.items()}
TEXT = "str"
SLICE = 512 << 20
CRC_MARK = b"crc_num"
CRC_LENGTH = len(CRC_MARK) + 10
ENCRYPTED = tuple(magic.to_bytes(4, "little") for magic in (0x7F3A5ED8, 0x7F3A5ED9, 0x7F3A5EDA))
ENTRY, TAG, TENSOR, MAP_TENSOR = 0x0A, 0x0A, 0x12, 0x1A
DIM, PACKED_DIMS, TYPE, CONTENT = 0x08, 0x0A, 0x12, 0x1A


@dataclass(frozen=True, slots=True)
class CkptFormat:
    """MindSpore's own checkpoint: `save_checkpoint` and `load_checkpoint`."""

    name: str = "ckpt"
    summary: str = "MindSpore .ckpt, read and written without MindSpore, with bfloat16, slices and crc"
    requires: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".ckpt",)
    framework: str | None = "mindspore"

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Tell by the first entry's shape, or by the mark of an encrypted file."""
        if head[:4] in ENCRYPTED:
            return True
        try:
            scan = _Scan(path, head, len(head))
            return scan.key() == ENTRY and scan.varint() > 0 and scan.key() == TAG and scan.varint() > 0
        except NotACheckpointError:
            return False

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Scan the entries; a crc, where there is one, is checked over the whole file."""
        if key is not None:
            raise MissingEntryError(path, key, ())
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:4] in ENCRYPTED:
                hint = "load it with mindspore.load_checkpoint(dec_key=...) and save it without enc_key"
                raise UnsupportedCheckpointError(path, "it is encrypted", hint)
            end = _checked_end(path, data)
            entries = _joined_entries(path, _entries(_Scan(path, data, end)))
        tensors = {name: _tensor(path, entry) for name, entry in entries.items() if entry.kind != TEXT}
        other = {name: "text" for name, entry in entries.items() if entry.kind == TEXT}
        return Checkpoint(path, self.name, tensors, {"format": "ms"}, other)

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:  # noqa: ARG002
        """Name the tensors that MindSpore could not load again: unknown dtypes and empty ones."""
        found = [
            f"{t.name}: MindSpore cannot load {t.dtype} from a .ckpt" for t in tensors if t.dtype not in TYPE_NAMES
        ]
        found += [f"{t.name}: MindSpore drops an empty tensor {t.shape}" for t in tensors if prod(t.shape) == 0]
        return found + [f"{t.name!r}: a tensor needs a name" for t in tensors if not t.name]

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:  # noqa: ARG002
        """Write one entry a tensor, or one for every 512 MiB of it, as `save_checkpoint` does."""
        for tensor in tensors:
            left = tensor.nbytes
            size = until = 0
            for block in byte_blocks(tensor):
                if size == until:
                    size, until = 0, min(left, SLICE)
                    left -= until
                    stream.write(_entry_head(tensor, until))
                stream.write(block)
                size += len(block)


PLUGIN = CkptFormat()


@dataclass(slots=True)
class _Entry:
    """One entry: a tensor, or a slice of the one whose name stands before it."""

    name: str
    dims: list[int] = field(default_factory=list)
    kind: str = ""
    content: list[tuple[int, int]] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(end - start for start, end in self.content)


@dataclass(slots=True)
class _Scan:
    """A position in a protobuf message of `data` that ends at `end`."""

    path: Path
    data: mmap.mmap | bytes
    end: int
    at: int = 0

    def key(self) -> int:
        """Field number and wire type."""
        return self.varint()

    def varint(self) -> int:
        """A number of at most ten bytes."""
        value = 0
        for shift in range(0, 70, 7):
            if self.at >= self.end:
                raise NotACheckpointError(self.path, f"it breaks off at byte {self.at}")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise HostileFileError(self.path, f"a number before byte {self.at} is longer than ten bytes")

    def span(self) -> _Scan:
        """The bytes of a length-delimited field; the scan goes on behind them."""
        length = self.varint()
        if length > self.end - self.at:
            reason = f"a field at byte {self.at} claims {length} bytes, {self.end - self.at} are left"
            raise NotACheckpointError(self.path, reason)
        inner = _Scan(self.path, self.data, self.at + length, self.at)
        self.at += length
        return inner

    def text(self) -> str:
        """A name."""
        inner = self.span()
        try:
            return self.data[inner.at : inner.end].decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotACheckpointError(self.path, f"the name at byte {inner.at} is not UTF-8") from error

    def unexpected(self, key: int) -> NotACheckpointError:
        """Words for a field that no such message has."""
        return NotACheckpointError(self.path, f"an unknown field {key:#x} stands before byte {self.at}")


def _checked_end(path: Path, data: mmap.mmap) -> int:
    """Where the entries end: before the crc, if there is one, which is checked."""
    end = len(data)
    if data[-CRC_LENGTH : -CRC_LENGTH + len(CRC_MARK)] != CRC_MARK:
        return end
    end -= CRC_LENGTH
    written, found = int.from_bytes(data[end + len(CRC_MARK) :], "big"), 0
    for start in range(0, end, BLOCK):
        found = zlib.crc32(data[start : min(start + BLOCK, end)], found)
    if found != written:
        raise NotACheckpointError(path, f"its crc is {found:#010x}, the file says {written:#010x}: it is damaged")
    return end


def _entries(scan: _Scan) -> Iterator[_Entry]:
    while scan.at < scan.end:
        key = scan.key()
        if key != ENTRY:
            raise scan.unexpected(key)
        inner = scan.span()
        entry = _Entry("")
        while inner.at < inner.end:
            key = inner.key()
            if key == TAG:
                entry.name = inner.text()
            elif key == TENSOR:
                _read_tensor(inner.span(), entry)
            elif key == MAP_TENSOR:
                hint = "map parameters (hash tables) have no counterpart in torch; remove it before converting"
                raise UnsupportedCheckpointError(inner.path, f"{entry.name!r} is a map parameter", hint)
            else:
                raise inner.unexpected(key)
        yield entry


def _read_tensor(scan: _Scan, entry: _Entry) -> None:
    while scan.at < scan.end:
        key = scan.key()
        if key == DIM:
            entry.dims.append(scan.varint())
        elif key == PACKED_DIMS:
            packed = scan.span()
            while packed.at < packed.end:
                entry.dims.append(packed.varint())
        elif key == TYPE:
            entry.kind = scan.text()
        elif key == CONTENT:
            content = scan.span()
            entry.content.append((content.at, content.end))
        else:
            raise scan.unexpected(key)
        if len(entry.dims) > MOST_AXES:
            raise HostileFileError(scan.path, f"{entry.name!r} claims more than {MOST_AXES} axes")


def _joined_entries(path: Path, entries: Iterator[_Entry]) -> dict[str, _Entry]:
    """Join neighbours of one name into one tensor; an entry that comes again later replaces the earlier one."""
    found: dict[str, _Entry] = {}
    last = None
    for entry in entries:
        if not entry.name or not entry.kind or len(entry.content) != 1:
            raise NotACheckpointError(path, f"the entry {entry.name!r} lacks a name, a type or its content")
        if last is not None and last.name == entry.name:
            if (last.dims, last.kind) != (entry.dims, entry.kind):
                raise NotACheckpointError(path, f"the slices of {entry.name!r} differ in shape or type")
            last.content += entry.content
        else:
            found.pop(entry.name, None)
            found[entry.name] = last = entry
    if not found:
        raise NotACheckpointError(path, "it has no entries")
    return found


def _tensor(path: Path, entry: _Entry) -> StoredTensor:
    dtype = {**TYPES, **READ_ONLY}.get(entry.kind)
    if dtype is None:
        hint = f"known types: {', '.join([*TYPES, *READ_ONLY])}"
        raise UnsupportedCheckpointError(path, f"{entry.name!r} has the type {entry.kind!r}", hint)
    itemsize = numpy_dtype(dtype).itemsize
    # Older files write a 0-d tensor as dims [0] with one element.
    shape: Shape = () if entry.dims == [0] and entry.nbytes == itemsize else tuple(entry.dims)
    expected = prod(shape) * itemsize
    if expected != entry.nbytes:
        reason = f"{entry.name!r} has {entry.nbytes} bytes, {dtype} of shape {shape} needs {expected}"
        raise NotACheckpointError(path, reason)
    pieces = tuple(Extent(path, start, end - start) for start, end in entry.content)
    if len(pieces) == 1:
        return StoredTensor(entry.name, shape, dtype, mapped(pieces[0], shape, dtype), pieces[0])
    return StoredTensor(entry.name, shape, dtype, joined(pieces, shape, dtype), pieces=pieces)


def _entry_head(tensor: StoredTensor, nbytes: int) -> bytes:
    """Everything of an entry but its content."""
    dims = b"".join(bytes([DIM]) + _varint(n) for n in tensor.shape)
    kind = TYPE_NAMES[tensor.dtype].encode()
    inner = dims + bytes([TYPE]) + _varint(len(kind)) + kind + bytes([CONTENT]) + _varint(nbytes)
    name = tensor.name.encode("utf-8")
    head = bytes([TAG]) + _varint(len(name)) + name + bytes([TENSOR]) + _varint(len(inner) + nbytes) + inner
    return bytes([ENTRY]) + _varint(len(head) + nbytes) + head


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))
