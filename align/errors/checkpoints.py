"""Checkpoints that cannot be read or written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.errors.base import CannotRunError, with_lines
from align.errors.thresholds import ERROR_NAMES, FILE_PROBLEM_LINES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


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
