"""Training logs that cannot be read, and curves that cannot be compared."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from align.errors.base import CannotRunError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


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
