"""The faults of a port as a forward comparison in a run folder tells them, made anew where it no longer holds."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.registry import file_models
from align.errors import CannotRunError, UsageError
from align.forward.forward_result import Culprit, FunctionFault
from align.models.edited_code import CodeChange
from align.runs.evidence import is_unchanged
from align.runs.ladder_result import RungResult
from align.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.fixes.fix_job import FixJob
    from align.runs.climb_ladder import Executed

Document = dict[str, Any]
CONFIRMED = "confirmed"


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


def refuse_without_source(job: FixJob) -> None:
    """Raise UsageError for a port that is a file or a trace: nobody can change its source."""
    model = str(job.candidate.model or "")
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


def _culprit(one: Mapping[str, Any]) -> Culprit:
    known = {field.name for field in fields(Culprit)}
    own = {name: value for name, value in one.items() if name in known}
    inside = one.get("inside")
    found = inside and {field.name: inside[field.name] for field in fields(FunctionFault) if field.name in inside}
    own["also"], own["arguments"] = tuple(own.get("also", ())), _as_settings(own.get("arguments", {}))
    own["code"] = CodeChange(**one["code"]) if one.get("code") else None
    return Culprit(**{**own, "inside": FunctionFault(**{**found, "lines": tuple(found["lines"])}) if found else None})


def _as_settings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with the tuples that JSON has as lists."""
    return {name: _as_tuple(value) for name, value in arguments.items()}


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
