"""Checkpoints that cannot be read or written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.errors.base import CannotRunError, as_lines, with_lines
from align.errors.thresholds import ERROR_NAMES, FILE_PROBLEM_LINES
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from typing_extensions import Self

    from align.words.catalogue import Note


class NotACheckpointError(CannotRunError):
    """A file that is none of the known checkpoint formats, or a damaged one."""

    def __init__(self, path: Path | str, reason: str, known: Iterable[str] = (), hint: str = "") -> None:
        facts = {"path": str(path), "reason": reason, "known": sorted(known)}
        message, usual = texts("checkpoint_error.not_readable", **facts)
        super().__init__(message, hint or usual)


class HostileFileError(NotACheckpointError):
    """A checkpoint that claims what a sound writer never writes."""

    def __init__(self, path: Path | str, reason: str, hint: str = "") -> None:
        super().__init__(path, reason)
        self.hint = hint or say("checkpoint_error.not_to_trust")


class ShardsError(NotACheckpointError):
    """An index and files that do not make one checkpoint; what is wrong is listed."""

    def __init__(self, path: Path | str, problems: Sequence[str]) -> None:
        fault, hint = texts("checkpoint_error.shards")
        super().__init__(path, with_lines(fault, problems, FILE_PROBLEM_LINES), hint=hint)
        self.problems = tuple(problems)


class UnsupportedCheckpointError(CannotRunError):
    """A sound file of a known kind that cannot be read as named tensors; the hint says what to save instead."""

    def __init__(self, path: Path | str, reason: str, hint: str) -> None:
        super().__init__(say("checkpoint_error.unsupported", path=str(path), reason=reason), hint)


class SeveralEntriesError(UnsupportedCheckpointError):
    """A nested file in which several entries, by key, could be the weights."""

    def __init__(self, path: Path | str, keys: Sequence[str]) -> None:
        listed = [repr(key) if key else say("checkpoint_error.top_level") for key in keys[:ERROR_NAMES]]
        left = max(len(keys) - ERROR_NAMES, 0)
        key = "checkpoint_error.several_entries"
        super().__init__(path, *texts(key, count=len(keys), listed=listed, left=left))
        self.keys = tuple(keys)


class NeedsItsCodeError(UnsupportedCheckpointError):
    """A file that only the code which it names can open."""

    def __init__(self, path: Path | str, reason: str, instead: str) -> None:
        super().__init__(path, reason, say("checkpoint_error.trust", instead=instead))
        self.path = path


class WholeModuleError(NeedsItsCodeError):
    """A file with whole pickled modules by key, of which one could be the weights; `beside` is an entry no deeper."""

    def __init__(self, path: Path | str, modules: Mapping[str, str], beside: str | None = None) -> None:
        under = "checkpoint_error.module_under"
        listed = [say(under, name=name, entry=key) if key else name for key, name in modules.items()]
        quoted = "" if beside is None else repr(beside)
        super().__init__(path, *texts("checkpoint_error.module", listed=listed, beside=quoted))


class UnsupportedTensorsError(UnsupportedCheckpointError):
    """Tensors of a kind that has no plain form, all of them named; `remedy` is for the first."""

    def __init__(self, path: Path | str, reasons: Sequence[str], remedy: str) -> None:
        shown, left = [*reasons[:ERROR_NAMES]], max(len(reasons) - ERROR_NAMES, 0)
        super().__init__(path, say("checkpoint_error.tensors", reasons=shown, left=left), remedy)


class MissingEntryError(CannotRunError):
    """A key that the file does not have, or a file that has none."""

    def __init__(self, path: Path | str, key: str, known: Sequence[str]) -> None:
        listed = [repr(name) if name else say("checkpoint_error.key_of_top_level") for name in known[:ERROR_NAMES]]
        facts: dict[str, object] = {"path": str(path), "entry": key}
        super().__init__(
            *texts("checkpoint_error.no_entry", known=listed, **facts)
            if known
            else texts("checkpoint_error.no_entries", **facts)
        )


class MissingClassError(CannotRunError):
    """A trusted file that needs a class or function which cannot be imported here."""

    def __init__(self, path: Path | str, needed: str, reason: str) -> None:
        facts = {"path": str(path), "needed": needed, "reason": reason}
        super().__init__(*texts("checkpoint_error.missing_class", **facts))


class DestinationError(CannotRunError):
    """The destination cannot be written, or would overwrite something."""


class NoSpaceError(DestinationError):
    """No room for what is to be written: `needed` bytes (0 where that is unknown), `free` ones."""

    def __init__(self, path: Path | str, needed: int, free: int, reason: str = "") -> None:
        super().__init__(*texts("no_space.at", path=str(path), needed=needed, free=free, reason=reason))


class VerificationError(CannotRunError):
    """What was written does not read back as what was meant; the written file was removed."""

    def __init__(self, path: Path | str, problems: Sequence[str]) -> None:
        fault, hint = texts("checkpoint_error.not_verified", path=str(path))
        super().__init__(with_lines(fault, problems), hint)


# Files of mindalign itself: name maps, rules, `align.toml` with its limits, run folders and reports.


class OpenNamesError(CannotRunError):
    """Names that cannot be decided: `lines` are all of them, `folded` what is shown instead. Nothing was written."""

    def __init__(self, lines: Sequence[str], hint: str, folded: Sequence[str] = ()) -> None:
        super().__init__(say("map_error.open", count=len(lines), lines=as_lines(folded or lines)), hint)
        self.lines = tuple(lines)


class MapError(CannotRunError):
    """A name map or rule file with faults; `faults` are all of them."""

    def __init__(self, source: Path | str, faults: Sequence[str], hint: str = "") -> None:
        fault, usual = texts("map_error.not_usable", source=_name(source))
        super().__init__(with_lines(fault, faults), hint or usual)
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

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(*texts("rule_error.of_file", path=str(path), reason=reason))


class PitfallFileError(CannotRunError):
    """Rule files under `mappings/pitfalls` with faults; all of them are listed."""

    def __init__(self, folder: Path | str, faults: Sequence[str]) -> None:
        fault, hint = texts("rule_error.pitfalls", folder=str(folder))
        super().__init__(with_lines(fault, faults), hint)
        self.faults = tuple(faults)


class ProjectFileError(CannotRunError):
    """An `align.toml` with faults; all of them are listed."""

    def __init__(self, path: Path | str, faults: Sequence[str], hint: str = "") -> None:
        fault, usual = texts("project_error.not_usable", path=str(path))
        super().__init__(with_lines(fault, faults), hint or usual)
        self.faults = tuple(faults)


class UnusedPatternsError(CannotRunError):
    """Limits or accepted deviations that fit no paired layer, each with the paths that come closest."""

    def __init__(self, close: Mapping[str, Sequence[str]]) -> None:
        lines = [say("unused_pattern.close", glob=glob, names=[*names]) for glob, names in close.items()]
        fault, hint = texts("unused_pattern.fits_none")
        super().__init__(with_lines(fault, lines), hint)
        self.close = dict(close)


class RunFolderError(CannotRunError):
    """A run folder that is missing, empty or of another schema."""


class FolderInUseError(CannotRunError):
    """A folder that another process works in; `holder` is its process number, host and start, None if it is unknown."""

    def __init__(self, what: str, holder: tuple[int, str, str] | None) -> None:
        facts = {} if holder is None else dict(zip(("number", "host", "start"), holder, strict=True))
        who = say("folder_in_use.process", **facts) if facts else say("folder_in_use.another")
        super().__init__(*texts("folder_in_use.by", what=what, who=who))
        self.holder = holder


class ReportError(CannotRunError):
    """A report that could not be made; no verdict depends on it."""


# Settings of trainings that cannot be read.


class UnreadableSettingsError(CannotRunError):
    """A file that holds no settings, is damaged, or asks for more than any configuration does."""

    def __init__(self, place: str, reason: str, hint: str = "") -> None:
        message = say("settings_fault.unreadable", place=place, reason=reason)
        super().__init__(message, hint or say("settings_fault.hint"))


def _name(source: Path | str) -> str:
    """What a source is called: a text keeps its key."""
    return source if isinstance(source, str) else str(source)
