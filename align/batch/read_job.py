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

import re
import sys
from typing import TYPE_CHECKING, Any

from align.batch.job import Job
from align.batch.jobs.expand_table import expand_table
from align.batch.jobs.job_keys import OF_TABLE, OPTIONS, PATHS, RANKS, value_fault
from align.batch.jobs.match_paths import PLACEHOLDERS, placeholders
from align.core.atomic_files import existing_file
from align.errors import ProjectFileError
from align.words.catalogue import say

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.batch.job import MissingSide, PlacedTask


def read_job(path: Path) -> Job:
    """Read a job file and find the files of its patterns.

    Raises MissingFileError, or ProjectFileError listing each fault with its line: unknown keys and values of another
    type, a pattern that fits nothing, and tasks of one id.
    """
    try:
        text = existing_file(path, "job file").read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectFileError(path, [say("job_fault.no_toml", error=str(error))], _hint()) from error
    faults = [*_faults(document, text)]
    if faults:
        raise ProjectFileError(path, faults, _hint())
    tasks, missing, faults = _expanded(document, text, path)
    faults += _doubled(tasks)
    if faults or not tasks:
        raise ProjectFileError(path, faults or [say("job_fault.no_tasks", tables=[*PATHS])], _hint())
    ranks = document.get("ranks", {})
    tasks.sort(key=lambda one: (-1 if one.step is None else one.step, -1 if one.rank is None else one.rank))
    return Job(
        path.stem,
        tuple(tasks),
        tuple(missing),
        tuple(ranks.get("replicated", ())),
        tuple(ranks.get("sharded", ())),
        path,
    )


def _hint() -> str:
    return say("job_fault.hint")


def _faults(document: dict[str, Any], text: str) -> Iterator[str]:
    for name, value in document.items():
        if name in PATHS:
            yield from _faults_of_tables(name, value, text)
        elif name == "ranks" and isinstance(value, dict):
            yield from _faults_of_keys(value, RANKS, "ranks", line_of(text, "ranks", 0))
        elif name == "defaults" and isinstance(value, dict):
            yield from _faults_of_defaults(value, text)
        else:
            allowed = [*PATHS, "defaults", "ranks"]
            yield say("job_fault.unknown", line=line_of(text, name, 0), name=name, allowed=allowed)


def _faults_of_defaults(defaults: dict[str, Any], text: str) -> Iterator[str]:
    for action, own in defaults.items():
        line = line_of(text, f"defaults.{action}", 0)
        if action not in OPTIONS or not isinstance(own, dict):
            yield say("job_fault.unknown", line=line, name=f"defaults.{action}", allowed=[*OPTIONS])
        else:
            yield from _faults_of_keys(own, OPTIONS[action], f"defaults.{action}", line)


def _faults_of_tables(action: str, tables: Any, text: str) -> Iterator[str]:
    if not isinstance(tables, list):
        yield say("job_fault.no_list", line=line_of(text, action, 0), table=action)
        return
    paths: dict[str, Any] = dict.fromkeys(PATHS[action], str)
    for index, table in enumerate(tables):
        line = line_of(text, action, index)
        yield from _faults_of_keys(table, {**paths, **OF_TABLE, **OPTIONS[action]}, action, line)
        if lacking := [key for key in paths if key not in table]:
            yield say("job_fault.lacking", line=line, table=action, keys=lacking)
        else:
            yield from _faults_of_patterns([str(table[key]) for key in paths], action, line)


def _faults_of_keys(table: dict[str, Any], known: dict[str, Any], name: str, line: int) -> Iterator[str]:
    for key, value in table.items():
        if key not in known:
            yield say("job_fault.unknown", line=line, name=f"{name}.{key}", allowed=[*known])
        elif wanted := value_fault(known[key], value):
            yield say("job_fault.value", line=line, name=f"{name}.{key}", wanted=wanted, value=repr(value))


def _faults_of_patterns(patterns: list[str], action: str, line: int) -> Iterator[str]:
    named = [set(placeholders(pattern)) for pattern in patterns]
    if strange := sorted(set().union(*named) - set(PLACEHOLDERS)):
        yield say("job_fault.placeholder", line=line, names=strange, allowed=PLACEHOLDERS)
    elif any(own != named[0] for own in named):
        yield say("job_fault.unlike_patterns", line=line, table=action, patterns=patterns)


def _expanded(document: dict[str, Any], text: str, path: Path) -> tuple[list[PlacedTask], list[MissingSide], list[str]]:
    tasks: list[PlacedTask] = []
    missing: list[MissingSide] = []
    faults: list[str] = []
    for action in PATHS:
        defaults = document.get("defaults", {}).get(action, {})
        for index, table in enumerate(document.get(action, ())):
            found, lacking = expand_table(action, defaults | table, path.resolve().parent)
            tasks += found
            missing += lacking
            if not found:
                patterns = [table[key] for key in PATHS[action]]
                line = line_of(text, action, index)
                faults.append(say("job_fault.no_match", line=line, table=action, patterns=patterns))
    return tasks, missing, faults


def _doubled(tasks: list[PlacedTask]) -> list[str]:
    ids = [one.task.id for one in tasks]
    return [
        say("job_fault.doubled", id=name, count=ids.count(name)) for name in dict.fromkeys(ids) if ids.count(name) > 1
    ]


def line_of(text: str, table: str, index: int) -> int:
    """The line of a file on which the table of a name begins, or the key; 1 if it cannot be told."""
    begins = re.compile(rf"\s*(\[\[?\s*{re.escape(table)}\s*\]|{re.escape(table)}\s*=)")
    found = [number for number, line in enumerate(text.splitlines(), 1) if begins.match(line)]
    return found[index] if index < len(found) else 1
