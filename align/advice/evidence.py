"""What files say of the speed of a training, whatever their form: parts of a step, and evidence for rules of advice.

A reader takes a file apart into one `SpeedEvidence`; it judges nothing. Seconds of evidence are those of all that its
file covers, shares are of the same.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, cast

from align.advice.thresholds import PROFILE_HEAD_BYTES
from align.core.load_code import load_plugins
from align.errors import UnreadableProfileError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import IO

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
