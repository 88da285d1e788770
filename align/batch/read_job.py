"""`JOB.toml`: tables of tasks, whose patterns find ranks and steps.

    [[forward]]
    reference = "ref/rank{rank}/step{step}"
    candidate = "port/rank{rank}/step{step}"

    [ranks]
    sharded = ["*.experts.*"]

Tables are named as the actions: diff, forward, convert, check. Paths are relative to the file. All faults of a file are
collected before one error tells them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from align.batch.job import Job, place_order
from align.batch.jobs.expand_table import ExpandedTable, expand_table
from align.batch.jobs.job_faults import job_faults, line_of
from align.batch.jobs.job_keys import OF_JOB, PATHS
from align.core.atomic_files import existing_file
from align.core.documents import DocumentFault, parse_toml, read_toml_text
from align.errors import ProjectFileError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from align.batch.job import PlacedTask


def read_job(path: Path) -> Job:
    """Read a job file and find the files of its patterns.

    Raises MissingFileError, or ProjectFileError listing each fault with its line: unknown keys and values of another
    type, a pattern that fits nothing or two files of one place, and tasks that would get in each other's way.
    """
    text, document = _parsed(path)
    _raise_for(path, [*job_faults(document, text)])
    found = _expanded(document, text, path)
    _raise_for(path, [*found.faults, *_clashes(found.tasks)])
    if not found.tasks:
        _raise_for(path, [say("job_fault.no_tasks", tables=[f"[[{name}]]" for name in PATHS])])
    found.tasks.sort(key=lambda one: place_order(one.step, one.rank))
    ranks = document.get("ranks", {})
    known = {name: tuple(ranks.get(name, ())) for name in ("replicated", "sharded")}
    return Job(path.stem, tuple(found.tasks), tuple(found.missing), **known, file=path)


def _parsed(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = read_toml_text(existing_file(path, "job file"))
        return text, parse_toml(text)
    except DocumentFault as fault:
        raise ProjectFileError(path, [str(fault)], say("job_fault.hint")) from fault


def _raise_for(path: Path, faults: list[str]) -> None:
    if faults:
        raise ProjectFileError(path, faults, say("job_fault.hint"))


def _expanded(document: Mapping[str, Any], text: str, path: Path) -> ExpandedTable:
    """All tables as one, with the line of each fault."""
    whole = ExpandedTable()
    for action in PATHS:
        defaults = {key: document[key] for key in OF_JOB if key in document}
        defaults |= document.get("defaults", {}).get(action, {})
        for index, table in enumerate(document.get(action, ())):
            found = expand_table(action, defaults | table, path.resolve().parent)
            line = line_of(text, action, index)
            whole.tasks.extend(found.tasks)
            whole.missing.extend(found.missing)
            whole.faults.extend(say("job_fault.of_table", line=line, table=action, fault=one) for one in found.faults)
    return whole


def _clashes(tasks: list[PlacedTask]) -> Iterator[str]:
    """Tasks of one id, whose outcomes would be one file, and conversions into one file."""
    for name, count in Counter(one.task.id for one in tasks).items():
        if count > 1:
            yield say("job_fault.doubled", id=name, count=count)
    for path, count in Counter(one.task.paths[1] for one in tasks if one.task.action == "convert").items():
        if count > 1:
            yield say("job_fault.one_destination", path=path, count=count)
