"""A job out of two folders of ranks and steps, without a job file.

What is compared is what a name with a rank or a step leads to (`rank3/step12.npz`, `step_12/rank_3`); in folders
without such names, each file and folder in them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from align.batch.job import Job, MissingSide, PlacedTask, place_order
from align.batch.jobs.task_ids import task_id
from align.batch.task import Task
from align.errors import MissingFileError, UsageError
from align.remote.remote_files import remote_url, shown_url

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NUMBERED = re.compile(r"(?i)(?<![a-z])(rank|step)[_-]?([0-9]+)")
_SUFFIXES = {".pth": ".ckpt", ".pt": ".ckpt", ".bin": ".ckpt", ".ckpt": ".pth"}
Key = tuple[int | None, int | None, str]  # rank, step, and the name where both do not tell it


def pair_folders(action: str, first: Path, second: Path, options: Mapping[str, Any]) -> Job:
    """Pair what two folders hold by rank and step, or by name; of a conversion the second is the one to write into.

    Raises MissingFileError for a folder that is not there, and UsageError if nothing is in both, or if a folder has
    several files of one rank and step.
    """
    writes = action == "convert"
    for folder in (first,) if writes else (first, second):
        if remote_url(folder) is not None:
            raise UsageError.of("batch_usage.remote_folders", folder=shown_url(str(remote_url(folder))))
        if not folder.is_dir():
            raise MissingFileError(folder, "folder")
    mine = _units(first)
    theirs = {key: _destination(second / path.relative_to(first)) for key, path in mine.items()}
    theirs = theirs if writes else _units(second)
    both = sorted(mine.keys() & theirs.keys(), key=_order)
    if not both:
        raise UsageError.of("batch_usage.nothing_paired", first=first, second=second)
    tasks = [_task(action, key, (mine[key], theirs[key]), options) for key in both]
    alone = [("candidate", key, second / mine[key].relative_to(first)) for key in mine.keys() - theirs.keys()]
    alone += [("reference", key, first / theirs[key].relative_to(second)) for key in theirs.keys() - mine.keys()]
    alone.sort(key=lambda one: (_order(one[1]), one[0]))
    missing = tuple(_missing(action, key, side, path) for side, key, path in alone)
    return Job(f"{first.name} | {second.name}", tuple(tasks), missing)


def _units(folder: Path) -> dict[Key, Path]:
    """What is to be compared in a folder, by rank and step."""
    numbered = [path for path in sorted(folder.rglob("*")) if _NUMBERED.search(path.name) and not _hidden(path, folder)]
    inner = {parent for path in numbered for parent in path.relative_to(folder).parents}
    units = [path for path in numbered if path.relative_to(folder) not in inner]
    units = units or [path for path in sorted(folder.iterdir()) if not _hidden(path, folder)]
    found: dict[Key, Path] = {}
    for path in units:
        key = _key(path.relative_to(folder))
        if key in found:
            raise UsageError.of("batch_usage.one_place", paths=[str(found[key]), str(path)])
        found[key] = path
    return found


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _key(path: Path) -> Key:
    """Rank, step and what is left of the path without them and without its suffix, for sides name files otherwise."""
    numbers = {name.lower(): int(number) for name, number in _NUMBERED.findall(str(path))}
    rest = _NUMBERED.sub("", str(path.with_suffix(""))).strip("/_-.")
    return numbers.get("rank"), numbers.get("step"), re.sub(r"[/_.-]+", "-", rest)


def _order(key: Key) -> tuple[tuple[int, int], str]:
    rank, step, name = key
    return place_order(step, rank), name


def _task(action: str, key: Key, paths: tuple[Path, Path], options: Mapping[str, Any]) -> PlacedTask:
    rank, step, name = key
    return PlacedTask(Task(task_id(action, *key), action, tuple(map(str, paths)), options), rank, step, name)


def _missing(action: str, key: Key, side: str, expected: Path) -> MissingSide:
    return MissingSide(f"{task_id(action, *key)}-{side}", action, key[0], key[1], side, str(expected))


def _destination(path: Path) -> Path:
    """The other framework's suffix; a file of safetensors stays one."""
    return path.with_suffix(_SUFFIXES.get(path.suffix, ".safetensors"))
