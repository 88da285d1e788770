"""A torch zip file written as a stream: what `torch.save` makes of a state_dict, without torch.

The records, their order and their padding are torch's own (`.format_version` 1), byte for byte, because its loader may
calculate from them where a storage begins instead of looking. A crc is known only behind its bytes and stands there,
as torch has it. Tied tensors share one record, so that they come back as one storage.
"""

from __future__ import annotations

import hashlib
import pickle
import struct
import zlib
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, BinaryIO

from align.core.extents import byte_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.checkpoints import StoredTensor
    from align.core.parameters import Shape

STORAGES = {
    "float64": "DoubleStorage", "float32": "FloatStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage",
    "int64": "LongStorage", "int32": "IntStorage", "int16": "ShortStorage", "int8": "CharStorage",
    "uint8": "ByteStorage", "bool": "BoolStorage", "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}  # fmt: skip
# Torch has no storage class for these: they lie in untyped bytes, and the tensor names its dtype.
UNTYPED = frozenset({"uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"})
FOLDER = "archive"  # torch takes the file's name, which would make equal tensors unequal files
ALIGNMENT = 64
LARGE = 0xFFFFFFFF  # a size or an offset from which on the zip64 fields hold it
LOCAL, DESCRIPTOR, LARGE_DESCRIPTOR = struct.Struct("<4s5H3L2H"), struct.Struct("<4s3L"), struct.Struct("<4sL2Q")
CENTRAL, END = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s4H2LH")
END64, LOCATOR = struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
CRC_FOLLOWS, UTF8 = 0x8, 0x800
ZIP64_VERSION = 45


def write_torch_file(stream: BinaryIO, tensors: Sequence[StoredTensor]) -> None:
    """Write the tensors as a state_dict that `torch.load(weights_only=True)` reads, also memory-mapped."""
    stored: dict[object, StoredTensor] = {}
    for tensor in tensors:
        stored.setdefault(tensor.identity, tensor)
    keys = {identity: str(number) for number, identity in enumerate(stored)}
    archive = _Archive(stream)
    archive.add("data.pkl", _pickle(tensors, keys))
    archive.add(".format_version", b"1")
    archive.add(".storage_alignment", str(ALIGNMENT).encode())
    archive.add("byteorder", b"little")
    for identity, tensor in stored.items():
        archive.add_blocks(f"data/{keys[identity]}", tensor.nbytes, byte_blocks(tensor))
    archive.add("version", b"3\n")
    archive.add(".data/serialization_id", archive.fingerprint())
    archive.finish()


def torch_problems(tensors: Iterable[StoredTensor]) -> list[str]:
    """Name the tensors of a dtype that torch does not have."""
    return [f"{t.name}: torch has no {t.dtype}" for t in tensors if t.dtype not in UNTYPED and t.dtype not in STORAGES]


@dataclass(slots=True)
class _Archive:
    """A zip file in the making; `directory` grows with the records and is written last."""

    stream: BinaryIO
    position: int = 0
    records: int = 0
    directory: bytearray = field(default_factory=bytearray)

    def add(self, name: str, content: bytes) -> None:
        """Write a record whose content is at hand."""
        self.add_blocks(name, len(content), (content,))

    def add_blocks(self, name: str, size: int, blocks: Iterable[bytes | memoryview]) -> None:
        """Write a record of `size` bytes that come in blocks."""
        title, start, crc = f"{FOLDER}/{name}".encode(), self.position, 0
        flags = UTF8 | (CRC_FOLLOWS if size else 0)
        large = _zip64([size, size] * (size >= LARGE) + [start] * (start >= LARGE))
        extra = large + _padding(start + LOCAL.size + len(title) + len(large))
        self._put(LOCAL.pack(b"PK\3\4", 0, flags, 0, 0, 0, 0, 0, 0, len(title), len(extra)) + title + extra)
        for block in blocks:
            crc = zlib.crc32(block, crc)
            self._put(block)
        if size:
            self._put((LARGE_DESCRIPTOR if large else DESCRIPTOR).pack(b"PK\7\x08", crc, size, size))
        short, place = min(size, LARGE), min(start, LARGE)
        lengths = len(title), len(large), 0
        entry = CENTRAL.pack(b"PK\1\2", 0, 0, flags, 0, 0, 0, crc, short, short, *lengths, 0, 0, 0, place)
        self.directory += entry + title + large
        self.records += 1

    def fingerprint(self) -> bytes:
        """Forty digits that stand for this content; torch makes its own of the names and crcs too."""
        digest = hashlib.sha256(self.directory).digest()
        return b"%040d" % (int.from_bytes(digest, "big") % 10**40)

    def finish(self) -> None:
        """Write the directory and its end, in the zip64 form and in the old one, as torch always does."""
        start, size, count = self.position, len(self.directory), self.records
        self._put(self.directory)
        self._put(END64.pack(b"PK\6\6", END64.size - 12, 0, ZIP64_VERSION, 0, 0, count, count, size, start))
        self._put(LOCATOR.pack(b"PK\6\7", 0, start + size, 1))
        short, place = min(count, 0xFFFF), min(start, LARGE)
        self._put(END.pack(b"PK\5\6", 0, 0, short, short, min(size, LARGE), place, 0))

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        self.stream.write(data)
        self.position += len(data)


def _zip64(numbers: Sequence[int]) -> bytes:
    """The extra field for numbers that have outgrown their own; nothing for none."""
    return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""


def _padding(position: int) -> bytes:
    """An extra field at `position`, behind which the next aligned byte comes."""
    length = -(position + 4) % ALIGNMENT
    return struct.pack("<2sH", b"FB", length) + b"Z" * length


@dataclass(slots=True)
class _Pickle:
    """Opcodes of a pickle of protocol 2; constants are written once and then called by their number."""

    code: bytearray = field(default_factory=bytearray)
    numbers: dict[bytes, int] = field(default_factory=dict)

    def constant(self, code: bytes) -> None:
        """Add what may have come before."""
        if code in self.numbers:
            self.code += pickle.BINGET + bytes([self.numbers[code]])
        else:
            self.numbers[code] = len(self.numbers)
            self.code += code + pickle.BINPUT + bytes([self.numbers[code]])


def _pickle(tensors: Iterable[StoredTensor], keys: Mapping[object, str]) -> bytes:
    """An OrderedDict of names to tensors; each refers to a record by its key."""
    out = _Pickle(bytearray(pickle.PROTO + b"\2"))
    out.constant(ORDERED)
    out.code += pickle.EMPTY_TUPLE + pickle.REDUCE + pickle.MARK
    for tensor in tensors:
        out.code += _text(tensor.name)
        _add_tensor(out, tensor, keys[tensor.identity])
    out.code += pickle.SETITEMS + pickle.STOP
    return bytes(out.code)


def _add_tensor(out: _Pickle, tensor: StoredTensor, key: str) -> None:
    """`_rebuild_tensor_v2(storage, 0, shape, stride, requires_grad, hooks)`; v3 has the dtype behind them."""
    typed = tensor.dtype in STORAGES
    out.constant(_global("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3"))
    out.code += pickle.MARK + pickle.MARK
    out.constant(_text("storage"))
    out.constant(_global("torch", STORAGES[tensor.dtype]) if typed else _global("torch.storage", "UntypedStorage"))
    out.code += _text(key)
    out.constant(_text("cpu"))
    out.code += _number(prod(tensor.shape) if typed else tensor.nbytes) + pickle.TUPLE + pickle.BINPERSID
    out.code += _number(0) + _numbers(tensor.shape) + _numbers(_strides(tensor.shape)) + pickle.NEWFALSE
    out.constant(ORDERED)
    out.code += pickle.EMPTY_TUPLE + pickle.REDUCE
    if not typed:
        out.constant(_global("torch", tensor.dtype))
    out.code += pickle.TUPLE + pickle.REDUCE


def _strides(shape: Shape) -> list[int]:
    return [prod(max(n, 1) for n in shape[axis + 1 :]) for axis in range(len(shape))]


def _global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    raw = text.encode("utf-8")
    return pickle.BINUNICODE + len(raw).to_bytes(4, "little") + raw


def _number(number: int) -> bytes:
    return pickle.dumps(number, 2)[2:-1]  # without the protocol and the stop


def _numbers(numbers: Iterable[int]) -> bytes:
    return pickle.MARK + b"".join(map(_number, numbers)) + pickle.TUPLE


ORDERED = _global("collections", "OrderedDict")
