"""The checksums of a trace folder: what was cut, changed or lost since it was written is reported, and where.

CRC-32, which finds accidents and edits by hand, and which the writer computes of each tensor anyway, to know tensors
again. SHA-256 would take a pass more and prove no more: who forges a trace on purpose writes any digest anew, for it
lies in the folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from align.errors import RunFolderError
from align.traces.thresholds import CHECKSUM_BLOCK

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

CHECKED = "checked"  # in the first line: each line has a checksum
_CHECK = "check"


class LineChain:
    """Closes each line of a manifest with the checksum of it and all before it; `last` is that of the one before."""

    def __init__(self, last: int = 0) -> None:
        self._last = last

    def close(self, text: str) -> str:
        """Add the checksum to the text of a JSON object, as its last member."""
        return self.close_bytes(text.encode()).decode()

    def close_bytes(self, text: bytes) -> bytes:
        """Add the checksum to the bytes of such a text."""
        self._last = crc32(text, self._last)
        return text[:-1] + _end(self._last)


def last_check(content: bytes) -> int:
    """The checksum that the last line of a manifest is closed with."""
    return int(json.loads(content.rstrip(b"\n").rpartition(b"\n")[2]).get(_CHECK, 0))


def check_lines(lines: Sequence[bytes], noted: Sequence[Any]) -> None:
    """Raise ValueError for the first line that was changed, or stands behind another one than it was written behind.

    `noted` is what the lines say. Lines of earlier versions are not checked: the first one does not say that all are,
    and none has a checksum, however it is spaced.
    """
    closed = [one for one in noted if isinstance(one, dict) and (CHECKED in one or _CHECK in one)]
    chain = LineChain()
    for number, (line, one) in enumerate(zip(lines, noted, strict=True) if closed else (), 1):
        if line != _closed_again(chain, line, one):
            msg = f"line {number} is not what was written"
            if number > 1:
                msg += f", or not what was written behind line {number - 1}"
            raise ValueError(msg)


def _closed_again(chain: LineChain, line: bytes, noted: Any) -> bytes | None:
    """The line as it is written behind those before it, None for one without a checksum at its end."""
    check = noted.get(_CHECK) if isinstance(noted, dict) else None
    end = _end(check)
    return chain.close_bytes(line[: -len(end)] + b"}") if type(check) is int and line.endswith(end) else None


def _end(check: object) -> bytes:
    return f', "{_CHECK}": {check}}}'.encode()


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
        while block := stream.read(CHECKSUM_BLOCK):
            found, size = crc32(block, found), size + len(block)
    return FileSum(size, found)


def check_file(path: Path, noted: FileSum, *, content: bool = True) -> None:
    """Raise RunFolderError for a file that is gone, of another size, or, if `content` is to be read, of other bytes."""
    if not path.is_file():
        raise RunFolderError.of("traces_error.missing", path=path)
    if (size := path.stat().st_size) != noted.nbytes:
        raise RunFolderError.of("traces_error.other_size", path=path, size=size, written=noted.nbytes)
    if content and (sum_file(path) if noted.checked is None else _sum_start(path, noted)) != noted:
        key = "traces_error.other_bytes" if noted.checked is None else "traces_error.other_header"
        raise RunFolderError.of(key, path=path)


def _sum_start(path: Path, noted: FileSum) -> FileSum:
    with path.open("rb") as stream:
        return FileSum(noted.nbytes, crc32(stream.read(noted.checked)), noted.checked)


def check_files(folder: Path, noted: Mapping[str, FileSum], known: Collection[str], contents: Collection[str]) -> None:
    """Check the files that a sealed trace names, their bytes too for those in `contents`.

    `known` are names that mean something in a trace folder: one that is there and was not noted is not the trace's.
    """
    for name, own in noted.items():
        check_file(folder / name, own, content=name in contents)
    if strange := [name for name in known if name not in noted and (folder / name).exists()]:
        raise RunFolderError.of("traces_error.not_of_trace", path=folder / strange[0], folder=folder)
