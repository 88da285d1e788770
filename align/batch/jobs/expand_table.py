"""One table of a job file becomes a task for each rank and step that its patterns find."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.batch.job import MissingSide, PlacedTask
from align.batch.jobs.job_keys import OF_TABLE, PATHS
from align.batch.jobs.match_paths import filled, match_paths
from align.batch.jobs.task_ids import task_id
from align.batch.task import Task
from align.remote.remote_files import remote_url
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from align.batch.jobs.match_paths import Found, Place


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
    found = ExpandedTable()
    for place in _expected(table, sides.values()):
        paths = {key: _path(place, key, patterns, sides) for key in patterns}
        _add(found, _placed(action, table, place, paths, options), [key for key in sides if place not in sides[key]])
    if not found.tasks:
        return ExpandedTable(faults=[say("job_fault.nothing_common", patterns=[*patterns.values()])])
    return found


def _placed(
    action: str, table: Mapping[str, Any], place: Place, paths: Mapping[str, str], options: Mapping[str, Any]
) -> PlacedTask:
    rank, step, name = place
    begin = str(table.get("id", "")) or action
    task = Task(task_id(begin, *place), action, tuple(paths.values()), options, table.get("timeout"))
    return PlacedTask(task, rank, step, task_id(begin, None, None, name))


def _add(found: ExpandedTable, one: PlacedTask, lacking: Iterable[str]) -> None:
    """Add a task, or what its sides lack of it."""
    task, paths = one.task, dict(zip(PATHS[one.task.action], one.task.paths, strict=True))
    missing = [MissingSide(f"{task.id}-{key}", task.action, one.rank, one.step, key, paths[key]) for key in lacking]
    found.missing.extend(missing)
    found.tasks.extend([] if missing else [one])


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
    kept = [one for one in found if (ranks is None or one[0] in ranks) and (steps is None or one[1] in steps)]
    if ranks is None and steps is None:
        return kept
    there = {place[:2] for place in kept}
    named = product(ranks or dict.fromkeys(one[0] for one in kept), steps or dict.fromkeys(one[1] for one in kept))
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
