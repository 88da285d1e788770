"""Files written whole or not at all, and the hash of a file."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
import threading
from typing import TYPE_CHECKING, BinaryIO

from align.errors import DestinationError, MissingFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BLOCK = 1 << 20


@contextlib.contextmanager
def atomic_path(destination: Path) -> Iterator[Path]:
    """Yield a temporary path beside `destination`; rename it there on success, remove it otherwise.

    The file gets the mode of the user's umask and is flushed to disk before the rename.
    Raises DestinationError when the folder is missing or cannot be written.
    """
    temporary = destination.with_name(f".{destination.name}.{secrets.token_hex(6)}.part")
    try:
        yield temporary
        _flush_to_disk(temporary)
        temporary.replace(destination)
    except OSError as error:
        raise DestinationError(
            f"cannot write {destination}: {error.strerror or error}",
            "check the folder, its permissions and the free space",
        ) from error
    finally:
        with contextlib.suppress(OSError):  # a path that cannot exist cannot be removed either
            temporary.unlink()


@contextlib.contextmanager
def atomic_writer(destination: Path) -> Iterator[BinaryIO]:
    """Yield a binary stream whose content becomes `destination` only if the block ends without an error."""
    with atomic_path(destination) as temporary, temporary.open("wb") as stream:
        yield stream


def write_text(destination: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic_writer(destination) as stream:
        stream.write(text.encode("utf-8"))


def existing_file(path: Path, what: str) -> Path:
    """Return `path` if it is a file; raises MissingFileError with the word `what` otherwise."""
    if not path.is_file():
        raise MissingFileError(path, what)
    return path


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content as lowercase hex, read in blocks of 1 MiB.

    A file that the same process has hashed and whose inode, size and time are as they were is not read again.
    """
    state = path.stat()
    return _sha256_of(path, (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns))


def sha256_beside(path: Path) -> Callable[[], str]:
    """Start hashing in a thread and return a function that waits for the result, as `sha256_of` would give it."""
    outcome: list[str | OSError] = []

    def work() -> None:
        try:
            outcome.append(sha256_of(path))
        except OSError as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def result() -> str:
        thread.join()
        if isinstance(outcome[0], OSError):
            raise outcome[0]
        return outcome[0]

    return result


@functools.lru_cache(maxsize=64)
def _sha256_of(path: Path, _state: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
