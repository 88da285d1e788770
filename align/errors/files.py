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
        formats = ", ".join(sorted(known))
        expected = f"; expected one of: {formats}" if formats else ""
        super().__init__(
            f"{path} is not a readable checkpoint: {reason}{expected}",
            hint or "`align plugins` lists the formats; a file that was cut short must be copied again",
        )


class HostileFileError(NotACheckpointError):
    """A checkpoint that claims what a sound writer never writes."""

    def __init__(self, path: Path | str, reason: str, hint: str = "") -> None:
        super().__init__(path, reason)
        self.hint = hint or "no sound writer makes such a file: do not trust it; save it again where it comes from"


class ShardsError(NotACheckpointError):
    """An index and files that do not make one checkpoint; what is wrong is listed."""

    def __init__(self, path: Path | str, problems: Sequence[str]) -> None:
        super().__init__(path, with_lines("its files do not make one checkpoint", problems, FILE_PROBLEM_LINES))
        self.hint = "put all files of one download or save beside the index, and nothing of another"
        self.problems = tuple(problems)


class UnsupportedCheckpointError(CannotRunError):
    """A sound file of a known kind that cannot be read as named tensors; the hint says what to save instead."""

    def __init__(self, path: Path | str, reason: str, hint: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}", hint)


class SeveralEntriesError(UnsupportedCheckpointError):
    """A nested file in which several entries, by key, could be the weights."""

    def __init__(self, path: Path | str, keys: Sequence[str]) -> None:
        listed = ", ".join(repr(key) if key else "the top level" for key in keys[:ERROR_NAMES])
        more = f" and {len(keys) - ERROR_NAMES} more" if len(keys) > ERROR_NAMES else ""
        super().__init__(
            path,
            f"{len(keys)} of its entries could be the weights: {listed}{more}",
            "choose one with --key, or save the one that is meant in a file of its own; `align inspect` lists them; "
            "where they are parts of one model, save them as one dict, each name behind that of its part: "
            "{f'{part}.{name}': value for part in parts for name, value in file[part].items()}",
        )
        self.keys = tuple(keys)


class NeedsItsCodeError(UnsupportedCheckpointError):
    """A file that only the code which it names can open."""

    def __init__(self, path: Path | str, reason: str, instead: str) -> None:
        trusted = "or add --trust-pickle, which has torch run the code in the file: only for files that you trust"
        super().__init__(path, reason, f"{instead}, {trusted}")
        self.path = path


class WholeModuleError(NeedsItsCodeError):
    """A file with whole pickled modules by key, of which one could be the weights; `beside` is an entry no deeper."""

    def __init__(self, path: Path | str, modules: Mapping[str, str], beside: str | None = None) -> None:
        listed = ", ".join(f"{name} under {key!r}" if key else name for key, name in modules.items())
        also = f", beside tensors under {beside!r}" if beside is not None else ""
        choose = f"choose the tensors with --key {beside!r}, or " if beside is not None else ""
        super().__init__(
            path,
            f"it holds a whole pickled module, {listed}{also}",
            f"{choose}save model.state_dict() where the module's code is at home",
        )


class UnsupportedTensorsError(UnsupportedCheckpointError):
    """Tensors of a kind that has no plain form, all of them named; `remedy` is for the first."""

    def __init__(self, path: Path | str, reasons: Sequence[str], remedy: str) -> None:
        more = f"; and {len(reasons) - ERROR_NAMES} more" if len(reasons) > ERROR_NAMES else ""
        super().__init__(path, "; ".join(reasons[:ERROR_NAMES]) + more, remedy)


class MissingEntryError(CannotRunError):
    """A key that the file does not have, or a file that has none."""

    def __init__(self, path: Path | str, key: str, known: Sequence[str]) -> None:
        listed = ", ".join(repr(name) if name else "'' (the top level)" for name in known[:ERROR_NAMES])
        super().__init__(
            f"{path} has no tensors under the key {key!r}",
            f"its entries with tensors: {listed}" if known else "this format has no entries: leave --key out",
        )


class MissingClassError(CannotRunError):
    """A trusted file that needs a class or function which cannot be imported here."""

    def __init__(self, path: Path | str, needed: str, reason: str) -> None:
        super().__init__(
            f"{path} needs {needed}, which cannot be imported here: {reason}",
            "install the package that has it, or start align in the folder of the code that saved the file",
        )


class DestinationError(CannotRunError):
    """The destination cannot be written, or would overwrite something."""


class NoSpaceError(DestinationError):
    """No room for what is to be written: `needed` bytes (0 where that is unknown), `free` ones."""

    def __init__(self, path: Path | str, needed: int, free: int, reason: str = "") -> None:
        wanted = f"{needed:,} bytes are needed, " if needed else ""
        because = f" ({reason})" if reason else ""
        super().__init__(
            f"no room at {path}: {wanted}{free:,} bytes are free{because}",
            "free some space, raise the quota or the limit on file sizes, or name a destination on another disk",
        )


class VerificationError(CannotRunError):
    """What was written does not read back as what was meant; the written file was removed."""

    def __init__(self, path: Path | str, problems: Sequence[str]) -> None:
        super().__init__(
            with_lines(f"{path} does not hold what was to be written, and was removed", problems),
            "the disk or the memory may be failing; convert again",
        )


# Files of mindalign itself: name maps, rules, `align.toml` with its limits, run folders and reports.


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
        super().__init__(f"{path}: {reason}", "docs/extending.md describes the rule files")


class PitfallFileError(CannotRunError):
    """Rule files under `mappings/pitfalls` with faults; all of them are listed."""

    def __init__(self, folder: Path | str, faults: Sequence[str]) -> None:
        message = with_lines(f"rules in {folder} break the schema", faults)
        super().__init__(message, "docs/extending.md describes the rule files")
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


# Settings of trainings that cannot be read.


class UnreadableSettingsError(CannotRunError):
    """A file that holds no settings, is damaged, or asks for more than any configuration does."""

    def __init__(self, place: str, reason: str, hint: str = "") -> None:
        super().__init__(f"cannot read settings from {place}: {reason}", hint or say("settings_fault.hint"))
