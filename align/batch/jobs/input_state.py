"""The state of what a task reads, without its content: names, sizes and times, or what object storage tells."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from align.batch.jobs.remote_listing import remote_state
from align.remote.remote_files import remote_url

if TYPE_CHECKING:
    from collections.abc import Iterator

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
