"""What is said on the terminal beside results, JSON, and the streams that all of it goes to.

Results for the eye are drawn by `align.report.show_result`, into the same streams.

A stream may be closed, be a pipe whose reader has left, or a full disk. The exit code says what was found, so whatever
nobody can read is dropped; only results that a disk does not take are an error. What is printed comes from files as
well: control characters, which could steer a terminal, are escaped, and a line ends where nobody reads on.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

import typer

from align.words.catalogue import in_language, reader_language
from align.words.message_words import harmless

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


FIRST_OF_OTHER_FILES = 3  # format: 0, 1 and 2 are the standard streams
NOBODY_READS = frozenset({errno.EPIPE, errno.EIO, errno.EBADF})  # a reader that left, a terminal that hung up, a close
# Behind ASCII only text can hold them; below space JSON escapes them by itself.
_STEERING = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


_BEYOND_ASCII = re.compile("[^\x00-\x7e]")


def tell(text: str, *, err: bool = False) -> None:
    """Print lines for the eye, as all that is no result in blocks: harmless, and not longer than a line has use for."""
    typer.echo(harmless(in_language(text, reader_language())), err=err)


def tell_in_place(text: str) -> None:
    """Show one line on standard error in the place of the one before it."""
    typer.echo(f"\r{harmless(in_language(text, reader_language()))}", err=True, nl=False)


def print_json(text: str) -> None:
    """Print a document as it is; what could steer a terminal, or has no place on it, is escaped, as JSON can."""
    letters = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # names of files, in any locale
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    escaped = _STEERING if encoding.lower().startswith("utf") else _BEYOND_ASCII
    typer.echo(escaped.sub(lambda found: json.dumps(found[0])[1:-1], letters))


def has_letters_of_all() -> bool:
    """Tell whether standard output takes letters beyond those of one alphabet."""
    try:
        "中é".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def open_streams() -> None:
    """Give this process three standard streams that can be written to and flushed whatever becomes of them."""
    # A file that is opened gets the lowest free number: where a stream is closed, one that is not meant to be printed.
    while (number := os.open(os.devnull, os.O_RDWR)) < FIRST_OF_OTHER_FILES:
        pass
    os.close(number)
    stdin: Any = sys.stdin  # None if it was closed
    sys.stdin = stdin or io.StringIO()
    sys.stdout = _Stream(sys.stdout, 1, "standard output")
    sys.stderr = _Stream(sys.stderr, 2, "")


class _Stream(io.TextIOWrapper):
    """A standard stream that code of the user's cannot close. Characters that the terminal lacks are replaced."""

    def __init__(self, before: Any, number: int, name: str) -> None:
        """`before` is what Python made of the stream, None if it was closed; errors name it, or are dropped."""
        is_terminal = before is not None and before.isatty()
        raw = _Raw(number if before is not None else os.open(os.devnull, os.O_WRONLY), name)
        encoding = getattr(before, "encoding", None) or "utf-8"
        super().__init__(
            io.BufferedWriter(raw), encoding, "replace", line_buffering=is_terminal or not name, write_through=not name
        )

    def close(self) -> None:
        """Only flush: align speaks to the last."""
        self.flush()


class _Raw(io.FileIO):
    """The file behind a stream. What it does not take is dropped from then on; said once if it has a name."""

    def __init__(self, number: int, name: str) -> None:
        super().__init__(number, "wb", closefd=False)
        self.said_of, self.is_dead = name, False

    def write(self, data: ReadableBuffer, /) -> int:
        """Write, or let it be."""
        size = memoryview(data).nbytes
        if self.is_dead:
            return size
        try:
            return super().write(data)
        except OSError as error:
            self.is_dead = True
            if error.errno in NOBODY_READS or not self.said_of:
                return size
            raise OSError(error.errno, error.strerror, self.said_of) from error
