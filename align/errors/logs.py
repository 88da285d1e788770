"""Training logs that cannot be read, and curves that cannot be compared."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, ClassVar

from align.errors.base import CannotRunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


class UnreadableLogError(CannotRunError):
    """A log that cannot be read, whatever stands in it."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"cannot read the log {path}: {reason}", "check the file, or give another one")


class EmptyLogError(CannotRunError):
    """A log in which no line could be read as a training step."""

    ONE_FORMAT = "leave the format out, and the content tells it; `align plugins` lists the formats"
    COLUMNS = "a step column (global_step, step, iter, epoch ...) and a loss column (loss, train_loss, train/loss ...)"
    OWN_PATTERN = "try the expression on one line of the log; it has to be found within a line, by itself"

    def __init__(self, path: Path | str, looked_for: Iterable[str], hint: str = ONE_FORMAT) -> None:
        formats = "".join(f"\n  {line}" for line in looked_for)
        super().__init__(f"no loss found in {path}; looked for:{formats}", hint)


class UnknownLogError(EmptyLogError):
    """Files that no format knows, and whose lines tell no steps and losses; `line` of the first shows what is there."""

    SHOWN = 110

    def __init__(
        self, files: Sequence[str], number: int = 0, line: str = "", pattern: str = "", series: Sequence[str] = ()
    ) -> None:
        self.files = tuple(files)
        shown = line if len(line) <= self.SHOWN else line[: self.SHOWN] + " ..."
        of_file = "" if len(self.files) == 1 else f" of {self.files[0]}"
        such = f", such as line {number}{of_file}:\n  {shown}" if line else ""
        option = f"--pattern {shlex.quote(pattern)}"
        start = f"name them by a regular expression, starting from\n  {option}\n" if pattern else ""
        start = f"choose one of its numbers with --metric NAME: {', '.join(series)}\n{start}" if series else start
        CannotRunError.__init__(
            self,
            f"no loss found in {', '.join(self.files)}: no line tells a step (or epoch) and a loss{such}",
            f"{start}a CSV or JSONL log needs a step and a loss column; `align plugins` lists the formats",
        )


class NoStepError(CannotRunError):
    """A log in which nothing that stands for a step is one; the first is `text` in line `line`."""

    def __init__(self, label: str, line: int, text: str) -> None:
        super().__init__(
            f"{label} has no step that is a whole number from 0 to 2^31 - 1: the first is {text!r} in line {line}",
            "log the number of the step; a column of another kind needs another name than step, iter, epoch ...",
        )


class NoNumberError(CannotRunError):
    """A log in which nothing that stands for a loss is a number; the first is `text` in line `line`."""

    def __init__(self, label: str, line: int, text: str) -> None:
        super().__init__(
            f"{label} has no loss that is a number: the first is {text!r} in line {line}",
            "write numbers with a decimal point and nothing between or around their digits, such as 11064.5",
        )


class AmbiguousLogError(CannotRunError):
    """Logs in which several formats find their lines; `formats` names those of each file."""

    SHOWN = 3

    def __init__(self, path: Path | str, formats: Mapping[str, Iterable[str]]) -> None:
        files: dict[str, list[str]] = {}
        for file, names in formats.items():
            files.setdefault(", ".join(names), []).append(file)
        found = f" {next(iter(files))}" if len(files) == 1 else "".join(map(self._line, files.items()))
        super().__init__(
            f"{path} holds lines of several log formats:{found}",
            "name the one to read with --format (--candidate-format for the candidate)",
        )

    def _line(self, found: tuple[str, list[str]]) -> str:
        names, files = found
        more = f" and {len(files) - self.SHOWN} more" if len(files) > self.SHOWN else ""
        return f"\n  {names}: {', '.join(files[: self.SHOWN])}{more}"


class SeveralLossesError(CannotRunError):
    """A log that no format knows, with lines in which several numbers may be the loss; the first is line `line`."""

    def __init__(self, label: Path | str, line: int, names: Sequence[str], series: Sequence[str] = ()) -> None:
        super().__init__(
            f"several numbers of {label} could be the loss, as line {line} shows: {', '.join(names)}",
            f"choose one of its numbers with --metric NAME: {', '.join(series or names)}; or say which is the loss "
            "with --pattern: a regular expression with the groups step (or epoch) and loss",
        )


class SeveralRunsError(CannotRunError):
    """A log that goes back so that a short last run would replace longer ones: `kept` steps stand from `line` on."""

    def __init__(self, label: Path | str, kept: int, replaced: int, line: int) -> None:
        super().__init__(
            f"{label} holds several runs, or epochs that its lines do not number: {kept} steps stand (from line {line} "
            f"on), and would replace {replaced} other points",
            "put the lines of one run in a file of its own, or write --pattern with a group epoch",
        )


class UnorderedLogError(CannotRunError):
    """A log whose lines are out of order so that they cannot be sorted, for one of the `REASONS`."""

    REASONS: ClassVar[Mapping[str, str]] = {
        "unlike values": "some steps have several values, and which is the later one is not known",
        "counters above": "their steps or epochs stand in other lines above them",
        "steps between": "it goes back, and tells other steps than it told there before: these may be two runs",
        "passes": "its steps start again after the same last one each time, as they do in epochs that are not "
        "numbered, and where a run is written into the same file once more",
    }
    EPOCHS_OR_RUNS = (
        "say that they are epochs by their length (--reference-steps-per-epoch N or --candidate-steps-per-epoch N), or "
        "put the lines of one run in a file of its own"
    )

    def __init__(self, label: Path | str, metric: str, reason: str) -> None:
        super().__init__(
            f"the lines of {label} are not in the order of their steps, and those with {metric!r} cannot be sorted: "
            + self.REASONS[reason],
            self.EPOCHS_OR_RUNS
            if reason == "passes"
            else "put the lines of one run in a file of its own, in the order in which they were printed",
        )


class UnlikeLogsError(CannotRunError):
    """Files that are no parts of one log."""

    def __init__(self, first: str, other: str, reason: str) -> None:
        super().__init__(
            f"{first} and {other} cannot be read as one log: {reason}", "give only the files of one training"
        )


class RepeatedColumnError(CannotRunError):
    """A log in which a name that is needed stands for two values at once; `lines` gives the first line of each."""

    def __init__(self, label: str, lines: Mapping[str, int]) -> None:
        found = ", ".join(f"{name!r} (first: line {line})" for name, line in lines.items())
        super().__init__(
            f"{label} has two columns of one name with unlike values: {found}", "give each column a name of its own"
        )


class MetricMissingError(CannotRunError):
    """A log without the metric that was asked for."""

    def __init__(self, label: str, metric: str, available: Iterable[str]) -> None:
        super().__init__(
            f"{label} has no metric {metric!r}; it has: {', '.join(available)}", "choose one of them with --metric"
        )


class StepsPerEpochError(CannotRunError):
    """A log that counts steps inside the epoch, where the length of an epoch is not known or contradicts the log."""

    GIVE_IT = "give the number of steps in an epoch with --reference-steps-per-epoch or --candidate-steps-per-epoch"

    def __init__(self, label: str, reason: str, hint: str = GIVE_IT) -> None:
        super().__init__(f"the global step of {label} cannot be told: {reason}", hint)
        self.reason = reason


class UnknownEpochLengthError(StepsPerEpochError):
    """A log that leaves the length of an epoch open: it can be described, but not compared."""


class UnlikeCurvesError(CannotRunError):
    """Two curves whose values are not the same kind of thing: to compare them would mean nothing."""

    def __init__(self, reference: str, candidate: str, reason: str, hint: str) -> None:
        super().__init__(f"{reference} and {candidate} cannot be compared: {reason}", hint)


class GroupedStepsError(CannotRunError):
    """A curve of which several steps should be taken as one, but no group of them is whole.

    `apart` is the distance of its values where they would have to be averaged over all steps of a group, None where
    one that is printed at the end of a group could be taken as it is.
    """

    def __init__(self, label: str, metric: str, size: int, last_step: int, apart: int | None) -> None:
        fault = f"the {metric} of {label} cannot be told for {size} steps as one"
        if last_step < size:
            super().__init__(f"{fault}: its last step is {last_step}", "--steps-per says how many steps are one")
        elif apart is None:
            hint = f"log every step, or at multiples of {size}"
            super().__init__(f"{fault}: no value is about such groups of steps", hint)
        else:
            why = f"of no group it has all steps, as it tells of single ones that are {apart} apart"
            super().__init__(f"{fault}: {why}", "log every step, or means since the last print")


class MixedJobsError(CannotRunError):
    """A log of several jobs; `jobs` has of each its first and last line and its total of steps."""

    SHOWN = 6

    def __init__(self, label: str, jobs: Sequence[tuple[int, int, int]]) -> None:
        listed = [f"\n  job {n}: lines {a} to {b}, {total} steps" for n, (a, b, total) in enumerate(jobs, start=1)]
        more = [f"\n  ... and {len(jobs) - self.SHOWN} more"] * (len(jobs) > self.SHOWN)
        super().__init__(
            f"{label} mixes {len(jobs)} jobs, as their total numbers of steps tell:"
            + "".join(listed[: self.SHOWN] + more),
            "choose one of them with --job N (--candidate-job N for the candidate), or put each in a file of its own",
        )


class MixedProcessesError(CannotRunError):
    """A log that has about `each` unlike values of most steps."""

    def __init__(self, label: str, metric: str, each: int) -> None:
        super().__init__(
            f"{label} has about {each} unlike values of {metric!r} for each step: "
            "several processes wrote into it without a prefix, or lines of validation look the same",
            "keep the lines of one process and of one kind; if the launcher prints the rank before each line, "
            "--rank N chooses one (--candidate-rank N for the candidate)",
        )
