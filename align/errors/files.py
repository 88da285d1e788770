"""Checkpoints that cannot be read or written."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from align.errors.base import CannotRunError, as_lines, with_lines
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from typing_extensions import Self

    from align.words.catalogue import Note

ERROR_NAMES: Final = 12
"""Names of entries or formats that a message lists on one line.
Choice: fewer may leave out the one that was meant, more fill several lines before the hint."""
FILE_PROBLEM_LINES: Final = 200
"""Lines where each names a file of a checkpoint, all of which the user has to get again.
Choice: large checkpoints have about that many files; more would hide the first lines in most terminals."""


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
    """Files that do not make one checkpoint, by their index or as parts that ranks wrote; what is wrong is listed."""

    def __init__(self, path: Path | str, problems: Sequence[str], *, of_ranks: bool = False) -> None:
        fault, hint = texts("checkpoint_error.ranks") if of_ranks else texts("checkpoint_error.shards")
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
        super().__init__(path, *texts(key, count=len(keys), listed=listed, left=left, path=str(path)))
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
        self.keys = (*modules, *([] if beside is None else [beside]))


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


class UnreadableProfileError(CannotRunError):
    """A profile that is damaged, or files of which none says anything of speed or memory."""

    def __init__(self, place: str, reason: str, hint: str = "") -> None:
        super().__init__(say("profile_fault.unreadable", place=place, reason=reason), hint or say("profile_fault.hint"))


def _name(source: Path | str) -> str:
    """What a source is called: a text keeps its key."""
    return source if isinstance(source, str) else str(source)


# Training logs that cannot be read, and curves that cannot be compared.


class UnreadableLogError(CannotRunError):
    """A log that cannot be read, whatever stands in it."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(*texts("log_error.unreadable", path=str(path), reason=reason))


class EmptyLogError(CannotRunError):
    """A log in which no line could be read as a training step."""

    def __init__(self, path: Path | str, looked_for: Iterable[str], hint: str = "") -> None:
        lines = say("fault_list.lines", lines=[*looked_for])
        message, usual = texts("log_error.empty", path=str(path), lines=lines)
        super().__init__(message, hint or usual)


class UnknownLogError(EmptyLogError):
    """Files that no format knows, and whose lines tell no steps and losses; `line` of the first shows what is there."""

    SHOWN = 110

    def __init__(
        self, files: Sequence[str], number: int = 0, line: str = "", pattern: str = "", series: Sequence[str] = ()
    ) -> None:
        self.files = tuple(files)
        shown = line if len(line) <= self.SHOWN else line[: self.SHOWN] + " ..."
        of_file = "" if len(self.files) == 1 else self.files[0]
        facts = {
            "files": self.files,
            "shown": say("log_error.shown", number=number, file=of_file, line=shown) if line else "",
            "metrics": say("log_error.by_metric", series=[*series]) if series else "",
            "pattern": say("log_error.by_pattern", option=f"--pattern {shlex.quote(pattern)}") if pattern else "",
        }
        CannotRunError.__init__(self, *texts("log_error.unknown", **facts))


class NoStepError(CannotRunError):
    """A log in which nothing that stands for a step is one; the first is `text` in line `line`."""

    def __init__(self, label: str, line: int, text: str) -> None:
        super().__init__(*texts("log_error.no_step", label=label, text=text, line=line))


class NoNumberError(CannotRunError):
    """A log in which nothing that stands for a loss is a number; the first is `text` in line `line`."""

    def __init__(self, label: str, line: int, text: str) -> None:
        super().__init__(*texts("log_error.no_number", label=label, text=text, line=line))


class AmbiguousLogError(CannotRunError):
    """Logs in which several formats find their lines; `formats` names those of each file."""

    SHOWN = 3

    def __init__(self, path: Path | str, formats: Mapping[str, Iterable[str]]) -> None:
        files: dict[str, list[str]] = {}
        for file, names in formats.items():
            files.setdefault(", ".join(names), []).append(file)
        if len(files) == 1:
            super().__init__(*texts("log_error.one_kind", path=str(path), formats=next(iter(files))))
            return
        lines = say("fault_list.lines", lines=[self._line(names, found) for names, found in files.items()])
        super().__init__(*texts("log_error.several_kinds", path=str(path), lines=lines))

    def _line(self, names: str, files: list[str]) -> str:
        left = max(len(files) - self.SHOWN, 0)
        return say("log_error.formats_of_files", formats=names, files=files[: self.SHOWN], left=left)


class SeveralLossesError(CannotRunError):
    """A log that no format knows, with lines in which several numbers may be the loss; the first is line `line`."""

    def __init__(self, label: Path | str, line: int, names: Sequence[str], series: Sequence[str] = ()) -> None:
        facts = {"label": str(label), "line": line, "names": [*names], "series": [*(series or names)]}
        super().__init__(*texts("log_error.several_losses", **facts))


class SeveralRunsError(CannotRunError):
    """A log that goes back so that a short last run would replace longer ones: `kept` steps stand from `line` on."""

    def __init__(self, label: Path | str, kept: int, replaced: int, line: int) -> None:
        facts = {"label": str(label), "kept": kept, "replaced": replaced, "line": line}
        super().__init__(*texts("log_error.several_runs", **facts))


class UnorderedLogError(CannotRunError):
    """A log whose lines are out of order so that they cannot be sorted; `reason` is one of `[unordered_log]`."""

    def __init__(self, label: Path | str, metric: str, reason: str) -> None:
        why = say(f"unordered_log.{reason.replace(' ', '_')}")
        message, hint = texts("log_error.unordered", label=str(label), metric=metric, reason=why)
        super().__init__(message, say("log_error.epochs_or_runs") if reason == "passes" else hint)


class UnlikeLogsError(CannotRunError):
    """Files that are no parts of one log."""

    def __init__(self, first: str, other: str, reason: str) -> None:
        super().__init__(*texts("log_error.unlike", first=first, other=other, reason=reason))


class RepeatedColumnError(CannotRunError):
    """A log in which a name that is needed stands for two values at once; `lines` gives the first line of each."""

    def __init__(self, label: str, lines: Mapping[str, int]) -> None:
        columns = [say("log_error.column", name=name, line=line) for name, line in lines.items()]
        super().__init__(*texts("log_error.repeated_column", label=label, columns=columns))


class MetricMissingError(CannotRunError):
    """A log without the metric that was asked for."""

    def __init__(self, label: str, metric: str, available: Iterable[str]) -> None:
        super().__init__(*texts("log_error.no_metric", label=label, metric=metric, available=[*available]))


class StepsPerEpochError(CannotRunError):
    """A log that counts steps inside the epoch, where the length of an epoch is not known or contradicts the log."""

    def __init__(self, label: str, reason: str, hint: str = "") -> None:
        message, usual = texts("log_error.global_step", label=label, reason=reason)
        super().__init__(message, hint or usual)
        self.reason = reason


class UnknownEpochLengthError(StepsPerEpochError):
    """A log that leaves the length of an epoch open: it can be described, but not compared."""


class UnlikeCurvesError(CannotRunError):
    """Two curves whose values are not the same kind of thing: to compare them would mean nothing."""

    def __init__(self, reference: str, candidate: str, reason: str, hint: str) -> None:
        sides = {"reference": reference, "candidate": candidate}
        super().__init__(say("log_error.unlike_curves", reason=reason, **sides), hint)


class GroupedStepsError(CannotRunError):
    """A curve of which several steps should be taken as one, but no group of them is whole.

    `apart` is the distance of its values where they would have to be averaged over all steps of a group, None where
    one that is printed at the end of a group could be taken as it is.
    """

    def __init__(self, label: str, metric: str, size: int, last_step: int, apart: int | None) -> None:
        facts: dict[str, object] = {"metric": metric, "label": label, "size": size}
        if last_step < size:
            super().__init__(*texts("log_error.short_group", last=last_step, **facts))
        elif apart is None:
            super().__init__(*texts("log_error.no_group", **facts))
        else:
            super().__init__(*texts("log_error.apart", apart=apart, **facts))


class MixedJobsError(CannotRunError):
    """A log of several jobs; `jobs` has of each its first and last line and its total of steps."""

    SHOWN = 6

    def __init__(self, label: str, jobs: Sequence[tuple[int, int, int]]) -> None:
        lines = [
            say("log_error.job", number=number, first=first, last=last, total=total)
            for number, (first, last, total) in enumerate(jobs[: self.SHOWN], start=1)
        ]
        if len(jobs) > self.SHOWN:
            lines.append(say("log_error.more_jobs", count=len(jobs) - self.SHOWN))
        super().__init__(*texts("log_error.mixed_jobs", label=label, count=len(jobs), jobs=lines))


class MixedProcessesError(CannotRunError):
    """A log that has about `each` unlike values of most steps."""

    def __init__(self, label: str, metric: str, each: int) -> None:
        super().__init__(*texts("log_error.mixed_processes", label=label, each=each, metric=metric))
