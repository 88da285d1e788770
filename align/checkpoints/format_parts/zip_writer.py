"""A zip file written as a stream: stored records, each crc behind its bytes, so that nothing is ever gone back to.

Padding and zip64 fields are where torch's own writer puts them (`.format_version` 1), because its loader may calculate
from them where a record begins instead of looking. Without times and modes, equal records make equal files.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ALIGNMENT = 64  # format: torch's own writer starts each record at a multiple of it
LARGE = 0xFFFFFFFF  # format: a size or an offset from which on the zip64 fields hold it
LOCAL, DESCRIPTOR, LARGE_DESCRIPTOR = struct.Struct("<4s5H3L2H"), struct.Struct("<4s3L"), struct.Struct("<4sL2Q")
CENTRAL, END = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s4H2LH")
END64, LOCATOR = struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
CRC_FOLLOWS, UTF8 = 0x8, 0x800  # format: general purpose flags, bits 3 and 11
ZIP64_VERSION = 45  # format: the version of zip that reads zip64 (APPNOTE 4.4.3)


@dataclass(slots=True)
class ZipWriter:
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
        title, start, crc = name.encode("utf-8"), self.position, 0
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
