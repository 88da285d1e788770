"""A job: tasks by rank and step, and what is known of the tensors of its ranks."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Literal

from align.core.align_sequences import grouped
from align.core.atomic_files import remote_url, shown_url, storage_errors, storage_of
from align.core.verdicts import ShownResult
from align.errors import MissingFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """A task with the rank and the step that it is of; None where its paths name none.

    `part` tells tasks of one rank and step apart: the id of their table and what `{name}` stood for.
    """

    task: Task
    rank: int | None = None
    step: int | None = None
    part: str = ""


@dataclass(frozen=True, slots=True)
class MissingSide:
    """A rank or step of which one side has no file: `expected` is a path that it could have."""

    id: str
    action: str
    rank: int | None
    step: int | None
    side: str
    expected: str


@dataclass(frozen=True, slots=True)
class Job:
    """The tasks of a job in the order of their steps and ranks.

    `replicated` and `sharded` are globs of tensors that are equal on all ranks, and of those that are not meant to be.
    """

    label: str
    tasks: tuple[PlacedTask, ...]
    missing: tuple[MissingSide, ...] = ()
    replicated: tuple[str, ...] = ()
    sharded: tuple[str, ...] = ()
    file: Path | None = None


def place_order(step: int | None, rank: int | None) -> tuple[int, int]:
    """What sorts by step, then rank; what has none comes first."""
    return -1 if step is None else step, -1 if rank is None else rank


# A task of a job, and what became of it: both are small, for they travel between processes and machines.


@dataclass(frozen=True, slots=True)
class Task:
    """One comparison, conversion or check; `paths` are local paths or URLs, `options` what JSON can hold."""

    id: str  # unique in the job, used as a file name of its outcome: [A-Za-z0-9._-]
    action: str  # "diff" | "forward" | "convert" | "check"
    paths: tuple[str, ...]
    options: Mapping[str, Any]
    timeout: float | None = None  # seconds that an attempt may take


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What became of a task; `error` and `hint` are those of its last failure, `figures` empty when it failed."""

    task: str
    state: Literal["done", "failed"]
    attempts: int
    seconds: float  # of the last attempt
    peak_bytes: int | None  # of the process that ran it, while it ran
    figures: Mapping[str, Any]
    error: str
    hint: str


# Ids of tasks: file names of a run folder that say action, step and rank, and that no two tasks share by chance.

_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST: Final = 160  # format: a file name may have 255 bytes, with the suffix and what writing it adds
_DIGITS: Final = 6  # format: of the hash that tells apart what is spelled alike after odd signs are gone


def task_id(begin: str, rank: int | None, step: int | None, name: str) -> str:
    """The id of a task; what a file name cannot hold is replaced, and told apart by a hash.

    >>> task_id("diff", 3, 10, "")
    'diff-step10-rank3'
    """
    numbers = (f"{what}{number}" for what, number in (("step", step), ("rank", rank)) if number is not None)
    whole = "-".join(filter(None, (begin, *numbers, name)))
    plain = _ODD.sub("_", whole)[:_LONGEST]
    if plain == whole:
        return whole
    return f"{plain}-{hashlib.sha256(whole.encode(errors='surrogateescape')).hexdigest()[:_DIGITS]}"


# What a job of many tasks came to: each task, and what all of them say together over ranks and steps.

TaskState = Literal["aligned", "not aligned", "could not compare", "failed", "missing"]
RankGroupKind = Literal["aligned", "alike", "odd"]
TensorSide = Literal["reference", "candidate", "file"]  # the last is that of a check
KnownBy = Literal["job file", "reference", "majority"]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task, and the first layer in execution order that departs.

    `value` says how far it does: as a multiple of its limit in a comparison of outputs, relative to the reference (L2)
    in one of checkpoints.
    `departing` of `compared` layers or tensors depart; further ones are `not_comparable`. `reused` is what an earlier
    run had done. `error` and `hint` are those of a task that failed, or that has no file on one side.
    """

    id: str
    action: str
    rank: int | None
    step: int | None
    paths: tuple[str, ...]
    state: TaskState
    reason: str
    layer: str | None = None
    value: float | None = None
    departing: int = 0
    compared: int = 0
    not_comparable: int = 0
    attempts: int = 0
    seconds: float = 0.0
    peak_bytes: int | None = None
    reused: bool = False
    error: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class FirstDeparture:
    """The earliest step at which anything departs, the layer that comes first there, and the ranks on which it does."""

    action: str
    step: int | None
    ranks: tuple[int, ...]
    layer: str | None
    value: float | None
    task: str


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that do alike: `aligned` with their references, departing `alike`, or `odd` among the others.

    `step` is the one that is looked at: the first at which any rank departs.
    """

    kind: RankGroupKind
    ranks: tuple[int, ...]
    step: int | None
    layer: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class UnequalTensor:
    """A tensor that should be equal on all ranks and is not: `ranks` hold other values than the `equal` ones.

    `step` is the first at which that is so. `side` is where it was found; `known_by` says why it should be equal: by
    the job file's `replicated`, because the reference's are, or because most ranks hold the same.
    """

    name: str
    side: TensorSide
    step: int | None
    ranks: tuple[int, ...]
    equal: int
    known_by: KnownBy


@dataclass(frozen=True, slots=True)
class LayerOverRanks:
    """One layer in execution order, and the worst that each rank has of it over all steps, as the result's `ranks`.

    `outcomes` are "aligned", "not aligned", "not comparable" or "" where the rank has no such layer.
    """

    layer: str
    outcomes: tuple[str, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class BatchResult(ShownResult):
    """A job: its tasks by step and rank, and what they say together.

    `groups` are empty where no rank departs. `layers` are of the action that departs first, else of that with most
    tasks: all that depart and, of the others, as many as a picture shows. `unused` are globs of the job file's
    `[ranks]` that fit no tensor. `renumbered` are ranks of the candidate, each with that of
    the reference whose shards it holds, where both sides number them otherwise. `next_commands` show alone what departs
    first, and what failed first.
    """

    result_kind = "batch"
    job: str
    tasks: tuple[TaskResult, ...]
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    first: FirstDeparture | None
    groups: tuple[RankGroup, ...]
    unequal: tuple[UnequalTensor, ...]
    unused: tuple[str, ...]
    renumbered: tuple[tuple[int, int], ...]
    layers: tuple[LayerOverRanks, ...]
    next_commands: tuple[str, ...]
    verdict: Verdict


# Paths with placeholders, `rank{rank}/step{step}.npz`, matched with what is there.
#
# `{rank}` and `{step}` are whole numbers, with or without zeros in front; `{name}` is any text without a slash. What a
# placeholder stood for on one side finds its counterpart on the other: as a number, not as text.


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
    matches = sorted(_matches(pattern), key=lambda one: one[0])
    found = grouped((_place(texts), (path, texts)) for path, texts in matches)
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


def input_state(path: str, run_folder: Path | None = None, *, entry: bool = True) -> Iterator[str]:
    """Name, size and times of all files that a path leads to, without those of the run folder `run_folder`.

    The time of a file's content can be set back, that of its entry cannot; it is left out without `entry`.
    """
    if (url := remote_url(path)) is not None:
        yield from remote_state(url.rpartition("/")[0] if _names_others(url) else url)
        return
    place = Path(path)
    for read in (place, *_named_by(place)):
        for file in _files(read, run_folder) if read.is_dir() else [read]:
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
    numbered = [path for path in sorted(folder.rglob("*")) if _NUMBERED.search(path.name) and not _hidden(path, folder)]
    inner = {parent for path in numbered for parent in path.relative_to(folder).parents}
    units = [path for path in numbered if path.relative_to(folder) not in inner]
    units = units or [path for path in sorted(folder.iterdir()) if not _hidden(path, folder)]
    by_key: dict[Key, Path] = {}
    for path in units:
        key = _key(path.relative_to(folder))
        if key in by_key:
            raise UsageError.of("batch_usage.one_place", paths=[str(by_key[key]), str(path)])
        by_key[key] = path
    return by_key


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
