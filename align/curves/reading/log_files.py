"""The files of a log: one, plain or gz, those of a folder, or several after a resume."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from typing import TYPE_CHECKING

from align.core.atomic_files import existing_file
from align.curves.log_sources import FileBytes, LogSource, first_lines
from align.curves.thresholds import (
    LARGE_LOG_BYTES,
    LINES_OF_LAYOUT,
    LOG_HEAD_BYTES,
    MOST_UNPACKED_BYTES,
    MOST_UNPACKED_TIMES,
    UNPACKED_PIECE,
)
from align.errors import UnreadableLogError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_GZIP = b"\x1f\x8b"
# What a document in JSON begins with; `[12:03` and `{ Epoch` do not.
_DOCUMENT = re.compile(rb"\s*(?:\{|\[\s*\{)\s*(?:[\"}]|$)")
_LINES = 3  # format: two lines, and what follows them
_MARK = 4  # format: bytes of a byte-order mark, which is taken off, and one more to see whether there is more
_NUMBERS = re.compile("([0-9]+)")
# Loggers that turn their files over call the latest `x.log`, the one before `x.log.1`, and so on.
_TURNED_OVER = re.compile(r"(.+)\.([0-9]{1,3})")
# msrun writes a file for each process.
_RANK = re.compile(r"(?:worker|rank)[-_]?([0-9]{1,6})(?![0-9])", re.IGNORECASE)


def open_log(path: Path, most: int = -1) -> LogSource:
    """Read a log file, or its first `most` bytes; raises UnreadableLogError if it is damaged or locked."""
    try:
        with path.open("rb") as stream:
            packed = stream.read(len(_GZIP)) == _GZIP
        if not packed and most < 0 and path.stat().st_size > LARGE_LOG_BYTES:
            return LogSource(str(path), FileBytes(path))
        if packed:
            return LogSource(str(path), _unpacked(path, most))
        with path.open("rb") as stream:
            return LogSource(str(path), stream.read(most))
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableLogError(path, getattr(error, "strerror", None) or str(error)) from error


def _unpacked(path: Path, most: int) -> bytes:
    """The content of a gz file, or its first `most` bytes; one that is much smaller than it is packs no log."""
    size, found = path.stat().st_size, bytearray()
    with gzip.open(path) as stream:
        while most < 0 or len(found) < most:
            piece = stream.read(UNPACKED_PIECE if most < 0 else min(most - len(found), UNPACKED_PIECE))
            if not piece:
                break
            found += piece
            if len(found) > MOST_UNPACKED_BYTES or len(found) > UNPACKED_PIECE + MOST_UNPACKED_TIMES * size:
                raise UnreadableLogError(path, say("log_fault.unpacks", size=size, unpacked=len(found)))
    return bytes(found)


def beginnings(path: Path) -> Iterator[LogSource]:
    """Yield the beginning of a log, then eight times as much and so on, up to all of it where it is text.

    Of a longer beginning there are only the first lines of each layout, but for documents, of which all is needed.
    """
    size = LOG_HEAD_BYTES
    while True:
        source = open_log(path, size + _MARK)
        head = source.head(size)
        yield head if size == LOG_HEAD_BYTES else shown_lines(head)
        if len(source.data) <= size or source.is_binary:
            return
        size *= 8


def shown_lines(source: LogSource) -> LogSource:
    """Return the first lines of each layout, by which a format is known; a document whole, as all of it is needed."""
    return source if source.is_binary or _is_document(source.data) else first_lines(source, LINES_OF_LAYOUT)


def _is_document(data: bytes) -> bool:
    """Tell whether a text is one document in JSON: it begins as one, and not each line is one by itself."""
    lines = data.lstrip().split(b"\n", 2)
    return _DOCUMENT.match(data) is not None and (len(lines) < _LINES or not all(map(_is_json, lines[:2])))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def list_log_files(path: Path) -> list[Path]:
    """Return the file, or all files of a folder that are not hidden, in the order in which they were written.

    Raises MissingFileError, and UnreadableLogError for an empty file and for a folder without files.
    """
    if not path.is_dir():
        if not open_log(existing_file(path, "loss log"), 1).data:
            raise UnreadableLogError(path, say("log_fault.empty"))
        return [path]
    try:
        files = [file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")]
    except OSError as error:
        raise UnreadableLogError(path, error.strerror or str(error)) from error
    if not files:
        raise UnreadableLogError(path, say("log_fault.empty_folder"))
    return sort_log_files(files)


def sort_log_files(files: Iterable[Path]) -> list[Path]:
    """Sort by name, numbers as numbers (event files bear the time in theirs); what was turned over is older."""
    listed = list(files)
    names = {file.name for file in listed}

    def key(file: Path) -> tuple[list[tuple[int, str]], int]:
        turned = _TURNED_OVER.fullmatch(file.name)
        name, age = (turned[1], int(turned[2])) if turned and turned[1] in names else (file.name, 0)
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBERS.split(name)], -age

    return sorted(listed, key=key)


def rank_of(file: Path) -> int | None:
    """Return the rank that a file's name tells; None if it tells none."""
    found = _RANK.search(file.name)
    return int(found[1]) if found else None
