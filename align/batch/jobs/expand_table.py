"""One table of a job file becomes a task for each rank and step that its patterns find."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from align.batch.job import MissingSide, PlacedTask
from align.batch.jobs.job_keys import OF_TABLE, PATHS
from align.batch.jobs.match_paths import filled, match_paths
from align.batch.task import Task
from align.remote.remote_files import remote_url

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.batch.jobs.match_paths import Place

_ODD = re.compile(r"[^A-Za-z0-9._-]+")


def expand_table(action: str, table: Mapping[str, Any], folder: Path) -> tuple[list[PlacedTask], list[MissingSide]]:
    """Return a task for each place that both sides have, and what one side lacks.

    Places that `ranks` and `steps` of the table name are expected on every side, others are left out.
    """
    keys = PATHS[action]
    patterns = [_absolute(str(table[key]), folder) for key in keys]
    read = keys[:1] if action == "convert" else keys
    sides = [match_paths(pattern) for pattern in patterns[: len(read)]]
    expected = _expected(table, sides)
    options = _options(table, keys, folder)
    tasks: list[PlacedTask] = []
    missing: list[MissingSide] = []
    for place in expected:
        lacking = [number for number, side in enumerate(sides) if place not in side]
        missing += [MissingSide(action, place[0], place[1], read[number], patterns[number]) for number in lacking]
        if not lacking:
            texts = sides[0][place][1]
            paths = [side[place][0] for side in sides] + [filled(one, texts) for one in patterns[len(read) :]]
            name = _id(str(table.get("id", "")), action, place)
            tasks.append(PlacedTask(Task(name, action, tuple(paths), options), place[0], place[1]))
    return tasks, missing if any(sides) else []


def _expected(table: Mapping[str, Any], sides: list[dict[Place, Any]]) -> list[Place]:
    """The places that are compared: those of the ranks and steps that the table names, else all that any side has."""
    found = dict.fromkeys(place for side in sides for place in side)
    ranks, steps = table.get("ranks"), table.get("steps")
    kept = [place for place in found if _is_of(ranks, place[0]) and _is_of(steps, place[1])]
    if not kept or any(name for *_, name in kept):
        return kept
    ranks = ranks if ranks is not None and kept[0][0] is not None else None
    steps = steps if steps is not None and kept[0][1] is not None else None
    named = [(rank, step, "") for step in _or_found(steps, kept, 1) for rank in _or_found(ranks, kept, 0)]
    return named if ranks is not None or steps is not None else kept


def _is_of(numbers: list[int] | None, number: int | None) -> bool:
    return numbers is None or number is None or number in numbers


def _or_found(numbers: list[int] | None, places: list[Place], which: int) -> list[int | None]:
    """The ranks or steps that a table names, else all that were found."""
    if numbers is not None:
        return [*dict.fromkeys(numbers)]
    found: dict[int | None, None] = dict.fromkeys((place[0], place[1])[which] for place in places)
    return [*found]


def _absolute(path: str, folder: Path) -> str:
    return path if remote_url(path) is not None else str(folder / path)


def _options(table: Mapping[str, Any], keys: tuple[str, ...], folder: Path) -> dict[str, Any]:
    options = {key: value for key, value in table.items() if key not in keys and key not in OF_TABLE}
    if "map" in options:
        options["map"] = _absolute(options["map"], folder)
    return options


def _id(given: str, action: str, place: Place) -> str:
    rank, step, name = place
    parts = [given or action]
    parts += [f"step{step}"] if step is not None else []
    parts += [f"rank{rank}"] if rank is not None else []
    parts += [name] if name else []
    return _ODD.sub("_", "-".join(parts))
