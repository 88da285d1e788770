"""Paths with placeholders, `rank{rank}/step{step}.npz`, matched with what is there.

`{rank}` and `{step}` are whole numbers, with or without zeros in front; `{name}` is any text without a slash. What a
placeholder stood for on one side finds its counterpart on the other: as a number, not as text.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from align.batch.job import Job, MissingSide, PlacedTask, Task, place_order, task_id
from align.errors import MissingFileError, UsageError
from align.remote.remote_files import remote_url, shown_url, storage_errors, storage_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


NUMBERS = ("rank", "step")
PLACEHOLDERS = (*NUMBERS, "name")
_PLACEHOLDER = re.compile(r"\{(\w*)\}")
Place = tuple[int | None, int | None, str]  # rank, step, name
Found = dict[Place, list[tuple[str, dict[str, str]]]]  # paths, with what each placeholder stood for


def placeholders(pattern: str) -> list[str]:
    """The names of the placeholders of a pattern, in their order."""
    return _PLACEHOLDER.findall(pattern)


def match_paths(pattern: str) -> Found:
    """Each place that a pattern finds, with all paths of it and what every placeholder stood for, in order."""
    found: Found = {}
    for path, texts in sorted(_matches(pattern), key=lambda one: one[0]):
        found.setdefault(_place(texts), []).append((path, texts))
    return dict(sorted(found.items(), key=lambda one: (place_order(one[0][1], one[0][0]), one[0][2])))


def filled(pattern: str, texts: Mapping[str, str]) -> str:
    """The pattern with texts in the place of its placeholders."""
    return _PLACEHOLDER.sub(lambda one: texts.get(one[1], one[0]), pattern)


def _place(texts: Mapping[str, str]) -> Place:
    rank, step = (int(texts[name]) if name in texts else None for name in NUMBERS)
    return rank, step, texts.get("name", "")


def _matches(pattern: str) -> Iterator[tuple[str, dict[str, str]]]:
    if not placeholders(pattern):
        if remote_url(pattern) is not None or Path(pattern).exists():
            yield pattern, {}
        return
    if remote_url(pattern) is not None:
        whole = _expression(pattern)
        for name in remote_names(_PLACEHOLDER.sub("*", pattern)):
            if found := whole.fullmatch(name):
                yield name, found.groupdict()
        return
    path = Path(pattern)
    parts = path.parts[1:] if path.is_absolute() else path.parts
    yield from _walked(Path(path.anchor), parts, {})


def _walked(folder: Path, parts: tuple[str, ...], known: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Follow a pattern part by part: folders that do not fit are never listed."""
    if not parts:
        yield str(folder), known
        return
    first, *rest = parts
    if not placeholders(first):
        if (folder / first).exists():
            yield from _walked(folder / first, tuple(rest), known)
        return
    fits = _expression(first)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        found = fits.fullmatch(path.name)
        if found and all(known.get(name, text) == text for name, text in found.groupdict().items()):
            yield from _walked(path, tuple(rest), known | found.groupdict())


def _expression(pattern: str) -> re.Pattern[str]:
    """What a pattern fits; a placeholder that stands there twice has the same text twice."""
    seen: set[str] = set()
    parts = []
    for place, part in enumerate(_PLACEHOLDER.split(pattern)):
        if place % 2 == 0:
            parts.append(re.escape(part))
        elif part in seen:
            parts.append(f"(?P={part})")
        else:
            seen.add(part)
            parts.append(f"(?P<{part}>{'[0-9]+' if part in NUMBERS else '[^/]+'})")
    return re.compile("".join(parts))


# What object storage says of its objects without their content: which there are, and their state.

_STATE = ("ETag", "etag", "md5Hash", "size", "LastModified", "mtime", "created")
_USER = re.compile(r"^([a-z][a-z0-9+.-]+:/{1,2})[^/@]*@")


def remote_names(pattern: str) -> list[str]:
    """The URLs of all objects and folders that a URL with `*` fits; raises what opening one raises."""
    url = remote_url(pattern) or pattern
    with storage_errors(url):
        storage, key = storage_of(url)
        scheme = url.partition("://")[0]
        return sorted(f"{scheme}://{str(name).lstrip('/')}" for name in storage.glob(key))


def remote_state(url: str) -> list[str]:
    """Name, ETag, size and time of an object, or of all objects of a folder, as far as the storage tells them."""
    with storage_errors(url):
        storage, key = storage_of(url)
        found = storage.find(key, detail=True) or {key: storage.info(key)}
        return [
            f"{name} {' '.join(str(info[field]) for field in _STATE if field in info)}"
            for name, info in sorted(found.items())
        ]


def without_secrets(path: str) -> str:
    """A URL without the user, the password and the query that it may hold; any other path as it is.

    >>> without_secrets("https://me:word@host/a.npz?token=1")
    'https://host/a.npz'
    """
    if remote_url(path) is None:
        return path
    return _USER.sub(r"\1", path).partition("?")[0]


# The state of what a task reads, without its content: names, sizes and times, or what object storage tells.

# A list of shards, a dump's list of tensors, a model with external data; and gradients, read with the trace above.
_NAMES_OTHERS = (".json", ".onnx", "backward")


def input_state(path: str, own: Path | None = None, *, entry: bool = True) -> Iterator[str]:
    """Name, size and times of all files that a path leads to, without those of the run folder `own`.

    The time of a file's content can be set back, that of its entry cannot; it is left out without `entry`.
    """
    if (url := remote_url(path)) is not None:
        yield from remote_state(url.rpartition("/")[0] if _names_others(url) else url)
        return
    place = Path(path)
    for read in (place, *_named_by(place)):
        for file in _files(read, own) if read.is_dir() else [read]:
            yield _state_of(file, entry=entry)


def _names_others(path: str) -> bool:
    place = PurePosixPath(path)
    return place.suffix in _NAMES_OTHERS or place.name in _NAMES_OTHERS


def _named_by(place: Path) -> list[Path]:
    """What else is read with a file or folder: the shards of an index, else all that lies beside it."""
    if not _names_others(place.name):
        return []
    try:
        shards = json.loads(place.read_text(encoding="utf-8"))["weight_map"].values()
        return sorted(place.parent / str(name) for name in {*shards})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return [place.parent]


def _files(place: Path, own: Path | None) -> Iterator[Path]:
    """All files of a folder, through links too, each folder once."""
    seen = {os.path.realpath(own)} if own else set()
    for folder, inner, files in os.walk(place, followlinks=True):
        there = {os.path.realpath(Path(folder, name)): name for name in sorted(inner)}
        inner[:] = [name for real, name in there.items() if real not in seen]
        seen.update(there)
        yield from (Path(folder, name) for name in sorted(files))


def _state_of(file: Path, *, entry: bool) -> str:
    try:
        found = file.stat()
    except OSError:
        return f"{file} absent"
    return f"{file} {found.st_size} {found.st_mtime_ns}" + (f" {found.st_ctime_ns}" if entry else "")


# A job out of two folders of ranks and steps, without a job file.
#
# What is compared is what a name with a rank or a step leads to (`rank3/step12.npz`, `step_12/rank_3`); in folders
# without such names, each file and folder in them.

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
