"""Opening a checkpoint by its content; the suffix decides nothing, because people rename files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.files import existing_file
from align.core.registry import checkpoint_formats
from align.errors import HostileFileError, NotACheckpointError
from align.workflows.open_sharded import checkpoint_in, is_index, open_sharded

if TYPE_CHECKING:
    from align.core.checkpoints import Checkpoint

HEAD = 512


def open_checkpoint(path: Path | str, key: str | None = None) -> Checkpoint:
    """Read the header of a checkpoint of any known format; no tensor is loaded.

    `path` may also be the index of a sharded checkpoint, or a folder that holds one index or one checkpoint. `key`
    chooses an entry of a nested file. Raises MissingFileError, UsageError (several checkpoints in a folder),
    SeveralEntriesError, MissingEntryError, NotACheckpointError (with the known formats) or what the reader says.

    >>> import numpy, tempfile
    >>> path = Path(tempfile.mkdtemp(), "model.npz")
    >>> numpy.savez(path, **{"fc.weight": numpy.ones((2, 3), numpy.float32)})
    >>> open_checkpoint(path).tensors["fc.weight"].shape
    (2, 3)
    """
    path = Path(path)
    try:
        found = existing_file(checkpoint_in(path) if path.is_dir() else path, "checkpoint")
        if is_index(_head(found)):
            return open_sharded(found, partial(_open_file, key=key))
        return _open_file(found, key)
    except OSError as error:
        raise NotACheckpointError(path, error.strerror or str(error)) from error


def _open_file(path: Path, key: str | None) -> Checkpoint:
    head = _head(path)
    for plugin in checkpoint_formats().values():
        if plugin.recognizes(path, head):
            return with_sound_names(plugin.read(path, key))
    reason = "its content is of no known format" if head else "it is empty"
    raise NotACheckpointError(
        path, reason, [f"{p.name} ({' '.join(p.suffixes)})" for p in checkpoint_formats().values()]
    )


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(HEAD)


def with_sound_names(checkpoint: Checkpoint) -> Checkpoint:
    """Raise HostileFileError for names that cannot be shown: they go to terminals, maps and reports."""
    for name in checkpoint.tensors:
        if not name.isprintable():
            hint = "rename it where it comes from and save the file again; names go to terminals and reports"
            raise HostileFileError(
                checkpoint.path, f"a tensor is called {name!r}, with characters not to be shown", hint
            )
    return checkpoint
