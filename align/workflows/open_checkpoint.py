"""Opening a checkpoint by its content; the suffix decides nothing, because people rename files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from align.core.files import existing_file
from align.core.registry import checkpoint_formats
from align.errors import HostileFileError, NotACheckpointError

if TYPE_CHECKING:
    from align.core.checkpoints import Checkpoint

HEAD = 512


def open_checkpoint(path: Path | str, key: str | None = None) -> Checkpoint:
    """Read the header of a checkpoint of any known format; no tensor is loaded.

    `key` chooses an entry of a nested file. Raises MissingFileError, SeveralEntriesError, MissingEntryError,
    NotACheckpointError (with the known formats) or what the format's reader says.

    >>> import numpy, tempfile
    >>> path = Path(tempfile.mkdtemp(), "model.npz")
    >>> numpy.savez(path, **{"fc.weight": numpy.ones((2, 3), numpy.float32)})
    >>> open_checkpoint(path).tensors["fc.weight"].shape
    (2, 3)
    """
    path = existing_file(Path(path), "checkpoint")
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD)
        for plugin in checkpoint_formats().values():
            if plugin.recognizes(path, head):
                return _with_sound_names(plugin.read(path, key))
    except OSError as error:
        raise NotACheckpointError(path, error.strerror or str(error)) from error
    reason = "its content is of no known format" if head else "it is empty"
    raise NotACheckpointError(
        path, reason, [f"{p.name} ({' '.join(p.suffixes)})" for p in checkpoint_formats().values()]
    )


def _with_sound_names(checkpoint: Checkpoint) -> Checkpoint:
    """Names go to terminals, maps and reports: no control characters, nothing that UTF-8 cannot hold."""
    for name in checkpoint.tensors:
        if not name.isprintable():
            hint = "rename it where it comes from and save the file again; names go to terminals and reports"
            raise HostileFileError(
                checkpoint.path, f"a tensor is called {name!r}, with characters not to be shown", hint
            )
    return checkpoint
