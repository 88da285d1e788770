"""A lock on a folder that one process holds at a time, and that says who holds it.

It is the operating system's (`flock`), so a process that ends in any way gives it back. The file beside it says who has
it; one that a dead process left behind is taken over.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import fcntl
import json
import os
import socket
from typing import TYPE_CHECKING, Literal, NamedTuple

from align.errors import DestinationError, FolderInUseError
from align.traces.thresholds import LONGEST_LOCK_FILE
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK = ".mindalign.lock"
_TAKEN = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


class Holder(NamedTuple):
    """Who holds a lock; `since` is a time in UTC, in ISO 8601."""

    pid: int
    host: str
    since: str


@contextlib.contextmanager
def folder_lock(path: Path, folder: Path, kind: Literal["run", "trace"]) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; it guards a `folder` of this kind.

    Raises FolderInUseError if another process, or this one, holds it, and DestinationError if it cannot be made. On
    file systems without locks nothing is held.
    """
    try:
        descriptor = _locked(path, folder, kind)
    except OSError as error:
        raise DestinationError.of("traces_error.lock_not_written", path=path, reason=error.strerror or error) from error
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, json.dumps(this_process()._asdict()).encode())
        yield
    finally:
        path.unlink(missing_ok=True)  # before the lock goes: who gets it next finds that the file is gone
        os.close(descriptor)


def this_process() -> Holder:
    """This process, from now on."""
    return Holder(os.getpid(), socket.gethostname(), dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"))


def _locked(path: Path, folder: Path, kind: str) -> int:
    """Open and lock the file; again, if who held it before removed it in between."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _TAKEN:
                holder = _read_holder(descriptor)
                os.close(descriptor)
                raise FolderInUseError(say(f"folder_in_use.{kind}", folder=str(folder)), holder) from error
        if _is_still_there(path, descriptor):
            return descriptor
        os.close(descriptor)


def _is_still_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read_holder(descriptor: int) -> Holder | None:
    """Who wrote into the file; None while that is not done."""
    try:
        found = json.loads(os.pread(descriptor, LONGEST_LOCK_FILE, 0))
        return Holder(int(found["pid"]), str(found["host"]), str(found["since"]))
    except (ValueError, TypeError, KeyError):
        return None
