"""Opening a checkpoint by its content; the suffix decides nothing, because people rename files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from align.checkpoints.format_parts.open_sharded import checkpoint_in, is_index, open_sharded, shard_note
from align.checkpoints.thresholds import HEAD_BYTES
from align.core.atomic_files import existing_file
from align.core.checkpoints import require_plain
from align.core.message_words import printable
from align.core.registry import checkpoint_formats
from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.core.checkpoints import Checkpoint

# What lies in the place of a checkpoint when it was not fetched: how it starts, what it is and what to do.
NOT_FETCHED_FAULTS = (
    (b"version https://git-lfs", "it is a pointer of Git LFS, not the file itself", "run `git lfs pull` where it is"),
    (b"<!doctype html", "it is a web page", "the download failed, often for want of a login: download it again"),
    (b"<html", "it is a web page", "the download failed, often for want of a login: download it again"),
)


def open_checkpoint(path: Path | str, key: str | None = None, *, odd_too: bool = False) -> Checkpoint:
    """Read the header of a checkpoint of any known format; no tensor is loaded.

    `path` may also be the index of a sharded checkpoint, or a folder that holds one index or one checkpoint. `key`
    chooses an entry of a nested file. Tensors without a plain form are refused, or kept in `odd` with `odd_too`. Raises
    MissingFileError, UsageError (several checkpoints in a folder), SeveralEntriesError, MissingEntryError,
    UnsupportedTensorsError, NotACheckpointError (with the known formats) or what the reader says.

    >>> import numpy, tempfile
    >>> path = Path(tempfile.mkdtemp(), "model.npz")
    >>> numpy.savez(path, **{"fc.weight": numpy.ones((2, 3), numpy.float32)})
    >>> open_checkpoint(path).tensors["fc.weight"].shape
    (2, 3)
    """
    path = Path(path)
    try:
        found = existing_file(checkpoint_in(path) if path.is_dir() else path, "checkpoint")
        open_file = partial(_open_file, key=key, odd_too=odd_too)
        if is_index(_head(found)):
            return open_sharded(found, open_file)
        return replace(open_file(found), notes=tuple(shard_note(found)))
    except OSError as error:
        raise NotACheckpointError(path, error.strerror or str(error)) from error
    except MemoryError as error:
        hint = "free some memory, or raise its limit; a small file that needs so much should not be trusted"
        raise UnsupportedCheckpointError(path, "what it says of its tensors takes all memory", hint) from error


def require_checkpoint(path: Path | str) -> None:
    """Raise MissingFileError if there is neither a file nor a folder at `path`; nothing is read."""
    if not Path(path).is_dir():
        existing_file(Path(path), "checkpoint")


def printable_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with all its words fit to be shown; names of tensors go to maps and files and stay as they are.

    Raises HostileFileError for names of tensors that cannot be shown.
    """
    for name in (*checkpoint.tensors, *checkpoint.odd):
        if not name.isprintable():
            hint = "rename it where it comes from and save the file again; names go to terminals and reports"
            raise HostileFileError(
                checkpoint.path, f"a tensor is called {name!r}, with characters not to be shown", hint
            )
    return replace(
        checkpoint,
        metadata=dict(_shown(checkpoint.metadata.items())),
        other=dict(_shown(checkpoint.other.items())),
        other_tensors={printable(name): count for name, count in checkpoint.other_tensors.items()},
    )


def _open_file(path: Path, key: str | None, odd_too: bool) -> Checkpoint:
    head = _head(path)
    for plugin in checkpoint_formats().values():
        if plugin.recognizes(path, head):
            found = printable_checkpoint(plugin.read(path, key))
            return found if odd_too else require_plain(found)
    for start, reason, hint in NOT_FETCHED_FAULTS:
        if head.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(start):
            raise NotACheckpointError(path, reason, hint=hint)
    reason = "its content is of no known format" if head else "it is empty"
    raise NotACheckpointError(
        path, reason, [f"{p.name} ({' '.join(p.suffixes)})" for p in checkpoint_formats().values()]
    )


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(HEAD_BYTES)


def _shown(table: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    return ((printable(name), printable(value)) for name, value in table)
