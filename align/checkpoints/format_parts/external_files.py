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
from align.words.catalogue import say, texts

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
    odd = not location or location.startswith("/") or "\\" in location or not location.isprintable()
    if odd or ".." in location.split("/"):
        raise HostileFileError(path, say("external_file.outside", location=location))
    file = path.parent / location
    try:
        real = file.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except RuntimeError as error:  # a loop of links, before Python 3.13
        raise HostileFileError(path, say("external_file.link_to_itself", location=location)) from error
    if not any(real.is_relative_to(folder) for folder in _homes(path)):
        raise HostileFileError(path, say("external_file.link_outside", location=location, real=real))
    if not real.is_file():
        raise HostileFileError(path, say("external_file.not_plain", location=location))
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
            raise HostileFileError(path, say("external_file.overlap", offset=after.offset, location=after.location))
