"""What `align fix` found, changed, and what a run after it still finds."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from align.core.about import RUN_FOLDER
from align.core.verdicts import ShownResult
from align.errors import CannotRunError, UsageError
from align.models.open_side import DTYPES, MODES
from align.runs.project_file import NAME, ProjectSide, read_project
from align.runs.run_folder import RunFolder
from align.runs.rung import RungResult, shown, shown_side
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.verdicts import Verdict
    from align.runs.project_file import Project


FixState = Literal["planned", "applied", "undone"]
FaultAfter = Literal["gone", "left", "worse", "new"]


@dataclass(frozen=True, slots=True)
class FixedPlace:
    """One place of the source that changes.

    `file` is its name in the patch, which starts at the folder `root`; `package` is that of an installed one, "" in a
    file of the project. `layers` are all layers of the port that this place makes.
    """

    file: str
    root: str
    package: str
    line: int
    before: str
    after: str
    layers: tuple[str, ...]
    cause: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A confirmed change of these layers that is not made, and why."""

    layers: tuple[str, ...]
    cause: str
    reason: str


@dataclass(frozen=True, slots=True)
class SourcePatch:
    """The changes of all files below one `root` as a unified diff; `package` is "" for the project."""

    root: str
    package: str
    text: str


@dataclass(frozen=True, slots=True)
class FaultAfterFix:
    """A part at fault before or after: "gone", "left", "worse" (it was right before) or "new" (it was not judged)."""

    candidate: str
    part: str
    cause: str
    line: str
    state: FaultAfter


@dataclass(frozen=True, slots=True)
class RungAfterFix:
    """A rung of the ladder before ("" where it was never run) and after, with what it says now."""

    name: str
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunAfterFix:
    """What the same command finds once the changes are made; `rungs` are () where that is one comparison."""

    command: str
    faults: tuple[FaultAfterFix, ...]
    rungs: tuple[RungAfterFix, ...]


@dataclass(frozen=True, slots=True)
class FixResult(ShownResult):
    """The changes of a port: which are planned or applied, which are refused, and what remains.

    `faults` counts the parts whose change is confirmed, `unconfirmed` all others at fault. `backup` is the folder that
    keeps what was there before, `overlay` that of copied packages; "" where there is none. `restored` are the files
    that were put back. `next_commands` are to be typed. There is no `verdict` where nothing was compared.
    """

    result_kind = "fix"
    reference: str
    candidate: str
    state: FixState
    faults: int
    unconfirmed: int
    places: tuple[FixedPlace, ...]
    refused: tuple[RefusedChange, ...]
    patches: tuple[SourcePatch, ...]
    after: RunAfterFix | None
    backup: str
    overlay: str
    restored: tuple[str, ...]
    next_commands: tuple[str, ...]
    verdict: Verdict | None


# What a run after a fix finds, beside what one before it found.

Document = dict[str, Any]
Place = tuple[str, str]


def faults_after(before: Document, after: Document) -> tuple[FaultAfterFix, ...]:
    """Every part at fault in either comparison: those made worse first, then new ones, those left and those gone."""
    was, now = _by_place(before), _by_place(after)
    right = {layer["candidate"] for layer in before["layers"] if _was_right(layer)}
    faults = [_fault(culprit, "gone") for place, culprit in was.items() if place not in now]
    for place, culprit in now.items():
        state: FaultAfter = "left" if place in was else "worse" if culprit["candidate"] in right else "new"
        faults.append(_fault(culprit, state))
    order = ("worse", "new", "left", "gone")
    return tuple(sorted(faults, key=lambda fault: order.index(fault.state)))


def rungs_after(before: Document | None, after: Document | None) -> tuple[RungAfterFix, ...]:
    """The rungs of the ladder before and after; () where there was no climb."""
    was = {rung.name: rung.state for rung in map(RungResult.read, (before or {"rungs": []})["rungs"])}
    rungs = map(RungResult.read, (after or {"rungs": []})["rungs"])
    return tuple(RungAfterFix(rung.name, was.get(rung.name, ""), rung.state, _reason(rung)) for rung in rungs)


def _reason(rung: RungResult) -> str:
    """What a rung says; a log that the port printed before it was changed tells of that port."""
    if rung.kind == "loss" and rung.state != "passed" and rung.state != "not available":
        return sentence("fix.old_log", reason=rung.reason)
    return rung.reason


def _by_place(document: Document) -> dict[Place, Mapping[str, Any]]:
    found: dict[Place, Mapping[str, Any]] = {}
    for one in document.get("culprits", []):
        found.setdefault((one["candidate"], one["part"]), one)
    return found


def _was_right(layer: Mapping[str, Any]) -> bool:
    alone = layer.get("isolated") or {}
    return "aligned" in (layer["outcome"], alone.get("outcome"))


def _fault(one: Mapping[str, Any], state: FaultAfter) -> FaultAfterFix:
    return FaultAfterFix(one["candidate"], one["part"], one["cause"], one["line"], state)


# What is to be fixed: the port, what compares it with its original, and what runs again afterwards.


BELOW_FORWARD = ("parameters", "weights")  # the rungs that make what the rung `forward` reads
QUICK = "--no-power"  # what the inputs could have shown says nothing of what they do show
OPTIONS = {"map": "--map", "candidate inputs": "--candidate-inputs"} | {
    f"{side} checkpoint": f"--{side}-checkpoint" for side in ("reference", "candidate")
}


@dataclass(frozen=True, slots=True)
class FixJob:
    """One job: command lines without the word `align`.

    `compare` leaves a forward comparison in the run folder, `again` is what is run once the port is changed, `fix` what
    was typed. Files below `root` are the project's; `project` is its file, None where there is none. `keeps` tells
    whether a comparison that lies in the run folder may be used, if all that it rests on is as it was.
    """

    candidate: ProjectSide
    run: Path
    root: Path
    compare: tuple[str, ...]
    again: tuple[str, ...]
    fix: tuple[str, ...]
    project: Path | None = None
    keeps: bool = False

    @property
    def overlay(self) -> Path:
        """The folder of copied packages."""
        return self.run.absolute() / "overlay"

    @property
    def checkpoint(self) -> str:
        """What fills the port; "" where the comparison is given nothing for it."""
        option = OPTIONS["candidate checkpoint"]
        given = (after for word, after in zip(self.compare, self.compare[1:], strict=False) if word == option)
        return next(given, shown(self.candidate.checkpoint) if self.candidate.checkpoint else "")

    @property
    def undo(self) -> str:
        """The command that puts all back."""
        named = _named_project(self.project) if self.project else []
        is_named = shown(self.run) != RUN_FOLDER
        return "align " + shlex.join(["fix", *named, *(["--run", shown(self.run)] if is_named else []), "--undo"])


def job_of_models(candidate: ProjectSide, typed: Sequence[str], run: Path | None, project: Project) -> FixJob:
    """The job of two models; `typed` are the arguments of `align forward` that name them and all that they are given.

    A project file gives what the arguments leave out.
    """
    folder = run or Path(RUN_FOLDER)
    compare = ("forward", *typed, "--run", shown(folder))
    root = project.file.resolve().parent if project.file else Path.cwd()
    return FixJob(candidate, folder, root, (*compare, QUICK), compare, ("fix", *typed, *_named_run(run)))


def job_of_project(project: Project, file: Path, run: Path | None) -> FixJob:
    """The job of a project file: the rung `forward` of its ladder, and the whole ladder afterwards."""
    folder = run or project.run_folder or Path(RUN_FOLDER)
    named = _named_project(file)
    fix = ("fix", *named, *_named_run(run))
    run_folder = RunFolder(folder)
    if run_folder.file("forward").is_file() and not run_folder.file("ladder").is_file():
        compare = ("forward", "--project", shown(file), "--run", shown(folder))
        return FixJob(project.candidate, folder, file.resolve().parent, (*compare, QUICK), compare, fix, file)
    in_folder = ["--folder", shown(folder)] if run is not None else []
    climb = ("run", *named, *in_folder)
    only = [part for name in _to_run(run_folder) for part in ("--only", name)]
    again = (*climb, "--keep-going")
    return FixJob(project.candidate, folder, file.resolve().parent, (*climb, *only), again, fix, file, keeps=True)


def job_of_folder(run: Path) -> FixJob:
    """The job of a run folder, whose results say what they were made from.

    Raises CannotRunError for a folder without a forward comparison.
    """
    ladder, forward = RunFolder(run).read("ladder"), RunFolder(run).read("forward")
    file = ((ladder or {}).get("made_from", {}).get("project") or {}).get("path")
    if file and Path(file).is_file():
        return job_of_project(read_project(Path(file)), Path(file), run)
    if forward is None:
        raise CannotRunError.of("fix_usage.no_forward", folder=run)
    typed = [*_typed(forward["made_from"])]
    if not typed:
        raise UsageError.of("fix_usage.of_live_models", folder=run)
    compare = ("forward", *typed, "--run", shown(run))
    candidate = ProjectSide(model=_named(forward["made_from"]["candidate"]))
    return FixJob(candidate, run, Path.cwd(), (*compare, QUICK), compare, ("fix", "--run", shown(run)))


def _named_project(file: Path) -> list[str]:
    return ["--project", shown(file)] if shown(file) != NAME else []


def _named_run(run: Path | None) -> list[str]:
    return ["--run", shown(run)] if run is not None else []


def _to_run(folder: RunFolder) -> list[str]:
    """The rungs that are to be run for a comparison: it, and those below that have not passed."""
    ladder = folder.read("ladder") or {"rungs": []}
    states = {rung.name: rung.state for rung in map(RungResult.read, ladder["rungs"])}
    return [*(name for name in BELOW_FORWARD if states.get(name) != "passed"), "forward"]


def _typed(made_from: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The arguments of the comparison that was made from these."""
    if not {"reference", "candidate"} <= set(made_from):
        return
    for side in ("reference", "candidate"):
        yield shown_side(_named(made_from[side]))
    for role, source in made_from.items():
        if option := OPTIONS.get(role, "--inputs" if role.split(" ")[0] == "inputs" else ""):
            yield from (option, _named(source))
    for side in ("reference", "candidate"):
        for word in _named(made_from.get(f"{side} place", {"text": ""})).split():
            kind = "mode" if word in MODES else "dtype" if word in DTYPES else "device"
            yield from (f"--{side}-{kind}", word)


def _named(source: Mapping[str, Any]) -> str:
    return str(source.get("text") or source.get("path", ""))
