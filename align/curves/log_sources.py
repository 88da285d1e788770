"""The content of a log file, handed to its readers in blocks of whole lines: training logs reach millions of lines.

A terminal's colour codes and carriage returns are taken off here, once for all formats. Bytes that are no UTF-8 spoil
their own line only, which is read as GBK where all of it is; UTF-16 is known by its byte-order mark, or by the zero in
most pairs of bytes.
"""

from __future__ import annotations

import codecs
import functools
import json
import os
import re
import weakref
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from align.core.load_code import plugins
from align.core.operating_system import READ, read_at
from align.core.protocols import Plugin
from align.curves.thresholds import (
    BINARY_BYTES,
    BLOCK_LINES,
    BYTES_LOOKED_AHEAD,
    KEPT_LOG_BYTES,
    LAYOUTS_ONE_BY_ONE,
    LEAST_BLOCK_BYTES,
    LINE_LENGTH_BYTES,
    LINES_PER_LAYOUT,
    LOG_HEAD_BYTES,
    LONGEST_READ_LINE,
    MOST_BLOCK_BYTES,
    ROWS_TOGETHER,
    UTF16_BYTES,
    UTF16_OTHER_ZEROS,
    UTF16_ZEROS,
)
from align.errors import UnreadableLogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from align.curves.loss_log import Booleans, Integers, LossLog

    Letters = NDArray[np.uint8]
else:
    Letters = Any


_LINE_END, _RETURN, _BLANKS = ord("\n"), ord("\r"), np.frombuffer(b"\n \t", np.uint8)
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_GBK = re.compile(rb"(?:[\x00-\x7f]|[\xa1-\xfe]{2})*")


def _utf16(data: bytes) -> str:
    """Return the name of the encoding of UTF-16 text; "" for all else."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = data[:UTF16_BYTES]
    first, second = head[::2].count(0), head[1::2].count(0)
    if max(first, second) < UTF16_ZEROS * len(head) / 2 or min(first, second) > UTF16_OTHER_ZEROS * max(first, second):
        return ""
    return "" if not head else "utf-16-le" if second > first else "utf-16-be"


@dataclass(frozen=True, eq=False)
class LogBlock:
    """Whole lines of a log, parted by line feeds: `numbers[i]` is the number in the file, from 1, of the i-th line.

    A carriage return ends a line but counts none, so several lines may bear one number. `padded` is the text once more,
    if it was already made.
    """

    text: str
    numbers: Integers
    padded: PaddedText | None = None

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (number, content) of every line."""
        return zip(self.numbers.tolist(), self.text.split("\n"), strict=True)

    def shown_lines(self) -> Sequence[str]:
        """Return the first line of each layout, all of them if they have too many."""
        return self.text.split("\n") if self.layouts is None else self.layouts.samples

    @cached_property
    def layouts(self) -> LineLayouts | None:
        """Its lines by layout; None if they have too many."""
        return find_layouts(self.padded or self.text)

    def count_filled(self) -> int:
        """Count the lines that are not blank."""
        if "layouts" in self.__dict__ and self.layouts is not None:
            return self.layouts.count_filled()
        letters = np.frombuffer(f"\n{self.text}\n".encode("utf-8", "surrogatepass"), np.uint8)
        firsts = letters[1:][letters[:-1] == _LINE_END]
        if not np.isin(firsts, _BLANKS).any():
            return len(self.numbers)
        return sum(map(bool, map(str.strip, self.text.split("\n"))))


class LogSource:
    """The content of one log; `label` is what messages call it. A file is read as far as its bytes are asked for.

    `metric` is what is read in any case where a log has very many metrics.
    """

    def __init__(self, label: str, data: bytes | FileBytes, metric: str = "loss") -> None:
        self.label, self.metric = label, metric
        head = data[:UTF16_BYTES]
        if wide := _utf16(head):
            data = data[:].decode(wide, errors="replace").encode()
        self._content = data[len(codecs.BOM_UTF8) :] if head.startswith(codecs.BOM_UTF8) else data

    @property
    def data(self) -> bytes:
        """All of it as it stands in the file: for formats that need it at once."""
        if not isinstance(self._content, bytes):
            self._content = self._content[:]
        return self._content

    @classmethod
    def of_text(cls, text: str, label: str = "log") -> LogSource:
        """Make the source that a file of this text would be."""
        return cls(label, text.encode("utf-8", errors="replace"))

    @property
    def is_binary(self) -> bool:
        """True if the beginning holds a zero byte, as event files do and no text does."""
        return b"\0" in self._content[:BINARY_BYTES]

    def head(self, size: int = LOG_HEAD_BYTES) -> LogSource:
        """Return the beginning: whole lines, `size` bytes or fewer if there is a line's end among them."""
        if len(self._content) <= size:
            return self
        shown = self._content[:size]
        return LogSource(self.label, shown[: shown.rfind(b"\n") + 1 or size])

    @property
    def was_cut(self) -> bool:
        """True if the text stops in the middle of a line: its last number may lack digits."""
        return self._content[-1:] not in (b"", b"\n", b"\r")

    @cached_property
    def text(self) -> str:
        """All of it, without colour codes: for formats that are one document."""
        return _without_colours(_decoded(self.data))

    @cached_property
    def document(self) -> Any:
        """The one JSON document that all of it is, its numbers as they are printed; None if it is none."""
        if self.is_binary or not self.text.lstrip().startswith(("{", "[")):
            return None
        try:
            return json.loads(self.text, parse_float=str, parse_int=str, parse_constant=str)
        except (ValueError, RecursionError):
            return None

    def blocks(self) -> Iterable[LogBlock]:
        """Give the cleaned lines in order, in blocks of a size that suits the processor."""
        return self._few_blocks if len(self._content) <= KEPT_LOG_BYTES else self._made_blocks()

    @cached_property
    def _few_blocks(self) -> tuple[LogBlock, ...]:
        """All formats are asked about the beginning of a log, or about a log of few bytes: it is cleaned once."""
        return tuple(self._made_blocks())

    def _made_blocks(self) -> Iterator[LogBlock]:
        content, start, number, size = self._content, 0, 1, self._block_bytes()
        while start < len(content):
            end = content.find(b"\n", start + size)
            piece = content[start:].removesuffix(b"\n") if end < 0 else content[start:end]
            block = _cleaned(_decoded(_with_lines_cut(piece)), number)
            yield block
            start, number = len(content) if end < 0 else end + 1, int(block.numbers[-1]) + 1

    def _block_bytes(self) -> int:
        """Return how many bytes hold the lines of a block, going by some at the beginning."""
        shown = self._content[:LINE_LENGTH_BYTES]
        return min(max(BLOCK_LINES * len(shown) // (shown.count(b"\n") + 1), LEAST_BLOCK_BYTES), MOST_BLOCK_BYTES)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (number, content) of every cleaned line."""
        for block in self.blocks():
            yield from block.lines()


def first_lines(source: LogSource, most: int) -> LogSource:
    """Return the first lines of each layout in each block, `most` of them, in their order."""
    texts = []
    for block in source.blocks():
        shown = None if block.layouts is None else block.layouts.first_lines(most)
        lines = block.text.split("\n") if shown is not None else []
        texts.append(block.text if shown is None else "\n".join(lines[row] for row in shown.tolist()))
    return LogSource.of_text("\n".join([*texts, ""]), source.label)


def _with_lines_cut(piece: bytes) -> bytes:
    start = 0
    while len(piece) - start > LONGEST_READ_LINE:  # from line end to line end: nearly all blocks are left as they are
        end = piece.rfind(b"\n", start, start + LONGEST_READ_LINE + 1)
        if end < 0:
            return b"\n".join(line[:LONGEST_READ_LINE] for line in piece.split(b"\n"))
        start = end + 1
    return piece


def _cleaned(text: str, first: int) -> LogBlock:
    text = _without_colours(text)
    if "\b" in text:
        text = text.replace("\b", "")
    if "\r" in text:
        text = text.replace("\r\n", "\n").removesuffix("\r")
    if "\r" in text:
        return _parted_at_returns(text, first)
    padded = pad_text(text)
    return LogBlock(text, np.arange(first, first + len(padded.ends), dtype=np.int64), padded)


def _parted_at_returns(text: str, first: int) -> LogBlock:
    """End lines at carriage returns too; of the pieces of a line only those that are not empty stay, one at least."""
    letters = np.frombuffer(f"{text}\n".encode("utf-8", "surrogatepass"), np.uint8)
    ends = np.flatnonzero((letters == _LINE_END) | (letters == _RETURN))
    lines = np.cumsum(letters[ends] == _LINE_END)
    lines = np.append(0, lines[:-1])
    filled = np.diff(ends, prepend=-1) > 1
    alone = np.bincount(lines[filled], minlength=int(lines[-1]) + 1)[lines] == 0
    kept = filled | (alone & (np.diff(lines, prepend=-1) > 0))
    cleaned = letters.copy()
    cleaned[ends] = _LINE_END
    rest = np.delete(cleaned, ends[~kept])[:-1]
    return LogBlock(rest.tobytes().decode("utf-8", "surrogatepass"), first + lines[kept])


def _decoded(data: bytes) -> str:
    """Decode UTF-8, and lines that are none as GBK if all of their bytes are."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "\n".join(map(_decoded_line, data.split(b"\n")))


def _decoded_line(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("gbk" if _GBK.fullmatch(line) else "utf-8", errors="replace")


def _without_colours(text: str) -> str:
    return _ANSI.sub("", text) if "\x1b" in text else text


class FileBytes:
    """What a large file held when it was opened, by slices, as `bytes` have it; what is appended later is not seen.

    It is read a piece at a time, as a log need not fit into memory twice.

    The file stays open, so that one of the same name that takes its place is not taken for it.
    """

    def __init__(self, path: Path) -> None:
        """Open the file; raises OSError."""
        self._path, self._file = path, os.open(path, READ)
        weakref.finalize(self, os.close, self._file)
        self._size = os.fstat(self._file).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        """Read some of the bytes, fewer if the file has lost them; raises UnreadableLogError."""
        start, stop, _ = part.indices(self._size)
        pieces = []
        try:
            while start < stop and (piece := read_at(self._file, stop - start, start)):
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


# The lines of a block by their layout: what they look like but for the values of their digits.
#
# Loggers print few layouts, a million times each: what an expression finds in one line, it finds at the same places
# in all lines of that layout, as long as it takes no digit for another (`is_digit_blind`). So it need be asked only
# once a layout, and numbers can be read by the column.

PADDING = 24  # format: bytes before the first line, as numbers are read in up to three words backwards from their end
_ZERO, _NINE, _DIGITS, _NEWLINE = np.uint8(ord("0")), np.uint8(ord("9")), 10, ord("\n")
_SHORT = 1 << 16  # format: what uint16 holds
# What an expression may say of digits without telling one from another: classes, counts, names of groups.
_ALL_DIGITS = re.compile(r"(?<!\\)\{[0-9]*,?[0-9]*\}|\(\?P<\w+>")
_CLASS = re.compile(r"\\.|\[(?:\\.|[^\]\\])+\]", re.DOTALL)
_RANGE = re.compile("(?<!-)0-9")
_ONE_DIGIT = re.compile(r"[0-9]|\\N|\(\?P=")


@dataclass(frozen=True, slots=True, eq=False)
class LineLayouts:
    """Lines as bytes: line i begins at `letters[starts[i]]` and has the layout of the line `samples[kinds[i]]`.

    `varying[kind]` tells which bytes of its lines are not the same in all; None where nobody looked.
    """

    letters: Letters
    starts: Integers
    kinds: Integers
    samples: tuple[str, ...]
    varying: tuple[Booleans | None, ...]

    def count_filled(self) -> int:
        """Count the lines that are not blank."""
        filled = np.array([bool(sample.strip()) for sample in self.samples])
        return int(np.count_nonzero(filled[self.kinds]))

    def first_lines(self, most: int) -> Integers:
        """Return the places of the first lines of each layout, `most` of them, in their order."""
        order = np.argsort(self.kinds, kind="stable")
        begins = np.flatnonzero(np.diff(self.kinds[order], prepend=-1))
        ranks = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
        return np.sort(order[ranks < most])


class PaddedText(NamedTuple):
    """The bytes of a text behind `PADDING` spaces, with a line end behind it, and where its lines end."""

    letters: Letters
    ends: Integers


def pad_text(text: str) -> PaddedText:
    """Make the bytes of a text ready for numbers to be read out of them."""
    content = text.encode("utf-8", "surrogatepass")
    letters = np.frombuffer(b"".join((b" " * PADDING, content, b"\n")), np.uint8)
    return PaddedText(letters, np.flatnonzero(letters == _NEWLINE))


def find_layouts(text: str | PaddedText) -> LineLayouts | None:
    """Part the lines of a text by layout; None if there are too many layouts to be worth it."""
    letters, ends = pad_text(text) if isinstance(text, str) else text
    starts = np.append(PADDING, ends[:-1] + 1)
    layouts = list(islice(_layouts(letters, starts, ends - starts), len(starts) // LINES_PER_LAYOUT + 1))
    if len(layouts) * LINES_PER_LAYOUT > len(starts):
        return None
    layouts.sort(key=lambda layout: int(layout.rows[0]))
    kinds = np.zeros(len(starts), np.int64)
    for kind, layout in enumerate(layouts):
        kinds[layout.rows] = kind
    firsts = [int(layout.rows[0]) for layout in layouts]
    spans = zip(starts[firsts].tolist(), ends[firsts].tolist(), strict=True)
    samples = tuple(letters[start:end].tobytes().decode("utf-8", "surrogatepass") for start, end in spans)
    return LineLayouts(letters, starts, kinds, samples, tuple(layout.varying for layout in layouts))


class _Layout(NamedTuple):
    """The places of the lines of a layout, rising, and which of their bytes vary."""

    rows: Integers
    varying: Booleans | None


def _layouts(letters: Letters, starts: Integers, lengths: Integers) -> Iterator[_Layout]:
    """Find the lines of each layout: those of one length stand below each other, and are held against the first."""
    order = np.argsort(lengths.astype(np.uint16) if lengths.max() < _SHORT else lengths, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        length = int(lengths[rows[0]])
        if not length:
            yield _Layout(rows, np.zeros(0, np.bool_))
            continue
        windows = as_strided(letters, (len(letters) - length, length), (1, 1), writeable=False)
        yield from _layouts_of_length(rows, windows[starts[rows]])


def _layouts_of_length(rows: Integers, lines: Letters) -> Iterator[_Layout]:
    """Part lines by the few columns of letters that are neither the same nor digits in all of them."""
    least, most = _extreme(np.minimum, lines), _extreme(np.maximum, lines)
    varying = least != most
    unlike = np.flatnonzero(varying & ((least < _ZERO) | (most > _NINE)))
    if not len(unlike):
        yield _Layout(rows, varying)
        return
    for own, shown in _alike(np.arange(len(rows)), np.ascontiguousarray(lines[:, unlike])):
        layout = varying.copy()
        layout[unlike] = (shown >= _ZERO) & (shown <= _NINE)
        yield _Layout(rows[own], layout)


def _alike(rows: Integers, lines: Letters) -> Iterator[tuple[Integers, Letters]]:
    """Take the lines like the first, then those like the first of the rest, and so on; each with one of them."""
    for _ in range(LAYOUTS_ONE_BY_ONE):
        digits = np.less(lines[0] - _ZERO, _DIGITS)
        most = np.where(digits, _DIGITS - 1, 0).astype(np.uint8)
        whole = (lines - np.where(digits, _ZERO, lines[0]) <= most).all(axis=1)
        yield rows[whole], lines[0]
        rows, lines = rows[~whole], lines[~whole]
        if not len(rows):
            return
    digits = np.less(lines - _ZERO, _DIGITS)
    places: dict[bytes, list[int]] = {}
    for place, text in enumerate(map(bytes, np.where(digits, _ZERO, lines))):
        places.setdefault(text, []).append(place)
    yield from ((rows[own], lines[own[0]]) for own in places.values())


def _extreme(which: np.ufunc, lines: Letters) -> Letters:
    """Return the least or the largest letter of each column."""
    few, width = len(lines) % ROWS_TOGETHER, lines.shape[1]
    rest: Letters = which.reduce(lines[:few], axis=0) if few else lines[0]
    if few == len(lines):
        return rest
    joined = which.reduce(lines[few:].reshape(-1, ROWS_TOGETHER * width), axis=0)
    extreme: Letters = which(which.reduce(joined.reshape(ROWS_TOGETHER, width), axis=0), rest)
    return extreme


@functools.lru_cache(maxsize=256)
def is_digit_blind(pattern: re.Pattern[str]) -> bool:
    """Tell whether an expression surely treats all ASCII digits alike, so that their values decide nothing."""
    rest = _CLASS.sub(_class_without_range, pattern.pattern)
    return _ONE_DIGIT.search(_ALL_DIGITS.sub("", rest)) is None


def _class_without_range(found: re.Match[str]) -> str:
    """Take the range of all digits out of a class; another one, such as `[1-9]`, keeps its digits."""
    return _RANGE.sub("", found[0]) if found[0].startswith("[") else found[0]


# What a plugin for a log format offers, and all of them.


@runtime_checkable
class LogFormat(Plugin, Protocol):
    """Reads one kind of loss log."""

    @property
    def sample(self) -> bytes:
        """A few real lines of such a log, or a small file where it is no text."""
        ...

    @property
    def quoted(self) -> bool:
        """True if the sample is quoted from documents: nobody here has run the logger that writes it."""
        ...

    def recognizes(self, source: LogSource) -> bool:
        """Tell by the content whether this plugin reads the log; exactly one plugin should say yes.

        It is given the beginning of a long log first, and more of it only while no plugin says yes.
        """
        ...

    def read(self, source: LogSource) -> LossLog:
        """Read every line that tells of a step; raises EmptyLogError if there is none."""
        ...


class LogPlugin:
    """What most plugins share: no packages, and a sample that the logger wrote here."""

    requires: tuple[str, ...] = ()
    quoted = False


def log_formats() -> dict[str, LogFormat]:
    """All loss-log formats by name."""
    return {name: cast("LogFormat", plugin) for name, plugin in plugins("losslogs").items()}
