"""A run folder for one command at a time, from its first step to its result."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.atomic_files import remove_dead_parts
from align.runs.run_folder import KINDS, RunFolder
from align.runs.unfinished_runs import clear_mark, mark_begun, mark_ended, read_unfinished
from align.traces.folder_lock import LOCK, folder_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

# What a run that dies leaves beside its result, by kind; a new result makes it worthless.
PARTS = {"forward": ("traces.part",)}


@contextlib.contextmanager
def claim_run_folder(path: Path, kind: str) -> Iterator[None]:
    """Hold a run folder while the block makes the result of one kind.

    A block that raises leaves an older result as it is, marked as made before this run. What dead runs left is removed;
    folders that were made for this and stay empty go. Raises FolderInUseError if another process works in it, and
    DestinationError if it cannot be made.
    """
    made = [folder for folder in (path, *path.absolute().parents) if not folder.exists()]
    RunFolder.create(path)
    try:
        with folder_lock(path / LOCK, path, "run"):
            remove_dead_parts(path)
            with _Marked(path, kind) if kind in KINDS else contextlib.nullcontext():
                yield
            _remove_parts(path, kind)
    finally:
        with contextlib.suppress(OSError):  # it holds something
            for folder in made:
                folder.rmdir()


class _Marked:
    """The mark of a run that is going on; it goes with one that fails in a folder where nothing else is."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._kind = path, kind

    def __enter__(self) -> None:
        self._is_first = not any(found.name != LOCK for found in self._path.iterdir())
        self._run = mark_begun(self._path, self._kind)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is None or self._is_first:
            clear_mark(self._path, self._kind)
        elif isinstance(error, KeyboardInterrupt):
            mark_ended(self._path, self._kind, replace(self._run, ended="interrupted"))
        else:
            reason = str(error).strip().partition("\n")[0]
            mark_ended(
                self._path, self._kind, replace(self._run, ended="failed", reason=reason or type(error).__name__)
            )


def _remove_parts(path: Path, kind: str) -> None:
    if read_unfinished(path, kind) is None:
        for name in PARTS.get(kind, ()):
            shutil.rmtree(path / name, ignore_errors=True)
