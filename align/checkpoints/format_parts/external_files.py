"""Files that a checkpoint names by itself, shards and external data alike, held to its own folder.

A download must not be able to have any file of the machine read. A file in the folder may still be a link, if it ends
in the folder, or below the one where the file lies that the checkpoint itself is a link to, or in the store of the
model hub's cache (`blobs`) that the folder is a snapshot of (below `snapshots`), where all files are such links.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from align.core.checkpoints import Extent
from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError
from align.words.message_words import counted, first_few

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


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
        reason = f"{counted(len(missing), 'file')} with data of its tensors not found: {first_few(missing)}"
        raise UnsupportedCheckpointError(path, reason, "copy all files of the checkpoint into one folder")
    sizes = {location: file.stat().st_size for location, file in files.items()}
    for name, (location, offset, nbytes) in places.items():
        if offset + nbytes > sizes[location]:
            end, size = offset + nbytes, sizes[location]
            raise NotACheckpointError(path, f"tensor {name!r} ends at byte {end} of {location}, which has {size}")
    _check_overlap(path, places.values())
    return {name: Extent(files[location], offset, nbytes) for name, (location, offset, nbytes) in places.items()}


def external_file(path: Path, location: str) -> Path | None:
    """Return the file at a location relative to the folder of the checkpoint at `path`, None if there is none.

    Raises HostileFileError for a location that leaves the folder, by its words or as a link, or is no plain file.
    """
    odd = not location or location.startswith("/") or "\\" in location or not location.isprintable()
    if odd or ".." in location.split("/"):
        raise HostileFileError(path, f"it names {location!r}, which is not a file in its folder")
    file = path.parent / location
    try:
        real = file.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except RuntimeError as error:  # a loop of links, before Python 3.13
        raise HostileFileError(path, f"it names {location!r}, a link to itself") from error
    if not any(real.is_relative_to(folder) for folder in _homes(path)):
        raise HostileFileError(path, f"it names {location!r}, a link to {real}, outside its folder")
    if not real.is_file():
        raise HostileFileError(path, f"it names {location!r}, which is no plain file")
    return file


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
            raise HostileFileError(path, f"two tensors overlap at byte {after.offset} of {after.location}")
