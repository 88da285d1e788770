"""The checksums of a trace folder: what was cut, changed or lost since it was written is told, and where.

CRC-32, which finds accidents and edits by hand, and which the writer computes of each tensor anyway, to know tensors
again. SHA-256 would take a pass more and prove no more: who forges a trace on purpose writes any digest anew, for it
lies in the folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from align.errors import RunFolderError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

_BLOCK = 1 << 20
_CLOSED = re.compile(rb'(.*), "check": ([0-9]+)\}')
AGAIN = "copy the folder again, or capture the trace again"


class LineChain:
    """Closes each line of a manifest with the checksum of it and all before it; `last` is that of the one before."""

    def __init__(self, last: int = 0) -> None:
        self._last = last

    def close(self, text: str) -> str:
        """Add the checksum to the text of a JSON object, as its last member."""
        self._last = crc32(text.encode(), self._last)
        return f'{text[:-1]}, "check": {self._last}}}'


def last_check(content: bytes) -> int:
    """The checksum that the last line of a manifest is closed with."""
    found = _CLOSED.fullmatch(content.rstrip(b"\n").rpartition(b"\n")[2])
    return int(found[2]) if found else 0


def check_lines(lines: list[bytes]) -> None:
    """Raise ValueError for the first line that was changed, or stands behind another one than it was written behind.

    Lines of earlier versions, none of which is closed with a checksum, are not checked.
    """
    closed = [_CLOSED.fullmatch(line) for line in lines]
    last = 0
    for number, found in enumerate(closed if any(closed) else (), 1):
        last = crc32(found[1] + b"}", last) if found else -1
        if found is None or last != int(found[2]):
            before = f", or not what was written behind line {number - 1}" if number > 1 else ""
            msg = f"line {number} is not what was written{before}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class FileSum:
    """The size of a file in bytes, and the checksum of its first `checked` bytes, or of all of them if None."""

    nbytes: int
    crc32: int
    checked: int | None = None


def sum_file(path: Path) -> FileSum:
    """The size and checksum of a whole file, read in blocks."""
    found = size = 0
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            found, size = crc32(block, found), size + len(block)
    return FileSum(size, found)


def check_file(path: Path, told: FileSum, *, content: bool = True) -> None:
    """Raise RunFolderError for a file that is gone, of another size, or, if `content` is to be read, of other bytes."""
    if not path.is_file():
        raise RunFolderError(f"{path} is missing, which was written with the trace", AGAIN)
    if (size := path.stat().st_size) != told.nbytes:
        raise RunFolderError(f"{path} is damaged: it has {size:,} bytes, {told.nbytes:,} were written", AGAIN)
    if content and (sum_file(path) if told.checked is None else _sum_start(path, told)) != told:
        part = "its header is" if told.checked is not None else "its bytes are"
        raise RunFolderError(f"{path} is damaged: {part} not what was written", AGAIN)


def _sum_start(path: Path, told: FileSum) -> FileSum:
    with path.open("rb") as stream:
        return FileSum(told.nbytes, crc32(stream.read(told.checked)), told.checked)


def check_files(folder: Path, told: Mapping[str, FileSum], known: Collection[str], contents: Collection[str]) -> None:
    """Check the files that a sealed trace tells of, their bytes too for those in `contents`.

    `known` are names that mean something in a trace folder: one that is there and was not told of is not the trace's.
    """
    for name, own in told.items():
        check_file(folder / name, own, content=name in contents)
    if strange := [name for name in known if name not in told and (folder / name).exists()]:
        raise RunFolderError(f"{folder / strange[0]} was not written with the trace {folder}", AGAIN)
