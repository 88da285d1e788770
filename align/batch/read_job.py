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
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from align.batch.job import (
    NUMBERS,
    PLACEHOLDERS,
    Job,
    MissingSide,
    PlacedTask,
    Task,
    filled,
    match_paths,
    place_order,
    placeholders,
    task_id,
)
from align.convert.convert_checkpoint import PRECISIONS, TARGETS
from align.core.align_sequences import grouped
from align.core.atomic_files import existing_file, remote_url
from align.core.documents import DocumentFault, parse_toml, read_toml_text
from align.errors import ProjectFileError, UsageError
from align.forward.forward_result import read_limits
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from align.batch.job import Found, Place


def read_job(path: Path) -> Job:
    """Read a job file and find the files of its patterns.

    Raises MissingFileError, or ProjectFileError listing each fault with its line: unknown keys and values of another
    type, a pattern that fits nothing or two files of one place, and tasks that would get in each other's way.
    """
    text, document = _parsed(path)
    _raise_for(path, [*job_faults(document, text)])
    expanded = _expanded(document, text, path)
    _raise_for(path, [*expanded.faults, *_clashes(expanded.tasks)])
    if not expanded.tasks:
        _raise_for(path, [say("job_fault.no_tasks", tables=[f"[[{name}]]" for name in PATHS])])
    expanded.tasks.sort(key=lambda one: place_order(one.step, one.rank))
    ranks = document.get("ranks", {})
    known = {name: tuple(ranks.get(name, ())) for name in ("replicated", "sharded")}
    return Job(path.stem, tuple(expanded.tasks), tuple(expanded.missing), **known, file=path)


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
            expanded = expand_table(action, defaults | table, path.resolve().parent)
            line = line_of(text, action, index)
            whole.tasks.extend(expanded.tasks)
            whole.missing.extend(expanded.missing)
            whole.faults.extend(
                say("job_fault.of_table", line=line, table=action, fault=one) for one in expanded.faults
            )
    return whole


def _clashes(tasks: list[PlacedTask]) -> Iterator[str]:
    """Tasks of one id, whose outcomes would be one file, and conversions into one file."""
    for name, count in Counter(one.task.id for one in tasks).items():
        if count > 1:
            yield say("job_fault.doubled", id=name, count=count)
    for path, count in Counter(one.task.paths[1] for one in tasks if one.task.action == "convert").items():
        if count > 1:
            yield say("job_fault.one_destination", path=path, count=count)


# One table of a job file becomes a task for each rank and step that its patterns find.


@dataclass(frozen=True, slots=True)
class ExpandedTable:
    """The tasks of a table and what one side lacks, or why it cannot be used."""

    tasks: list[PlacedTask] = field(default_factory=list)
    missing: list[MissingSide] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def expand_table(action: str, table: Mapping[str, Any], folder: Path) -> ExpandedTable:
    """Return a task for each place that both sides have, and what one side lacks.

    Places that `ranks` and `steps` of the table name are expected on every side, others are left out.
    """
    patterns = {key: _absolute(str(table[key]), folder) for key in PATHS[action]}
    read = [*patterns][:1] if action == "convert" else [*patterns]
    sides = {key: match_paths(patterns[key]) for key in read}
    options = _options(table, folder)
    if faults := [*_faults(patterns, sides, options)]:
        return ExpandedTable(faults=faults)
    expanded = ExpandedTable()
    for place in _expected(table, sides.values()):
        paths = {key: _path(place, key, patterns, sides) for key in patterns}
        _add(expanded, _placed(action, table, place, paths, options), [key for key in sides if place not in sides[key]])
    if not expanded.tasks:
        return ExpandedTable(faults=[say("job_fault.nothing_common", patterns=[*patterns.values()])])
    return expanded


def _placed(
    action: str, table: Mapping[str, Any], place: Place, paths: Mapping[str, str], options: Mapping[str, Any]
) -> PlacedTask:
    rank, step, name = place
    begin = str(table.get("id", "")) or action
    task = Task(task_id(begin, *place), action, tuple(paths.values()), options, table.get("timeout"))
    return PlacedTask(task, rank, step, task_id(begin, None, None, name))


def _add(expanded: ExpandedTable, placed: PlacedTask, lacking: Iterable[str]) -> None:
    """Add a task, or what its sides lack of it."""
    task, paths = placed.task, dict(zip(PATHS[placed.task.action], placed.task.paths, strict=True))
    missing = [
        MissingSide(f"{task.id}-{key}", task.action, placed.rank, placed.step, key, paths[key]) for key in lacking
    ]
    expanded.missing.extend(missing)
    expanded.tasks.extend([] if missing else [placed])


def _faults(patterns: Mapping[str, str], sides: Mapping[str, Found], options: Mapping[str, Any]) -> Iterator[str]:
    for key, side in sides.items():
        if not side:
            yield say("job_fault.no_match", side=key, pattern=patterns[key], star="*" if "*" in patterns[key] else "")
        if doubled := [path for paths in side.values() if len(paths) > 1 for path, _ in paths]:
            yield say("job_fault.one_place", side=key, paths=doubled)
    if "map" in options and remote_url(options["map"]) is None and not Path(options["map"]).is_file():
        yield say("job_fault.no_map", path=options["map"])


def _expected(table: Mapping[str, Any], sides: Iterable[Found]) -> list[Place]:
    """The places that any side has, of the ranks and steps that the table names, and what all sides lack of these."""
    found = dict.fromkeys(place for side in sides for place in side)
    ranks, steps = table.get("ranks"), table.get("steps")
    kept = [place for place in found if (ranks is None or place[0] in ranks) and (steps is None or place[1] in steps)]
    if ranks is None and steps is None:
        return kept
    there = {place[:2] for place in kept}
    named = product(
        ranks or dict.fromkeys(place[0] for place in kept), steps or dict.fromkeys(place[1] for place in kept)
    )
    return kept + [(*numbers, "") for numbers in dict.fromkeys(named) if numbers not in there]


def _path(place: Place, key: str, patterns: Mapping[str, str], sides: Mapping[str, Found]) -> str:
    """The path of a side at a place, or one that it could have, with the numbers as another side writes them."""
    if place in sides.get(key, ()):
        return sides[key][place][0][0]
    written = next((side[place][0][1] for side in sides.values() if place in side), None)
    rank, step, name = place
    return filled(patterns[key], written or {"rank": str(rank), "step": str(step), "name": name or "{name}"})


def _absolute(path: str, folder: Path) -> str:
    return path if remote_url(path) is not None else str(folder / path)


def _options(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    paths = {name for names in PATHS.values() for name in names}
    options = {key: value for key, value in table.items() if key not in paths and key not in OF_TABLE}
    if "map" in options:
        options["map"] = _absolute(options["map"], folder)
    return options


# What is wrong with a job file before any pattern is followed: keys, values and placeholders, each with its line.

_TABLES = ("defaults", "ranks")
_BEGINS = re.compile(r"\s*(?:\[\[?\s*([^\]]*?)\s*\]|([^\s=\[][^=]*?)\s*=)")


def job_faults(document: Mapping[str, Any], text: str) -> Iterator[str]:
    """Name each fault of a parsed job file."""
    for name, value in document.items():
        line = line_of(text, name, 0)
        if name in PATHS:
            yield from _faults_of_tables(name, value, text)
        elif name in OF_JOB:
            yield from _faults_of_keys({name: value}, OF_JOB, "", line)
        elif name not in _TABLES:
            yield say("job_fault.unknown", line=line, name=name, allowed=[*PATHS, *_TABLES, *OF_JOB])
        elif not isinstance(value, dict):
            yield say("job_fault.no_table", line=line, table=name)
        elif name == "ranks":
            yield from _faults_of_keys(value, RANKS, "ranks", line)
        else:
            yield from _faults_of_defaults(value, text)


def line_of(text: str, table: str, index: int) -> int:
    """The line of a file on which the table of a name begins, or the key; 1 if it cannot be told."""
    found = _beginnings(text).get(table, ())
    return found[index] if index < len(found) else 1


@lru_cache(maxsize=1)
def _beginnings(text: str) -> dict[str, list[int]]:
    """The lines on which each table and key begins."""
    lines = ((_BEGINS.match(line), number) for number, line in enumerate(text.splitlines(), 1))
    return grouped((name[1] or name[2], number) for name, number in lines if name)


def _faults_of_defaults(defaults: Mapping[str, Any], text: str) -> Iterator[str]:
    for action, table in defaults.items():
        name, line = f"defaults.{action}", line_of(text, f"defaults.{action}", 0)
        if action not in OPTIONS:
            yield say("job_fault.unknown", line=line, name=name, allowed=[*OPTIONS])
        elif not isinstance(table, dict):
            yield say("job_fault.no_table", line=line, table=name)
        else:
            yield from _faults_of_keys(table, OPTIONS[action] | OF_JOB, name, line)


def _faults_of_tables(action: str, tables: Any, text: str) -> Iterator[str]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        yield say("job_fault.no_list", line=line_of(text, action, 0), table=action)
        return
    known = {**dict.fromkeys(PATHS[action], "text"), **OF_TABLE, **OPTIONS[action]}
    for index, table in enumerate(tables):
        line = line_of(text, action, index)
        yield from _faults_of_keys(table, known, action, line)
        if lacking := [key for key in PATHS[action] if key not in table]:
            yield say("job_fault.lacking", line=line, table=action, keys=lacking)
        elif all(isinstance(table[key], str) for key in PATHS[action]):
            yield from _faults_of_patterns(table, action, line)


def _faults_of_keys(table: Mapping[str, Any], known: Mapping[str, str], name: str, line: int) -> Iterator[str]:
    for key, value in table.items():
        full = f"{name}.{key}" if name else key
        if key not in known:
            yield say("job_fault.unknown", line=line, name=full, allowed=[*known])
        elif wanted := value_fault(known[key], value):
            yield say("job_fault.value", line=line, name=full, wanted=wanted, value=repr(value))


def _faults_of_patterns(table: Mapping[str, Any], action: str, line: int) -> Iterator[str]:
    patterns = [table[key] for key in PATHS[action]]
    named = [set(placeholders(pattern)) for pattern in patterns]
    if strange := sorted(set().union(*named) - set(PLACEHOLDERS)):
        spelled, allowed = ([f"{{{name}}}" for name in names] for names in (strange, PLACEHOLDERS))
        yield say("job_fault.placeholder", line=line, names=spelled, allowed=allowed)
    elif any(own != named[0] for own in named):
        yield say("job_fault.unlike_patterns", line=line, table=action, patterns=patterns)
    for number in NUMBERS:
        if f"{number}s" in table and number not in set().union(*named):
            yield say("job_fault.no_placeholder", line=line, name=f"{action}.{number}s", number=f"{{{number}}}")


# What a job file may say: the paths and options of each action, and what each value must be.

# The paths of each action, in the order in which a task has them.
PATHS: Final[dict[str, tuple[str, ...]]] = {
    "diff": ("reference", "candidate"),
    "forward": ("reference", "candidate"),
    "convert": ("source", "destination"),
    "check": ("file",),
}
TEXT: Final = "text"
_TEXTS: Final = "texts"
OPTIONS: Final[dict[str, dict[str, str]]] = {
    "diff": {"map": TEXT, "strip": _TEXTS, "key_a": TEXT, "key_b": TEXT},
    "forward": {"map": TEXT, "limit": "limits", "partial": "switch"},
    "convert": {"map": TEXT, "family": TEXT, "target": "target", "layer": _TEXTS, "strip": _TEXTS, "key": TEXT}
    | {"parts": _TEXTS, "prefer": TEXT}
    | {"dtype": "dtype", "dequantize": TEXT, "max_shard_size": TEXT, "verify": "switch", "overwrite": "switch"},
    "check": {"key": TEXT},
}
RANKS: Final = {"replicated": _TEXTS, "sharded": _TEXTS}
OF_TABLE: Final = {"id": TEXT, "ranks": "numbers", "steps": "numbers", "timeout": "seconds"}
OF_JOB: Final = {"timeout": "seconds"}


def value_fault(kind: str, value: Any) -> str:
    """What a value of a kind should be, where it is something else; "" if it is right."""
    return "" if _FITS[kind](value) else say(f"job_fault.{kind}", targets=TARGETS, dtypes=[*PRECISIONS])


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(one) is int and one >= 0 for one in value)


def _limits(value: Any) -> bool:
    try:
        return _texts(value) and bool(read_limits(value) or not value)
    except UsageError:
        return False


_FITS: Final[dict[str, Callable[[Any], bool]]] = {
    TEXT: lambda value: isinstance(value, str),
    _TEXTS: _texts,
    "numbers": _numbers,
    "seconds": lambda value: type(value) in (int, float) and 0 < value < inf,
    "limits": _limits,
    "switch": lambda value: isinstance(value, bool),
    "target": lambda value: value in TARGETS,
    "dtype": lambda value: isinstance(value, str) and value in PRECISIONS,
}
