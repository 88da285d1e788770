"""A job out of two folders of ranks and steps, without a job file.

What is compared is what a name with a rank or a step leads to (`rank3/step12.npz`, `step_12/rank_3`); in folders
without such names, each file and folder in them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from align.batch.job import Job, MissingSide, PlacedTask
from align.batch.task import Task
from align.errors import MissingFileError, UsageError
from align.remote.remote_files import remote_url, shown_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_NUMBERED = re.compile(r"(?i)(?<![a-z])(rank|step)[_-]?([0-9]+)")
_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_SUFFIXES = {".pth": ".ckpt", ".pt": ".ckpt", ".bin": ".ckpt", ".ckpt": ".pth"}
Key = tuple[int | None, int | None, str]  # rank, step, and the name where both do not tell it


def pair_folders(action: str, first: Path, second: Path, options: Mapping[str, Any]) -> Job:
    """Pair what two folders hold by rank and step, or by name; of a conversion the second is the one to write into.

    Raises MissingFileError for a folder that is not there, and UsageError if nothing is in both.
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
    lacking = [(key, "candidate", second) for key in mine.keys() - theirs.keys()]
    lacking += [(key, "reference", first) for key in theirs.keys() - mine.keys()]
    missing = [
        MissingSide(action, key[0], key[1], side, str(folder / key[2]))
        for key, side, folder in sorted(lacking, key=lambda one: (one[1], _order(one[0])))
    ]
    return Job(f"{first.name} | {second.name}", tuple(tasks), tuple(missing))


def _units(folder: Path) -> dict[Key, Path]:
    """What is to be compared in a folder, by rank and step."""
    numbered = [path for path in sorted(folder.rglob("*")) if _NUMBERED.search(path.name) and not _hidden(path, folder)]
    inner = {parent for path in numbered for parent in path.relative_to(folder).parents}
    units = [path for path in numbered if path.relative_to(folder) not in inner]
    units = units or [path for path in sorted(folder.iterdir()) if not _hidden(path, folder)]
    return {_key(path.relative_to(folder)): path for path in units}


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _key(path: Path) -> Key:
    """Rank, step and what is left of the path without them and without its suffix, for sides name files otherwise."""
    numbers = {name.lower(): int(number) for name, number in _NUMBERED.findall(str(path))}
    rest = _NUMBERED.sub("", str(path.with_suffix(""))).strip("/_-.")
    return numbers.get("rank"), numbers.get("step"), re.sub(r"[/_.-]+", "-", rest)


def _order(key: Key) -> tuple[int, int, str]:
    rank, step, name = key
    return -1 if step is None else step, -1 if rank is None else rank, name


def _task(action: str, key: Key, paths: tuple[Path, Path], options: Mapping[str, Any]) -> PlacedTask:
    name = "-".join(_named(action, key))
    return PlacedTask(Task(_ODD.sub("_", name), action, tuple(map(str, paths)), options), key[0], key[1])


def _named(action: str, key: Key) -> Iterator[str]:
    rank, step, rest = key
    yield action
    yield from (f"{name}{number}" for name, number in (("step", step), ("rank", rank)) if number is not None)
    yield from [rest] if rest else []


def _destination(path: Path) -> Path:
    """The other framework's suffix; a file of safetensors stays one."""
    return path.with_suffix(_SUFFIXES.get(path.suffix, ".safetensors"))
