"""The bytes of a large file, read a piece at a time where they are asked for: a log need not fit into memory twice."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

from align.curves.thresholds import BYTES_LOOKED_AHEAD
from align.errors import UnreadableLogError

if TYPE_CHECKING:
    from pathlib import Path


class FileBytes:
    """What a file held when it was opened, by slices, as `bytes` have it; what is appended later is not seen.

    The file stays open, so that one of the same name that takes its place is not taken for it.
    """

    def __init__(self, path: Path) -> None:
        """Open the file; raises OSError."""
        self._path, self._file = path, os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._size = os.fstat(self._file).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        """Read some of the bytes, fewer if the file has lost them; raises UnreadableLogError."""
        start, stop, _ = part.indices(self._size)
        pieces = []
        try:
            while start < stop and (piece := os.pread(self._file, stop - start, start)):
                pieces.append(piece)
                start += len(piece)
        except OSError as error:
            raise UnreadableLogError(self._path, error.strerror or str(error)) from error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def find(self, wanted: bytes, start: int) -> int:
        """Return where one byte stands next, from a place on; -1 if it does not."""
        for place in range(start, self._size, BYTES_LOOKED_AHEAD):
            found = self[place : place + BYTES_LOOKED_AHEAD].find(wanted)
            if found >= 0:
                return place + found
        return -1
