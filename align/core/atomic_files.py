"""Files and folders written whole or not at all, and the hash of a file.

What is written lies in a folder of its own beside the destination until it is complete. The folder is locked as long as
the process lives, so that what a killed one left behind can be distinguished from work in progress, and is removed by
the next that writes to the same destination.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import hashlib
import os
import re
import secrets
import shutil
import threading
from typing import TYPE_CHECKING, BinaryIO

from align.core.thresholds import BLOCK_BYTES, SCRATCH_NAME_LENGTH
from align.errors import DestinationError, MissingFileError, NoSpaceError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # format: of linux/fcntl.h and linux/fs.h
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_SCRATCH = re.compile(rf"\.(?P<name>.{{1,{SCRATCH_NAME_LENGTH}}})\.\w{{8}}\.part")
# What a full disk, an exceeded quota and a limit on the size of a file (RLIMIT_FSIZE, FAT) are called.
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextlib.contextmanager
def atomic_path(destination: Path, nbytes: int = 0) -> Iterator[Path]:
    """Yield a path for a new file of the same name, which takes the destination's place on success and goes otherwise.

    The file gets the mode of the user's umask and is flushed to disk before that. A destination that is a link to a
    file stays one: the file that it leads to is replaced. `nbytes` is how much will be written, as far as it is known.
    Raises NoSpaceError where there is no room for it, and DestinationError when the folder is missing or cannot be
    written or the destination is no regular file.
    """
    written = destination
    try:
        written = _replaced_by(destination)
        check_space(written.parent, nbytes)
        with _scratch_folder(written) as folder:
            yield folder / written.name
            _flush_to_disk(folder / written.name)
            (folder / written.name).replace(written)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise NoSpaceError(destination, nbytes, _free(written.parent), error.strerror or "") from error
        raise DestinationError.of(
            "file_fault.not_written", destination=destination, reason=error.strerror or error
        ) from error


def check_space(folder: Path, nbytes: int) -> None:
    """Raise NoSpaceError if the disk of a folder has no room for so many bytes; OSError if there is no such folder."""
    if nbytes > shutil.disk_usage(folder).free:
        raise NoSpaceError(folder, nbytes, _free(folder))


@contextlib.contextmanager
def atomic_writer(destination: Path) -> Iterator[BinaryIO]:
    """Yield a binary stream whose content becomes `destination` only if the block ends without an error."""
    with atomic_path(destination) as temporary, temporary.open("wb") as stream:
        yield stream


@contextlib.contextmanager
def atomic_folder(destination: Path, own: Collection[str]) -> Iterator[Path]:
    """Yield a new folder, which takes the destination's place if the block ends without an error and goes otherwise.

    A folder that is there is replaced if it holds nothing but files called as in `own`. Raises DestinationError where
    it holds something else, or cannot be written.
    """
    destination = destination.absolute()
    part = destination.with_name(f".{destination.name}.{secrets.token_hex(4)}.part")
    try:
        strange = sorted(path.name for path in destination.iterdir()) if destination.exists() else []
        if strange := [name for name in strange if name not in own]:
            raise DestinationError.of("file_fault.not_empty", destination=destination, names=strange)
        part.mkdir(parents=True)
        yield part
        replace_folder(part, destination)
    except OSError as error:
        raise DestinationError.of(
            "file_fault.not_written", destination=destination, reason=error.strerror or error
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def replace_folder(new: Path, destination: Path) -> None:
    """Let a folder take the place of another in one step, so that there is one at every moment; the old one goes.

    Where the file system cannot exchange two folders, the old one is moved aside first.
    """
    if not destination.exists():
        new.rename(destination)
    elif _exchange(new, destination):
        shutil.rmtree(new, ignore_errors=True)
    else:
        old = destination.with_name(f".{destination.name}.{secrets.token_hex(4)}.part")
        destination.rename(old)
        new.rename(destination)
        shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two paths of one file system; False where it has no such call."""
    libc = ctypes.CDLL(None)
    call = getattr(libc, "renameat2", None)
    return call is not None and call(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0


def write_text(destination: Path, text: str) -> None:
    """Write UTF-8 text atomically; names of files stand in it as on the disk, whatever the locale takes for letters."""
    with atomic_writer(destination) as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))


def remove_dead_parts(folder: Path) -> None:
    """Remove what killed processes left of files that they were writing into a folder, whatever the files were."""
    for found in folder.iterdir():
        if (match := _SCRATCH.fullmatch(found.name)) and found.is_dir():
            held = [path.name for path in found.iterdir()]
            if all(name[:SCRATCH_NAME_LENGTH] == match["name"] for name in held):
                _remove_if_dead(found, held[0] if held else "")


def existing_file(path: Path, what: str) -> Path:
    """Return `path` if it is a file; raises MissingFileError with the word `what` otherwise."""
    if not path.is_file():
        raise MissingFileError(path, what, _place_fault(path))
    return path


def _place_fault(path: Path) -> str:
    """What stands in the place of a file; "" if nothing does."""
    if path.is_dir():
        return say("file_fault.folder")
    if path.exists():
        return say("file_fault.not_regular")
    if path.is_symlink():
        return say("file_fault.link_to_nothing")
    above = next((folder for folder in path.parents if folder.exists()), path)
    return "" if above.is_dir() or above == path else say("file_fault.no_folder", above=above)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content as lowercase hex, read in blocks of 1 MiB.

    A file that the same process has hashed and whose inode, size and times are as they were is not read again.
    """
    state = path.stat()
    with _ONE_AT_A_TIME:  # whoever asks for what is being hashed waits for it
        return _sha256_of(path, (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns))


def hash_meanwhile(paths: Iterable[Path]) -> None:
    """Hash files in a thread, so that `sha256_of` knows them when the work on them is done; what fails, fails there."""

    def hash_all() -> None:
        for path in paths:
            with contextlib.suppress(OSError):
                sha256_of(path)

    threading.Thread(target=hash_all, daemon=True).start()


_ONE_AT_A_TIME = threading.Lock()


@functools.lru_cache(maxsize=64)
def _sha256_of(path: Path, _state: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _replaced_by(destination: Path) -> Path:
    """The file itself, behind a link; raises DestinationError for what must not be replaced by a file."""
    if not destination.is_symlink() and not destination.exists():
        return destination
    if destination.is_symlink() and not destination.exists():
        raise DestinationError.of(
            "file_fault.destination_link", destination=destination, leads_to=destination.readlink()
        )
    if not destination.is_file():
        raise DestinationError.of("file_fault.destination_not_regular", destination=destination)
    return destination.resolve()


@contextlib.contextmanager
def _scratch_folder(destination: Path) -> Iterator[Path]:
    """Yield a new folder beside `destination`, for one file of its name, locked until it is removed."""
    with contextlib.suppress(PermissionError):  # a folder may be open for writing only
        _remove_leftovers(destination)
    locks: list[int] = []
    folder = destination.with_name(f"{_scratch_prefix(destination)}{secrets.token_hex(4)}.part")
    try:  # from before the folder is there: a signal may end the work at any moment
        _make_locked(folder, locks)
        yield folder
    finally:
        for lock in locks:
            _remove_scratch(folder, destination.name, lock)
            os.close(lock)
        with contextlib.suppress(OSError):
            folder.rmdir()


def _make_locked(folder: Path, locks: list[int]) -> None:
    """Make a folder and lock it; again, if another process took it for a leftover in between."""
    while True:
        folder.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            locks.append(os.open(folder, FOLDER))
            with contextlib.suppress(OSError):  # some network file systems have no locks; there nothing is cleaned up
                fcntl.flock(locks[-1], fcntl.LOCK_EX)
            if folder.exists():
                return


def _scratch_prefix(destination: Path) -> str:
    """Short enough that the folder's name fits (255 bytes) where the file's does."""
    return f".{destination.name[:SCRATCH_NAME_LENGTH]}."


def _remove_leftovers(destination: Path) -> None:
    """Remove the scratch folders of processes that were killed; a living one holds its lock."""
    pattern = re.compile(rf"{re.escape(_scratch_prefix(destination))}\w{{8}}\.part")
    for folder in destination.parent.iterdir():
        if pattern.fullmatch(folder.name):
            _remove_if_dead(folder, destination.name)


def _remove_if_dead(folder: Path, name: str) -> None:
    with contextlib.suppress(OSError):  # it is in use, or not ours to remove
        lock = os.open(folder, FOLDER)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_scratch(folder, name, lock)
        finally:
            os.close(lock)


def _remove_scratch(folder: Path, name: str, opened: int) -> None:
    """Remove the file and the folder, nothing else that might be in there."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=opened)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
