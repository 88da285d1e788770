"""What a checkpoint claims, held to what can be: shapes of arrays, JSON without a name that stands twice, other files.

A value of two bytes of JSON takes seventy in memory. Headers and indexes spend twelve bytes and more on each; those
with far more values are refused before they are parsed, so that parsing takes fifteen times their size at most.

A download must not be able to have any file of the machine read. A file in the folder may still be a link, if it ends
in the folder, or below the one where the file lies that the checkpoint itself is a link to, or in the store of the
model hub's cache (`blobs`) that the folder is a snapshot of (below `snapshots`), where all files are such links.
"""

from __future__ import annotations

import json
from itertools import pairwise
from math import prod
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, NamedTuple

from align.checkpoints.thresholds import MOST_ARRAY_ELEMENTS, SPARE_JSON_MARKS
from align.core.checkpoints import Extent
from align.core.thresholds import MOST_AXES
from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import Shape

LEAST_BYTES = {b"{": 40, b"[": 20, b":": 20, b",": 12}


def parse_json(raw: bytes) -> Any:
    """Parse UTF-8 JSON; raises ValueError for damage, a name given twice, too many values and too deep ones."""
    if any(raw.count(mark) > SPARE_JSON_MARKS + len(raw) // least for mark, least in LEAST_BYTES.items()):
        raise ValueError(say("json_file.too_many_values", count=len(raw)))
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except RecursionError as error:
        raise ValueError(say("json_file.too_deep")) from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError(say("json_file.name_twice"))
    return table


def sound_shape(path: Path, name: str, dims: Sequence[int]) -> Shape:
    """Return the dims as a shape; raises HostileFileError, naming the tensor, if no array can have it."""
    if len(dims) > MOST_AXES:
        raise HostileFileError(path, say("checkpoint_file.too_many_axes", name=name, count=len(dims), most=MOST_AXES))
    if min(dims, default=0) < 0 or prod([dim or 1 for dim in dims]) > MOST_ARRAY_ELEMENTS:
        raise HostileFileError(path, say("checkpoint_file.no_such_shape", name=name, shape=str(tuple(dims))))
    return tuple(dims)


class ExternalPlace(NamedTuple):
    """Where a tensor's bytes are said to lie: a path relative to the checkpoint's folder, and which bytes."""

    location: str
    offset: int
    nbytes: int


def external_extents(path: Path, places: Mapping[str, ExternalPlace]) -> dict[str, Extent]:
    """Return the places of tensors in other files, which are the same bytes or do not meet.

    Raises UnsupportedCheckpointError naming the files that are missing, and HostileFileError or NotACheckpointError for
    places outside the folder or outside their file.
    """
    locations = dict.fromkeys(place.location for place in places.values())
    files = {location: file for location in locations if (file := external_file(path, location)) is not None}
    if missing := [location for location in locations if location not in files]:
        raise UnsupportedCheckpointError(path, *texts("external_file.missing", count=len(missing), missing=missing))
    sizes = {location: file.stat().st_size for location, file in files.items()}
    for name, (location, offset, nbytes) in places.items():
        if offset + nbytes > sizes[location]:
            end, size = offset + nbytes, sizes[location]
            raise NotACheckpointError(
                path, say("external_file.too_short", name=name, end=end, location=location, size=size)
            )
    _check_overlap(path, places.values())
    return {name: Extent(files[location], offset, nbytes) for name, (location, offset, nbytes) in places.items()}


def external_file(path: Path, location: str) -> Path | None:
    """Return the file at a location relative to the folder of the checkpoint at `path`, None if there is none.

    Raises HostileFileError for a location that leaves the folder, by its words or as a link, or is no plain file.
    """
    return FilesBeside(path).file(location)


class FilesBeside:
    """The files that the one at `path` may name; what is known of folders is found out once."""

    def __init__(self, path: Path) -> None:
        self._path, self._homes = path, tuple(_homes(path))
        self._plain: dict[Path, bool] = {}

    def file(self, location: str) -> Path | None:
        """The file at a location, as `external_file` gives it."""
        odd = not location or location.startswith("/") or "\\" in location or not location.isprintable()
        if odd or ".." in location.split("/"):
            raise HostileFileError(self._path, say("external_file.outside", location=location))
        file = self._path.parent / location
        if self._is_plain(file.parent) and _is_regular(file):
            return file
        return self._resolved(file, location)

    def _is_plain(self, folder: Path) -> bool:
        """Whether a folder is below the one of the naming file without any link."""
        if folder not in self._plain:
            home = self._path.parent
            below = self._homes[0].joinpath(folder.relative_to(home)) if folder.is_relative_to(home) else None
            self._plain[folder] = folder.resolve() == below
        return self._plain[folder]

    def _resolved(self, file: Path, location: str) -> Path | None:
        try:
            real = file.resolve(strict=True)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:  # a name that is too long, a folder that may not be read
            facts = {"location": location[:60], "reason": error.strerror or str(error)}
            raise HostileFileError(self._path, say("external_file.not_opened", **facts)) from error
        except RuntimeError as error:  # a loop of links, before Python 3.13
            raise HostileFileError(self._path, say("external_file.link_to_itself", location=location)) from error
        if not any(real.is_relative_to(folder) for folder in self._homes):
            raise HostileFileError(self._path, say("external_file.link_outside", location=location, real=real))
        if not real.is_file():
            raise HostileFileError(self._path, say("external_file.not_plain", location=location))
        return file


def _is_regular(file: Path) -> bool:
    """Whether it is a plain file and no link."""
    try:
        return S_ISREG(file.lstat().st_mode)
    except (OSError, ValueError):
        return False


def _homes(path: Path) -> Iterator[Path]:
    """The folders in which links may end."""
    folder = path.parent.resolve()
    yield folder
    yield path.resolve().parent
    yield from (above.parent / "blobs" for above in folder.parents if above.name == "snapshots")


def _check_overlap(path: Path, places: Iterable[ExternalPlace]) -> None:
    ordered = sorted({place for place in places if place.nbytes})
    for before, after in pairwise(ordered):
        if before.location == after.location and after.offset < before.offset + before.nbytes:
            raise HostileFileError(path, say("external_file.overlap", offset=after.offset, location=after.location))
