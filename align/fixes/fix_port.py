"""`align fix`: the confirmed changes of a port as a patch, applied on request, and what a run after it still finds.

A port of an installed package is changed in a copy, which stands first on the import path of the run after it. If that
run does not come to a comparison, everything is put back.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from align.core.documents import kept_sentence, kept_sentences, own_fields, parse_toml, to_json_data
from align.core.load_code import file_models, put_first
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import CannotRunError, UsageError
from align.fixes.fix_result import FixResult, RunAfterFix, faults_after, rungs_after
from align.fixes.group_parameters import CAUSE, proposes_groups, ungrouped_optimizer
from align.fixes.plan_changes import (
    FileChange,
    FilePlace,
    PlannedChanges,
    apply_changes,
    last_backup,
    plan_changes,
    put_back,
    refuse_edited,
)
from align.fixes.plan_edits import decoded, encoded, ends, plan_edits
from align.forward.forward_result import Culprit, FunctionFault
from align.models.function_source import CodeChange
from align.models.open_side import open_side
from align.models.source_lines import construction_of
from align.runs.climb_ladder import is_unchanged
from align.runs.project_file import read_project
from align.runs.run_folder import RunFolder
from align.runs.rung import RungResult, shown
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.fixes.fix_result import FixJob
    from align.fixes.plan_changes import Backup


Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Executed:
    """How a command ended: its exit code, what it printed, also of errors."""

    code: int
    output: str
    errors: str


@dataclass(frozen=True, slots=True)
class PlannedFix:
    """The changes of a port, with the comparison that they come from and what is said of them."""

    job: FixJob
    before: Document
    changes: PlannedChanges
    result: FixResult


def plan_fix(job: FixJob, execute: Callable[[Sequence[str]], Executed]) -> PlannedFix:
    """Compare if need be, build the port, and plan the changes; nothing is changed.

    Where no comparison can be made since the port's framework does not see some of its layers, these changes are
    planned. `execute` runs one command line, without the word `align`. Raises UsageError for a port without source, and
    CannotRunError where the comparison comes to no end.
    """
    if job.candidate.overlay is not None:
        put_first(job.candidate.overlay)
    try:
        document = forward_document(job, execute)
    except CannotRunError:
        document = unseen_layers_document(job)
        if not document and not proposes_groups(RunFolder(job.run).read("ladder")):
            raise
    document = _with_optimizer(document, job)
    culprits = [one for one in read_culprits(document) if one.sureness == CONFIRMED]
    is_needed = any(one.cause != CAUSE for one in culprits)
    model = open_side(str(job.candidate.model)).model if is_needed else None
    changes = plan_changes(plan_edits(culprits, model, job.checkpoint), job)
    return PlannedFix(job, document, changes, _planned(job, document, changes))


def _with_optimizer(document: Document, job: FixJob) -> Document:
    """A comparison with the optimizer of the port beside its culprits, where the last climb proposed groups for it."""
    ladder = RunFolder(job.run).read("ladder")
    if job.project is None or ladder is None or not proposes_groups(ladder):
        return document
    project = read_project(job.project)
    culprit = ungrouped_optimizer(project, project.map or job.run / "map.toml")
    if culprit is None:
        return document
    sides = {"reference": "", "candidate": str(job.candidate.training), "layers": [], "culprits": []}
    whole = sides | document
    return whole | {"culprits": [*whole["culprits"], to_json_data(culprit)], "verdict": ladder["verdict"]}


def apply_fix(fix: PlannedFix, run_again: Callable[[Sequence[str], Path | None], Executed]) -> FixResult:
    """Make the changes, and run again; everything is put back if that run fails, but for what was edited meanwhile.

    `run_again` runs one command line in a fresh process, with a folder first on its import path. Raises CannotRunError
    for files that cannot be changed.
    """
    job, folder = fix.job, RunFolder(fix.job.run)
    changes = [*fix.changes.changes, *_project_change(fix)]
    ladder, written = folder.read("ladder"), folder.written(_aim(fix))
    backup = apply_changes(changes, job.run.absolute(), job.overlay)
    try:
        done = run_again(job.again, job.overlay if job.overlay.is_dir() else None)
        if folder.written(_aim(fix)) == written:
            raise _put_back_error(done, folder)
        result = _applied(fix, backup, ladder)
    except BaseException as error:
        if edited := put_back(backup):
            raise CannotRunError.of("fix_usage.edited_during_run", names=edited, folder=backup.folder) from error
        raise
    return result


def _aim(fix: PlannedFix) -> str:
    """The result that the run after a fix has to make: the comparison, or the map that could not be made before."""
    causes = {culprit["cause"] for culprit in fix.before["culprits"]}
    return "map" if UNSEEN in causes else "step" if causes == {CAUSE} else "forward"


def undo_fix(job: FixJob) -> FixResult:
    """Put back what the last fix of a run folder changed, byte for byte.

    Raises CannotRunError where there is none, and where a file was edited since; then nothing is changed.
    """
    backup = last_backup(job.run.absolute(), job.overlay)
    refuse_edited(backup)
    put_back(backup)
    names = [*(one.path for one in backup.files), *(one.path for one in backup.copies)]
    again = ("align " + shlex.join(job.again),) if job.again else ()
    nothing = dict.fromkeys(("places", "refused", "patches"), ())
    return FixResult(
        reference="",
        candidate=str(job.candidate.model or ""),
        state="undone",
        faults=0,
        unconfirmed=0,
        after=None,
        backup="",
        overlay="",
        restored=tuple(map(shown, names)),
        next_commands=again,
        verdict=None,
        **nothing,
    )


def _planned(job: FixJob, document: Document, changes: PlannedChanges) -> FixResult:
    confirmed = sum(culprit["sureness"] == CONFIRMED for culprit in document["culprits"])
    rest = len(document["culprits"]) - confirmed
    reason = sentence(
        "fix.planned",
        faults=max(confirmed - sum(len(change.layers) for change in changes.refused), 0),
        places=len(changes.places),
        refused=len(changes.refused),
        unconfirmed=rest,
        said=kept_sentence(document["verdict"], "reason"),
    )
    return FixResult(
        reference=document["reference"],
        candidate=document["candidate"],
        state="planned",
        faults=confirmed,
        unconfirmed=rest,
        places=changes.places,
        refused=changes.refused,
        patches=changes.patches,
        after=None,
        backup="",
        overlay=shown(job.overlay) if any(change.place.package for change in changes.changes) else "",
        restored=(),
        next_commands=(f"align {shlex.join(job.fix)} --apply",) if changes.changes else (),
        verdict=_verdict(document["verdict"], reason if confirmed else None),
    )


def _verdict(said: Document, reason: str | None) -> Verdict:
    """The verdict of a document, with another reason if one is given."""
    coverage = own_fields(said["coverage"]) | {"unit": kept_sentence(said["coverage"], "unit")}
    return Verdict(
        Outcome(said["outcome"]),
        reason or kept_sentence(said, "reason"),
        Coverage(**coverage),
        kept_sentences(said, "caveats"),
    )


def _project_change(fix: PlannedFix) -> list[FileChange]:
    """The line of the project file that names the overlay, where a package is copied and there is such a file."""
    file = fix.job.project
    if file is None or not any(one.place.copy for one in fix.changes.changes):
        return []
    before = file.read_bytes()
    text = with_overlay(decoded(before), file, fix.job.overlay)
    if text is None:
        raise CannotRunError.of("fix_usage.no_table", file=file, overlay=shown(fix.job.overlay))
    place = FilePlace(file.resolve(), file.resolve(), fix.job.root)
    return [FileChange(place, before, encoded(text, before))] if text != decoded(before) else []


def _put_back_error(done: Executed, folder: RunFolder) -> CannotRunError:
    said = not_compared(done, folder).message
    return CannotRunError.of("fix_usage.put_back", said=said, hint=line_of(done.errors, "Hint: "))


def _applied(fix: PlannedFix, backup: Backup, ladder: Document | None) -> FixResult:
    job, folder = fix.job, RunFolder(fix.job.run)
    now = folder.read("forward") or {}
    climb = folder.read("ladder") if job.again[0] == "run" else None
    if proposes_groups(climb):
        left = [one for one in fix.before["culprits"] if one["cause"] == CAUSE]
        now = now | {"culprits": [*now.get("culprits", []), *left]}
    faults = faults_after(fix.before, now)
    rungs = rungs_after(ladder, climb)
    verdict = _judged((climb or now)["verdict"], [fault.state for fault in faults])
    again = _again(job)
    after = RunAfterFix(again, faults, rungs)
    fell = any(rung.before == "passed" and rung.after == "failed" for rung in rungs)
    worse = fell or any(fault.state == "worse" for fault in faults)
    next_commands = (job.undo,) if worse else (again, job.undo)
    kept = shown(backup.folder)
    return replace(fix.result, state="applied", after=after, backup=kept, next_commands=next_commands, verdict=verdict)


def _judged(said: Document, states: Sequence[str]) -> Verdict:
    counts = {state: states.count(state) for state in ("gone", "left", "new", "worse")}
    key = "fix.worse" if counts["worse"] else "fix.applied"
    verdict = _verdict(said, sentence(key, said=kept_sentence(said, "reason"), **counts))
    return replace(verdict, outcome=Outcome.NOT_ALIGNED) if counts["worse"] else verdict


def _again(job: FixJob) -> str:
    """The command that ran again, as one would type it: without a project file the overlay is on the import path."""
    path = f"PYTHONPATH={shlex.quote(shown(job.overlay))} " if job.overlay.is_dir() and job.project is None else ""
    return f"{path}align {shlex.join(job.again)}"


# The faults of a port as a forward comparison in a run folder tells them, made anew where it no longer holds.

CONFIRMED: Final = "confirmed"


def forward_document(job: FixJob, execute: Callable[[Sequence[str]], Executed]) -> Document:
    """Return the forward comparison of a job; raises CannotRunError, with what was said, where there is none."""
    refuse_without_source(job)
    folder = RunFolder(job.run)
    if job.keeps and (kept := _kept(folder)):
        return kept
    before = folder.written("forward")
    done = execute(job.compare)
    document = folder.read("forward")
    if document is None or folder.written("forward") == before:
        raise not_compared(done, folder)
    return document


# Layers in a plain list, which the port's framework does not see: the rung `parameters` fails by them, before anything
# can be compared. What it proposes is written around the expression that makes the list.

UNSEEN = "unregistered-layers"  # the id of this cause
PLACEHOLDERS = ("[...]", "{...}")  # of the list itself, in what is proposed


def unseen_layers_document(job: FixJob) -> Document:
    """What the last map of a run folder says of layers that are not seen, as a comparison does; {} where it is another.

    That is so only where the rung `parameters` failed by them.
    """
    folder = RunFolder(job.run)
    ladder, last_map = folder.read("ladder"), folder.read("map")
    failed = [rung.name for rung in map(RungResult.read, (ladder or {"rungs": []})["rungs"]) if rung.state == "failed"]
    unseen = [one for one in (last_map or {}).get("unregistered", []) if one["container"]]
    if last_map is None or not unseen or "parameters" not in failed:
        return {}
    model = open_side(str(job.candidate.model)).model
    culprits = [culprit for facts in unseen if (culprit := _unseen_layers(model, facts))]
    sides = {"reference": last_map["name_map"]["source"], "candidate": last_map["name_map"]["target"]}
    return (
        {**sides, "culprits": to_json_data(culprits), "layers": [], "verdict": last_map["verdict"]} if culprits else {}
    )


def _unseen_layers(model: Any, facts: Mapping[str, Any]) -> Culprit | None:
    """A list of layers as a culprit, with the expression that makes it put into the framework's own list."""
    construction = construction_of(model, facts["path"])
    if construction is None:
        return None
    source, node = construction.source, construction.node
    text = decoded(Path(source.file).read_bytes())
    before = text[slice(*ends(text, node))]
    own_list = next((facts["change"].replace(one, before) for one in PLACEHOLDERS if one in facts["change"]), "")
    name = imported_as(ast.parse(text), str(facts["framework"]))
    if not name or not own_list:
        return None
    code = CodeChange(source.file, node.lineno, node.col_offset, before, own_list.replace("nn.", f"{name}.", 1))
    return Culprit(
        "", facts["path"], "", facts["container"], 0, "code", 0.0, UNSEEN, CONFIRMED,
        change=facts["change"], line=facts["line"], code=code,
    )  # fmt: skip


def imported_as(tree: ast.Module, framework: str) -> str:
    """What a module calls the layers of a framework: `nn`, or `ms.nn`; "" where it imports neither."""
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name: alias.asname or alias.name
        for node in imports
        for alias in node.names
    }
    whole = names.get(framework, "")
    return names.get(f"{framework}.nn") or (f"{whole}.nn" if whole else "")


def refuse_without_source(job: FixJob) -> None:
    """Raise UsageError for a port that is a file or a trace: nobody can change its source."""
    model = str(job.candidate.model or job.candidate.training or "")
    if job.candidate.trace or file_models(model) is not None or Path(model).is_dir() or Path(model).is_file():
        raise UsageError.of("fix_usage.no_source", name=job.candidate.trace or model)


def not_compared(done: Executed, folder: RunFolder) -> CannotRunError:
    """The error of a command that left no comparison: what it said, or what the ladder says of the rung."""
    said = line_of(done.errors, "align: ")
    if not said and (ladder := folder.read("ladder")):
        states = [rung for rung in map(RungResult.read, ladder["rungs"]) if rung.name == "forward"]
        said = next((rung.reason for rung in states), "")
    hint = line_of(done.errors, "Hint: ")
    return CannotRunError.of("fix_usage.not_compared", said=said or done.errors.strip(), hint=hint)


def line_of(errors: str, start: str) -> str:
    """The last line of what a command printed of errors that starts so, without that."""
    return next((one.removeprefix(start) for one in reversed(errors.splitlines()) if one.startswith(start)), "")


def _kept(folder: RunFolder) -> Document | None:
    """The comparison that the ladder made, if what it rests on is as it was."""
    ladder, document = folder.read("ladder"), folder.read("forward")
    rungs = [RungResult.read(one) for one in (ladder or {"rungs": []})["rungs"]]
    rung = next((one for one in rungs if one.name == "forward" and one.state in ("passed", "failed")), None)
    if rung is None or document is None or not rung.evidence:
        return None
    holds = is_unchanged(rung.sources) and is_unchanged(rung.evidence, folder.path)
    return document if holds else None


def read_culprits(document: Document) -> tuple[Culprit, ...]:
    """The culprits of a comparison; fields that another version wrote are left out."""
    return tuple(map(_culprit, document.get("culprits", [])))


def _culprit(document: Mapping[str, Any]) -> Culprit:
    known = {field.name for field in fields(Culprit)}
    values = {name: value for name, value in document.items() if name in known}
    inside = document.get("inside")
    fault = inside and {field.name: inside[field.name] for field in fields(FunctionFault) if field.name in inside}
    values["also"], values["arguments"] = tuple(values.get("also", ())), _as_settings(values.get("arguments", {}))
    values["code"] = CodeChange(**document["code"]) if document.get("code") else None
    return Culprit(
        **{**values, "inside": FunctionFault(**{**fault, "lines": tuple(fault["lines"])}) if fault else None}
    )


def _as_settings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _as_tuple(value) for name, value in arguments.items()}


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


# The key of a project file that names the overlay, written under its table; all other lines stay as they are.

_TABLE = re.compile(r"^[ \t]*\[[ \t]*candidate[ \t]*\][^\r\n]*(\r?\n|$)", re.MULTILINE)


def with_overlay(text: str, file: Path, overlay: Path) -> str | None:
    """Return a project file's text with `[candidate] overlay`; as it is where it names one, None where it cannot."""
    if "overlay" in parse_toml(text).get("candidate", {}):
        return text
    match = _TABLE.search(text)
    if match is None:
        return None
    end = match[1] or "\n"
    line = f"overlay = {json.dumps(os.path.relpath(overlay, file.resolve().parent))}{end}"
    lead = "" if match[1] else end
    return text[: match.end()] + lead + line + text[match.end() :]
