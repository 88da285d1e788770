"""What files say of the speed of a training, whatever their form: parts of a step, and evidence for rules of advice.

A reader takes a file apart into one `SpeedEvidence`; it judges nothing. Seconds of evidence are those of all that its
file covers, shares are of the same.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, cast

import numpy as np

from align.advice.thresholds import (
    EPOCHS_SLOW,
    FAR_SLOWER,
    FEWEST_GROWING,
    FEWEST_SLOW,
    FEWEST_STEPS,
    GROWTH,
    PROFILE_HEAD_BYTES,
    REGULAR,
    SLOW_AS_FIRST,
    SLOWER_STEP,
)
from align.core.load_code import load_plugins
from align.curves.compare_losses import warm_up
from align.errors import UnreadableProfileError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import IO

    from align.core.parameters import Array
    from align.rules.advice_rules import EvidenceKind

READERS = "align.advice.readers"
GZIP = b"\x1f\x8b"
MILLI, MICRO, NANO = 1e-3, 1e-6, 1e-9  # format: units of profilers, in seconds
PartKind = Literal["data", "forward", "backward", "optimizer", "communication", "host", "start", "whole"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that a file shows: what it costs in all (`seconds`, `share`; None where that is not told), and where.

    `place` is `file:line` or a row, `told` the sentence, `subject` an operator, layer or rank; rules ask `values`.
    """

    kind: EvidenceKind
    seconds: float | None
    share: float | None
    place: str
    told: str
    subject: str = ""
    values: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepPart:
    """A part of a usual step: `seconds` of it, what it is for and what is computed; `example` is its dearest name."""

    kind: PartKind
    operator: str
    seconds: float
    example: str = ""


@dataclass(frozen=True, slots=True)
class SpeedEvidence:
    """What one file says. `step` is the usual time of a step, `total` the time that the file covers, in seconds.

    `parts` add up to a step. `computing` and `waiting` are seconds of a rank on its device.
    """

    file: str
    format: str
    framework: str
    device: str
    steps: int | None = None
    step: float | None = None
    total: float | None = None
    parts: tuple[StepPart, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    computing: float | None = None
    waiting: float | None = None


class ProfileSource:
    """A file that is there, or a folder that is read as one; what it begins with is read once."""

    def __init__(self, path: Path) -> None:
        self.path, self.shown = path, str(path)

    @cached_property
    def name(self) -> str:
        """Its name in small letters, without what says that it is packed."""
        return self.path.name.lower().removesuffix(".gz")

    @cached_property
    def head(self) -> bytes:
        """The first bytes, unpacked; none of a folder."""
        if not self.path.is_file():
            return b""
        with self.opened() as stream:
            return self.read(stream, PROFILE_HEAD_BYTES)

    @cached_property
    def first_line(self) -> str:
        """The first line, as the headers of tables stand there."""
        return self.head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode("utf-8", "replace").strip()

    def opened(self) -> IO[bytes]:
        """The file as a stream of bytes, unpacked; raises UnreadableProfileError."""
        try:
            with self.path.open("rb") as stream:
                packed = stream.read(len(GZIP)) == GZIP
            return cast("IO[bytes]", gzip.open(self.path)) if packed else self.path.open("rb")
        except OSError as error:
            raise UnreadableProfileError(self.shown, error.strerror or str(error)) from error

    def read(self, stream: IO[bytes], most: int = -1) -> bytes:
        """Read some bytes; raises UnreadableProfileError for a damaged file."""
        try:
            return stream.read(most)
        except (OSError, EOFError, zlib.error) as error:
            raise UnreadableProfileError(self.shown, str(error)) from error

    def place(self, line: int) -> str:
        """How a line of it is named."""
        return f"{self.shown}:{line}"

    def damaged(self, error: object) -> UnreadableProfileError:
        """The error of a file that begins as its form does, and does not hold what that form has."""
        return UnreadableProfileError(self.shown, say("profile_fault.damaged", error=error))


class ProfileReader(Protocol):
    """Reads one form of profiles or logs."""

    name: str
    summary: str
    requires: tuple[str, ...]

    def recognizes(self, source: ProfileSource) -> bool:
        """Tell by the name or the beginning whether this plugin reads the source."""
        ...

    def read(self, source: ProfileSource) -> SpeedEvidence | None:
        """Read it; None for one that says nothing of speed. Raises UnreadableProfileError for damage."""
        ...


class ProfilePlugin:
    """What readers share: no packages."""

    requires: tuple[str, ...] = ()


def profile_readers() -> Iterable[ProfileReader]:
    """All forms of files; logs come last, as almost any text may be one."""
    found = cast("list[ProfileReader]", list(load_plugins(READERS).values()))
    return sorted(found, key=lambda reader: getattr(reader, "last", False))


def share_of(seconds: float, total: float | None) -> float | None:
    """A part of the time, at most all of it; None where the whole is not known."""
    return min(seconds / total, 1.0) if total and total > 0 else None


# Tables of profilers as rows by the names of their columns, whatever comes before their header.

T = TypeVar("T")
LINES_BEFORE = 20  # format: lines that a tool says before a table
NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?([eE][+-]?\d+)?$")


def header_of(source: ProfileSource, needed: Sequence[str]) -> int | None:
    """The line, from 0, of a header that has all these columns; None where no line of the beginning is one."""
    lines = source.head.decode("utf-8-sig", "replace").splitlines()[:LINES_BEFORE]
    for at, line in enumerate(lines):
        names = {name.strip() for name in next(csv.reader([line]), [])}
        if names.issuperset(needed):
            return at
    return None


def table_rows(source: ProfileSource, needed: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a table as text by column, each with its line; raises UnreadableProfileError for damage."""
    at = header_of(source, needed)
    if at is None:
        raise source.damaged(say("profile_fault.column", name=", ".join(needed)))
    with source.opened() as stream, io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="") as text:
        for _ in islice(text, at):
            pass
        rows = csv.reader(text)
        names = [name.strip() for name in next(rows)]
        try:
            for cells in rows:
                if len(cells) >= len(names) or (cells and len(cells) > 1):
                    yield at + rows.line_num, dict(zip(names, map(str.strip, cells), strict=False))
        except csv.Error as error:
            raise source.damaged(error) from error


def number(text: str | None) -> float:
    """A cell as a number; 0 for one that is none (`N/A`)."""
    plain = (text or "").strip()
    return float(plain.replace(",", "")) if NUMBER.match(plain) else 0.0


def first_of(row: dict[str, str], names: Sequence[str]) -> str:
    """The cell of the first of these columns that a table has."""
    return next((row[name] for name in names if name in row), "")


# Evidence from the times of steps: the first one, steps that are slow like it, regularly, at epochs, or more and
# more.


@dataclass(frozen=True, slots=True)
class StepSeries:
    """The steps of a training: seconds and waits for data (NaN where not told), each the mean of `spans` steps.

    `place` names a step; `epochs` is None where no epochs are told; `whole` tells whether it begins with step 1.
    """

    seconds: Array
    waits: Array
    spans: Array
    place: Callable[[int], str]
    epochs: Array | None
    whole: bool

    @property
    def total(self) -> float:
        """The time of all steps."""
        return float(np.sum(self.seconds * self.spans))

    @property
    def steady(self) -> Array:
        """Which times are those of usual steps: all but the first ones."""
        return np.arange(len(self.seconds)) >= (warm_up(self.seconds) if len(self.seconds) > 1 else 0)

    @property
    def step(self) -> float:
        """The usual time of a step."""
        return float(np.median(self.seconds[self.steady]))

    def parts(self) -> tuple[StepPart, ...]:
        """What waits for data of a mean step, and what does not."""
        seconds, waits = self.seconds[self.steady], self.waits[self.steady]
        if not np.isfinite(waits).any():
            return (StepPart("whole", "", float(np.mean(seconds))),)
        data = float(np.nanmean(waits))
        return StepPart("data", "", data), StepPart("whole", "", float(np.mean(seconds)) - data)


def step_evidence(series: StepSeries) -> Iterator[Evidence]:
    """All that the times of steps show."""
    yield from _first(series)
    yield from _waiting(series)
    if series.seconds.size < FEWEST_STEPS:
        return
    own = np.where(np.isfinite(series.waits), series.seconds - series.waits, series.seconds)
    slow = series.steady & (series.seconds > SLOWER_STEP * series.step)
    for ask in (_growing, _at_epochs, _like_the_first, _regular, _irregular):
        for evidence, explained in ask(series, own, slow):
            yield evidence
            slow = slow & ~explained


def _excess(series: StepSeries, which: Array) -> float:
    """What these steps take beyond the usual one, in seconds."""
    return float(np.sum((series.seconds[which] - series.step) * series.spans[which]))


def _first(series: StepSeries) -> Iterator[Evidence]:
    starts = ~series.steady
    if not series.whole or not starts.any():
        return
    cost = _excess(series, starts)
    ratio = float(series.seconds[0] * series.spans[0] / series.step)
    if ratio < FAR_SLOWER or cost <= 0:
        return
    share = share_of(cost, series.total)
    count = int(np.sum(series.spans))
    told = sentence("advice_seen.first_step", seconds=cost, ratio=ratio, usual=series.step, count=count)
    yield Evidence("first step", cost, share, series.place(0), told, values={"ratio": ratio, "steps": count})


def _waiting(series: StepSeries) -> Iterator[Evidence]:
    """Waiting for data, without the first steps, in which a loader starts."""
    known = series.steady & np.isfinite(series.waits)
    if not known.any():
        return
    waits = float(np.sum(series.waits[known] * series.spans[known]))
    total = float(np.sum(series.seconds[known] * series.spans[known]))
    if waits <= 0:
        return
    worst = int(np.flatnonzero(known)[np.argmax(series.waits[known])])
    told = sentence("advice_seen.data_wait", seconds=waits, step=waits / float(np.sum(series.spans[known])))
    yield Evidence("data wait", waits, share_of(waits, total), series.place(worst), told, values={"source": "log"})


def _growing(series: StepSeries, computing: Array, _slow: Array) -> Iterator[tuple[Evidence, Array]]:
    """Steps that get slower all the time: each quarter is slower than the one before it."""
    steady = np.flatnonzero(series.steady)
    if len(steady) < FEWEST_GROWING:
        return
    quarters = [float(np.median(computing[part])) for part in np.array_split(steady, 4)]
    if quarters[3] < GROWTH * quarters[0] or any(np.diff(quarters) < (GROWTH - 1.0) / 8 * quarters[0]):
        return
    cost = float(np.sum((computing[steady] - quarters[0]) * series.spans[steady]))
    told = sentence("advice_seen.growing", first=quarters[0], last=quarters[3])
    share = share_of(cost, series.total)
    yield Evidence("growing steps", cost, share, series.place(int(steady[-1])), told), np.ones_like(series.steady)


def _at_epochs(series: StepSeries, _own: Array, slow: Array) -> Iterator[tuple[Evidence, Array]]:
    """The first step of each epoch, as where workers are started anew."""
    if series.epochs is None:
        return
    first = np.append(False, np.diff(series.epochs) != 0)
    at = first & slow
    if int(at.sum()) < FEWEST_SLOW or at.sum() < EPOCHS_SLOW * first.sum():
        return
    cost = _excess(series, at)
    told = sentence("advice_seen.epochs", seconds=cost, count=int(at.sum()))
    place = series.place(int(np.flatnonzero(at)[0]))
    yield Evidence("slow first steps of epochs", cost, share_of(cost, series.total), place, told), at


def _like_the_first(series: StepSeries, computing: Array, slow: Array) -> Iterator[tuple[Evidence, Array]]:
    """Steps that take far longer than usual without waiting for data, nearly as long as the first one."""
    usual = float(np.median(computing[series.steady]))
    first = float(computing[0] * series.spans[0]) if series.whole else np.inf
    own_excess = (computing - usual) * series.spans
    like = slow & (computing > FAR_SLOWER * usual) & (own_excess > SLOW_AS_FIRST * (first - usual))
    if int(like.sum()) < FEWEST_SLOW:
        return
    cost = float(np.sum(own_excess[like]))
    count, place = int(like.sum()), series.place(int(np.flatnonzero(like)[0]))
    told = sentence("advice_seen.like_first", count=count, seconds=cost, first=first)
    values = {"count": float(count), "each": cost / count}
    yield Evidence("slow as the first step", cost, share_of(cost, series.total), place, told, values=values), like


def _regular(series: StepSeries, computing: Array, slow: Array) -> Iterator[tuple[Evidence, Array]]:
    """Slow steps at equal distances: as many workers as lie between two, or something done each so many steps."""
    at = np.flatnonzero(slow)
    if len(at) <= FEWEST_SLOW:
        return
    (period, often), *_ = Counter(np.diff(at).tolist()).most_common(1)
    if period < 2 or often < REGULAR * (len(at) - 1):
        return
    cost = _excess(series, slow)
    by_data = float(np.sum(computing[slow])) / float(np.sum(series.seconds[slow])) < 1.0 / SLOWER_STEP
    told = sentence("advice_seen.regular", period=period, count=len(at), seconds=cost)
    values: dict[str, float | str] = {"period": float(period), "waits": str(by_data)}
    place = series.place(int(at[0]))
    yield Evidence("periodic slow steps", cost, share_of(cost, series.total), place, told, values=values), slow


def _irregular(series: StepSeries, _own: Array, slow: Array) -> Iterator[tuple[Evidence, Array]]:
    if int(slow.sum()) < FEWEST_SLOW:
        return
    cost, at = _excess(series, slow), np.flatnonzero(slow)
    told = sentence("advice_seen.irregular", count=len(at), seconds=cost)
    worst = series.place(int(at[np.argmax(series.seconds[at])]))
    yield Evidence("slow steps", cost, share_of(cost, series.total), worst, told), slow
