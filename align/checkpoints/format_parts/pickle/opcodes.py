"""The arguments of pickle opcodes, read in place from bytes or from a file mapped into memory.

`pickletools.genops` reads the same from a stream, at some four times the time and with a copy of every count that it
reads. Here nothing is read that does not lie inside the buffer, and nothing longer than a pickle may be; what only
the text forms of protocol 0 need is left to the readers of `pickletools`.
"""

from __future__ import annotations

import io
import pickletools
import struct
from typing import TYPE_CHECKING, Any

from align.checkpoints.thresholds import LONGEST_PICKLE_BYTES
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap

    Buffer = bytes | mmap
    # Takes the buffer and where the argument starts; returns the argument and where the next opcode is.
    Reader = Callable[[Buffer, int], tuple[Any, int]]


def _number(layout: str) -> Reader:
    form = struct.Struct(layout)
    unpack, size = form.unpack_from, form.size

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + size

    return read


def _counted(width: int, convert: Callable[[bytes], Any]) -> Reader:
    def read(data: Buffer, at: int) -> tuple[Any, int]:
        start = at + width
        end = start + int.from_bytes(data[at:start], "little")
        if end - start > LONGEST_PICKLE_BYTES or end > len(data):
            raise ValueError(say("pickle_file.long_argument", count=end - start, at=at, left=max(len(data) - start, 0)))
        return convert(data[start:end]), end

    return read


def _lines(count: int, convert: Callable[[io.BytesIO], Any]) -> Reader:
    def read(data: Buffer, at: int) -> tuple[Any, int]:
        end = at
        for _ in range(count):
            end = data.find(b"\n", end, at + LONGEST_PICKLE_BYTES) + 1
            if not end:
                raise ValueError(say("pickle_file.line_without_end", at=at))
        return convert(io.BytesIO(data[at:end])), end

    return read


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _old_text(raw: bytes) -> str:
    """What Python 2 called a string: bytes, one to one."""
    return raw.decode("latin-1")


def _integer(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


_READERS: dict[str, Reader] = {
    "PROTO": _number("<B"), "FRAME": _number("<Q"),
    "BININT": _number("<i"), "BININT1": _number("<B"), "BININT2": _number("<H"), "BINFLOAT": _number(">d"),
    "LONG1": _counted(1, _integer), "LONG4": _counted(4, _integer),
    "SHORT_BINUNICODE": _counted(1, _text), "BINUNICODE": _counted(4, _text), "BINUNICODE8": _counted(8, _text),
    "SHORT_BINSTRING": _counted(1, _old_text), "BINSTRING": _counted(4, _old_text),
    "SHORT_BINBYTES": _counted(1, bytes), "BINBYTES": _counted(4, bytes), "BINBYTES8": _counted(8, bytes),
    "BYTEARRAY8": _counted(8, bytes),
    "BINGET": _number("<B"), "LONG_BINGET": _number("<I"), "BINPUT": _number("<B"), "LONG_BINPUT": _number("<I"),
    "INT": _lines(1, pickletools.read_decimalnl_short), "LONG": _lines(1, pickletools.read_decimalnl_long),
    "FLOAT": _lines(1, pickletools.read_floatnl), "UNICODE": _lines(1, pickletools.read_unicodestringnl),
    "STRING": _lines(1, pickletools.read_stringnl), "PERSID": _lines(1, pickletools.read_stringnl_noescape),
    "GET": _lines(1, pickletools.read_decimalnl_short), "PUT": _lines(1, pickletools.read_decimalnl_short),
    "GLOBAL": _lines(2, pickletools.read_stringnl_noescape_pair),
    "INST": _lines(2, pickletools.read_stringnl_noescape_pair),
}  # fmt: skip
CODES: dict[str, int] = {opcode.name: ord(opcode.code) for opcode in pickletools.opcodes}
NAMES: dict[int, str] = {code: name for name, code in CODES.items()}
READERS: dict[int, Reader] = {CODES[name]: reader for name, reader in _READERS.items()}
