"""What can go wrong, and the words for it.

    AlignError
    ├── CannotRunError          could not compare or could not run: exit code 2
    │   ├── MissingFileError        ├── DestinationError
    │   ├── NotACheckpointError     │   └── NoSpaceError
    │   │   ├── HostileFileError    ├── OpenNamesError
    │   │   └── ShardsError         │
    │   ├── UnsupportedCheckpointError  ├── MapError
    │   │   ├── SeveralEntriesError     ├── MissingEntryError
    │   │   ├── UnsupportedTensorsError │
    │   │   └── NeedsItsCodeError       ├── MissingClassError
    │   │       └── WholeModuleError    │
    │   ├── SideError               ├── MappingRuleError
    │   ├── UserCodeError           ├── ProjectFileError
    │   │   └── ModelFailedError    │
    │   ├── FrameworkMissingError   ├── RunFolderError
    │   ├── NothingInCommonError    ├── VerificationError
    │   ├── InputsError             └── UsageError
    │   ├── EmptyLogError           ├── AmbiguousLogError
    │   ├── MetricMissingError      ├── StepsPerEpochError
    │   ├── UnlikeCurvesError       ├── RepeatedColumnError
    │   ├── ReportError             ├── UnreadableModelError
    │   ├── PitfallFileError        ├── UnlikeTracesError
    │   ├── UnusedPatternsError
    └── NotAlignedError         the sides were compared and differ: exit code 1

The wording sits here, so that the code that raises states only the facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from align.core.checkpoints import Entry

MOST_NAMED = 12
MOST_LINES = 200
MOST_SHOWN = 20


def as_lines(lines: Sequence[str], most: int = MOST_SHOWN) -> str:
    """The lines of a list, indented, each after a line break; of a long one the first, and how many more there are."""
    more = [f"and {len(lines) - most:,} more"] if len(lines) > most else []
    return "".join(f"\n  {line}" for line in (*lines[:most], *more))


class AlignError(Exception):
    """Base of all errors of mindalign: `message` says what is wrong, `hint` what to do about it."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nHint: {self.hint}" if self.hint else self.message


class CannotRunError(AlignError):
    """The work could not be done: nothing was decided about alignment."""


class NotAlignedError(AlignError):
    """Both sides were compared and they differ."""

    exit_code = 1


class UsageError(CannotRunError):
    """Arguments that do not make sense together."""


class MissingFileError(CannotRunError):
    """A file or folder that should be there is not."""

    def __init__(self, path: Path | str, what: str, instead: str = "") -> None:
        said = f"{path} is no {what}: {instead}" if instead else f"{what} not found: {path}"
        super().__init__(said, "check the path; relative paths start at the current folder")


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
        super().__init__(path, f"its files do not make one checkpoint:{as_lines(problems, MOST_LINES)}")
        self.hint = "put all files of one download or save beside the index, and nothing of another"
        self.problems = tuple(problems)


class UnsupportedCheckpointError(CannotRunError):
    """A sound file of a known kind that cannot be read as named tensors; the hint says what to save instead."""

    def __init__(self, path: Path | str, reason: str, hint: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}", hint)


class SeveralEntriesError(UnsupportedCheckpointError):
    """A nested file in which several entries could be the weights."""

    def __init__(self, path: Path | str, entries: Sequence[Entry]) -> None:
        listed = ", ".join(repr(entry.key) if entry.key else "the top level" for entry in entries[:MOST_NAMED])
        more = f" and {len(entries) - MOST_NAMED} more" if len(entries) > MOST_NAMED else ""
        super().__init__(
            path,
            f"{len(entries)} of its entries could be the weights: {listed}{more}",
            "choose one with --key; `align inspect` lists them",
        )
        self.entries = tuple(entries)


class NeedsItsCodeError(UnsupportedCheckpointError):
    """A file that only the code which it names can open."""

    def __init__(self, path: Path | str, reason: str, instead: str) -> None:
        trusted = "or add --trust-pickle, which has torch run the code in the file: only for files that you trust"
        super().__init__(path, reason, f"{instead}, {trusted}")
        self.path = path


class WholeModuleError(NeedsItsCodeError):
    """A file with whole pickled modules, by key, of which one could be the weights; `beside` lies no deeper."""

    def __init__(self, path: Path | str, modules: Mapping[str, str], beside: Entry | None = None) -> None:
        listed = ", ".join(f"{name} under {key!r}" if key else name for key, name in modules.items())
        also = f", beside tensors under {beside.key!r}" if beside else ""
        choose = f"choose the tensors with --key {beside.key!r}, " if beside else ""
        super().__init__(
            path,
            f"it holds a whole pickled module, {listed}{also}",
            f"{choose}save model.state_dict() where the module's code is at home",
        )


class UnsupportedTensorsError(UnsupportedCheckpointError):
    """Tensors of a kind that has no plain form, all of them named; `remedy` is for the first."""

    def __init__(self, path: Path | str, reasons: Sequence[str], remedy: str) -> None:
        more = f"; and {len(reasons) - MOST_NAMED} more" if len(reasons) > MOST_NAMED else ""
        super().__init__(path, "; ".join(reasons[:MOST_NAMED]) + more, remedy)


class MissingEntryError(CannotRunError):
    """A key that the file does not have, or a file that has none."""

    def __init__(self, path: Path | str, key: str, known: Sequence[str]) -> None:
        listed = ", ".join(repr(name) if name else "'' (the top level)" for name in known[:MOST_NAMED])
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


class SideError(CannotRunError):
    """A `module:function` or `file.py:function` that cannot be imported or is no model factory."""

    def __init__(self, side: str, reason: str) -> None:
        super().__init__(
            f"cannot build the model {side!r}: {reason}",
            "a side is `package.module:function` or `path/to/file.py:function`; "
            "the function takes no arguments and returns the model",
        )


class UserCodeError(CannotRunError):
    """The user's own code (a factory, a model) raised."""

    def __init__(self, what: str, error: BaseException) -> None:
        said = str(error).strip().partition("\n\n")[0]
        super().__init__(f"{what} failed: {type(error).__name__}: {said}", "add --debug to see your code's traceback")


class ModelFailedError(UserCodeError):
    """A model raised while it ran; `layer` is the innermost one that was running, `after` the last that returned."""

    def __init__(self, what: str, layer: str, inputs: dict[str, str], error: BaseException, after: str = "") -> None:
        given = ", ".join(f"{name} {what}" for name, what in inputs.items())
        where = (f"in layer {layer!r} " if layer else "") + (f"after layer {after!r} " if after else "")
        super().__init__(f"the {what} model, {where}on inputs {given},", error)
        self.layer = layer
        self.hint = f"check that the inputs have the names, shapes and dtypes that the model expects; {self.hint}"


class UnreadableModelError(CannotRunError):
    """A live model that cannot be read as it stands; `lines` name all of its tensors that are the reason."""

    def __init__(self, reason: str, hint: str, lines: Sequence[str]) -> None:
        super().__init__(f"{reason}:{as_lines(lines)}", hint)
        self.lines = tuple(lines)


class FrameworkMissingError(CannotRunError):
    """A framework or optional package that is needed is not installed, or is broken."""

    def __init__(self, package: str, install: str, reason: str = "") -> None:
        state = f"is installed but cannot be imported ({reason})" if reason else "is not installed"
        super().__init__(f"{package} {state}", f"install it with: {install}")


class NothingInCommonError(CannotRunError):
    """Two sides without a single pair to compare."""

    def __init__(self, reference: str, candidate: str, what: str) -> None:
        super().__init__(
            f"{reference} and {candidate} have no {what} in common",
            "check that both sides are the same architecture and size; rename rules can be given with --rules",
        )


class InputsError(CannotRunError):
    """Inputs that do not exist, cannot be read or do not fit the model; `faults` are all of several."""

    def __init__(self, message: str, hint: str, faults: Sequence[str] = ()) -> None:
        super().__init__(f"{message}{as_lines(faults)}", hint)
        self.faults = tuple(faults)


class EmptyLogError(CannotRunError):
    """A log in which no line could be read as a training step."""

    def __init__(self, path: Path | str, looked_for: Iterable[str]) -> None:
        formats = "".join(f"\n  {line}" for line in looked_for)
        super().__init__(
            f"no loss found in {path}; looked for:{formats}",
            "a CSV or JSONL log needs a step and a loss column; `align plugins` lists the formats",
        )


class AmbiguousLogError(CannotRunError):
    """A log in which several formats find their lines."""

    def __init__(self, path: Path | str, formats: Iterable[str]) -> None:
        super().__init__(
            f"{path} holds lines of several log formats: {', '.join(formats)}",
            "keep the lines of one of them in a file of its own",
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

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(
            f"the global step of {label} cannot be told: {reason}",
            "give the number of steps in an epoch with --reference-steps-per-epoch or --candidate-steps-per-epoch",
        )


class UnlikeCurvesError(CannotRunError):
    """Two curves whose values are not the same kind of thing: to compare them would mean nothing."""

    def __init__(self, reference: str, candidate: str, reason: str, hint: str) -> None:
        super().__init__(f"{reference} and {candidate} cannot be compared: {reason}", hint)


class UnlikeTracesError(CannotRunError):
    """Two traces that must not be compared; all reasons are listed."""

    def __init__(self, both: str, faults: Sequence[str], hint: str) -> None:
        super().__init__(f"the traces {both} cannot be compared: {as_lines(faults) if faults[1:] else faults[0]}", hint)


class DestinationError(CannotRunError):
    """The destination cannot be written, or would overwrite something."""


class NoSpaceError(DestinationError):
    """No room for what is to be written: `needed` bytes (0 where that is unknown), `free` ones."""

    def __init__(self, path: Path | str, needed: int, free: int, reason: str = "") -> None:
        wanted = f"{needed:,} bytes are needed, " if needed else ""
        said = f" ({reason})" if reason else ""
        super().__init__(
            f"no room at {path}: {wanted}{free:,} bytes are free{said}",
            "free some space, raise the quota or the limit on file sizes, or name a destination on another disk",
        )


class OpenNamesError(CannotRunError):
    """Names that cannot be decided: `lines` are all of them, `folded` what is shown instead. Nothing was written."""

    def __init__(self, lines: Sequence[str], hint: str, folded: Sequence[str] = ()) -> None:
        are_open = "1 name is open" if len(lines) == 1 else f"{len(lines):,} names are open"
        super().__init__(f"{are_open}, nothing was written:{as_lines(folded or lines)}", hint)
        self.lines = tuple(lines)


class MapError(CannotRunError):
    """A name map or rule file with faults; `faults` are all of them."""

    def __init__(self, source: Path | str, faults: Sequence[str], hint: str = "docs/map.md describes the file") -> None:
        super().__init__(f"{source} cannot be used as a name map:{as_lines(faults)}", hint)
        self.faults = tuple(faults)


class MappingRuleError(CannotRunError):
    """A rule file under `mappings/` that breaks the schema."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}", "CONTRIBUTING.md describes the rule files")


class PitfallFileError(CannotRunError):
    """Rule files under `mappings/pitfalls` with faults; all of them are listed."""

    def __init__(self, folder: Path | str, faults: Sequence[str]) -> None:
        said = f"rules in {folder} break the schema:{as_lines(faults)}"
        super().__init__(said, "CONTRIBUTING.md describes the rule files")
        self.faults = tuple(faults)


class ProjectFileError(CannotRunError):
    """An `align.toml` with faults; all of them are listed."""

    def __init__(self, path: Path | str, faults: Sequence[str]) -> None:
        super().__init__(f"{path} cannot be used:{as_lines(faults)}", "docs/project-file.md describes the file")
        self.faults = tuple(faults)


class UnusedPatternsError(CannotRunError):
    """Limits or accepted deviations that fit no paired layer, each with the paths that come closest."""

    def __init__(self, close: Mapping[str, Sequence[str]]) -> None:
        lines = [f"{glob!r}" + (f": close are {', '.join(names)}" if names else "") for glob, names in close.items()]
        hint = "write the path of a layer of either side, or a glob such as `decoder.*.norm`"
        super().__init__(f"limits or accepted deviations fit no paired layer:{as_lines(lines)}", hint)
        self.close = dict(close)


class RunFolderError(CannotRunError):
    """A run folder that is missing, empty or of another schema."""


class ReportError(CannotRunError):
    """A report that could not be made; no verdict depends on it."""


class VerificationError(CannotRunError):
    """What was written does not read back as what was meant; the written file was removed."""

    def __init__(self, path: Path | str, problems: Sequence[str]) -> None:
        super().__init__(
            f"{path} does not hold what was to be written; it was removed:{as_lines(problems)}",
            "the disk or the memory may be failing; convert again",
        )
