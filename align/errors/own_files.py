"""Files of mindalign itself: name maps, rules, `align.toml` with its limits, run folders and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.errors.base import CannotRunError, as_lines, with_lines
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from typing_extensions import Self

    from align.words.catalogue import Note


class OpenNamesError(CannotRunError):
    """Names that cannot be decided: `lines` are all of them, `folded` what is shown instead. Nothing was written."""

    def __init__(self, lines: Sequence[str], hint: str, folded: Sequence[str] = ()) -> None:
        are_open = "1 name is open" if len(lines) == 1 else f"{len(lines):,} names are open"
        super().__init__(f"{are_open}, nothing was written{as_lines(folded or lines)}", hint)
        self.lines = tuple(lines)


class MapError(CannotRunError):
    """A name map or rule file with faults; `faults` are all of them."""

    def __init__(self, source: Path | str, faults: Sequence[str], hint: str = "docs/map.md describes the file") -> None:
        super().__init__(with_lines(f"{source} cannot be used as a name map", faults), hint)
        self.faults = tuple(faults)

    @classmethod
    def of_one(cls, source: Path | str, key: str, **facts: object) -> Self:
        """The error of one fault, whose text and hint stand under `key` in the catalogue."""
        fault, hint = texts(key, **facts)
        return cls(source, [fault], hint)

    @classmethod
    def of_notes(cls, source: Path | str, notes: Iterable[Note]) -> Self:
        """The error of all faults that the notes tell."""
        return cls(source, [say(key, **facts) for key, facts in notes])


class MappingRuleError(CannotRunError):
    """A rule file under `mappings/` that breaks the schema."""

    MISSING = "the rule files are missing; the installation is broken"
    WORD_LISTS = "expected tables of lists of words and nothing else"

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}", "CONTRIBUTING.md describes the rule files")


class PitfallFileError(CannotRunError):
    """Rule files under `mappings/pitfalls` with faults; all of them are listed."""

    def __init__(self, folder: Path | str, faults: Sequence[str]) -> None:
        message = with_lines(f"rules in {folder} break the schema", faults)
        super().__init__(message, "CONTRIBUTING.md describes the rule files")
        self.faults = tuple(faults)


class ProjectFileError(CannotRunError):
    """An `align.toml` with faults; all of them are listed."""

    def __init__(
        self, path: Path | str, faults: Sequence[str], hint: str = "docs/project-file.md describes the file"
    ) -> None:
        super().__init__(with_lines(f"{path} cannot be used", faults), hint)
        self.faults = tuple(faults)


class UnusedPatternsError(CannotRunError):
    """Limits or accepted deviations that fit no paired layer, each with the paths that come closest."""

    def __init__(self, close: Mapping[str, Sequence[str]]) -> None:
        lines = [f"{glob!r}" + (f": close are {', '.join(names)}" if names else "") for glob, names in close.items()]
        hint = "write the path of a layer of either side, or a glob such as `decoder.*.norm`"
        super().__init__(with_lines("limits or accepted deviations fit no paired layer", lines), hint)
        self.close = dict(close)


class RunFolderError(CannotRunError):
    """A run folder that is missing, empty or of another schema."""


class FolderInUseError(CannotRunError):
    """A folder that another process works in; `holder` is its process number, host and start, None if it is unknown."""

    def __init__(self, what: str, holder: tuple[int, str, str] | None) -> None:
        who = "another process" if holder is None else f"process {holder[0]} on {holder[1]} since {holder[2]}"
        hint = "wait until that process has ended, or name another folder; its lock goes with it, however it ends"
        super().__init__(f"{what} is in use by {who}", hint)
        self.holder = holder


class ReportError(CannotRunError):
    """A report that could not be made; no verdict depends on it."""
