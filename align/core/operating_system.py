"""What Linux, macOS and Windows do differently, in one place, so that nothing else asks which of them it runs on.

Everything imports on each of them. Where a system lacks a call, what stands here does the same another way, or says
that it cannot: a lock on an open file is then refused with ENOLCK, as a network file system without locks does.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import json
import os
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from align.core.thresholds import LONGEST_LOCK_FILE
from align.errors import DestinationError, FolderInUseError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
READ = os.O_RDONLY | getattr(os, "O_BINARY", 0)
LOCK_FILE = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
FLUSHED = os.O_RDWR if sys.platform == "win32" else os.O_RDONLY  # Windows flushes only what is open for writing
ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
OPENS_FOLDERS = hasattr(os, "O_DIRECTORY") and os.unlink in os.supports_dir_fd
LOCK = ".mindalign.lock"
_TAKEN = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
KIB = 1024  # format: in what Linux counts a process's memory
_SEEKING = threading.Lock()


def has_locks() -> bool:
    """Tell whether open files can be locked here (`flock`)."""
    try:
        import fcntl  # noqa: F401
    except ImportError:
        return False
    return True


def lock_descriptor(descriptor: int, *, wait: bool) -> None:
    """Lock an open file or folder until it is closed; raises OSError if another has it or there are no such locks."""
    if not has_locks():
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def read_at(descriptor: int, count: int, offset: int) -> bytes:
    """Read at most so many bytes from a place of a file; threads that read others do not disturb it."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, count, offset)
    with _SEEKING:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, count)


def read_into(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Fill a buffer from a place of a file; returns how many bytes there were."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    content = read_at(descriptor, len(buffer), offset)
    buffer[: len(content)] = content
    return len(content)


def write_at(descriptor: int, content: memoryview, offset: int) -> int:
    """Write at a place of a file; returns how many bytes were taken."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, content, offset)
    with _SEEKING:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, content)


def file_without_name() -> int:
    """Open a new file that is gone as soon as it is closed."""
    descriptor, name = tempfile.mkstemp(prefix="align-")
    if goes := getattr(os, "O_TEMPORARY", 0):  # Windows keeps the name of an open file
        os.close(descriptor)
        return os.open(name, os.O_RDWR | READ | goes)
    Path(name).unlink()
    return descriptor


def flush_to_disk(path: Path) -> None:
    """Wait until a file is on the disk; raises OSError."""
    descriptor = os.open(path, FLUSHED)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def usable_cores() -> int:
    """How many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def user_number() -> int | None:
    """The number of the user that owns this process; None where files have no such owners."""
    return os.getuid() if hasattr(os, "getuid") else None


def peak_memory() -> float:
    """The most memory that this process had in use, in bytes; 0 where the system does not say.

    Linux counts in KiB, macOS in bytes.
    """
    try:
        import resource
    except ImportError:
        return 0.0
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else KIB))


def memory_limits() -> list[tuple[str, int]]:
    """The limits of this process, in bytes, each with what counts against it: a name of `/proc/self/status`."""
    try:
        import resource
    except ImportError:
        return []
    names = (("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData"))
    kinds = [(getattr(resource, kind), name) for kind, name in names if hasattr(resource, kind)]
    limits = [(name, resource.getrlimit(kind)[0]) for kind, name in kinds]
    return [(name, limit) for name, limit in limits if limit != resource.RLIM_INFINITY]


def machine_memory() -> int:
    """Bytes of memory that the machine has; as many as can be where the system does not say."""
    if not hasattr(os, "sysconf"):
        return sys.maxsize
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def read_here_and_there(data: Any) -> None:
    """Tell the system that a mapped file is read by jumps: reading ahead would read the whole file."""
    import mmap

    if hasattr(mmap, "MADV_RANDOM"):
        data.madvise(mmap.MADV_RANDOM)


# A lock on a folder that one process holds at a time, and that says who holds it.
#
# It is the operating system's (`flock`), so a process that ends in any way gives it back. The file beside it says who
# has it; one that a dead process left behind is taken over.


class Holder(NamedTuple):
    """Who holds a lock; `since` is a time in UTC, in ISO 8601."""

    pid: int
    host: str
    since: str


@contextlib.contextmanager
def folder_lock(path: Path, folder: Path, kind: Literal["run", "trace"]) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; it guards a `folder` of this kind.

    Raises FolderInUseError if another process, or this one, holds it, and DestinationError if it cannot be made. On
    file systems without locks nothing is held. A system without `flock` locks the file by filelock, and nobody can
    read there who holds it.
    """
    if not has_locks():
        with _library_lock(path, folder, kind):
            yield
        return
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


@contextlib.contextmanager
def _library_lock(path: Path, folder: Path, kind: str) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise FolderInUseError(say(f"folder_in_use.{kind}", folder=str(folder)), None) from error
    except OSError as error:
        raise DestinationError.of("traces_error.lock_not_written", path=path, reason=error.strerror or error) from error
    try:
        yield
    finally:
        lock.release()
        with contextlib.suppress(OSError):
            path.unlink()


def this_process() -> Holder:
    """This process, from now on."""
    return Holder(os.getpid(), socket.gethostname(), dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"))


def _locked(path: Path, folder: Path, kind: str) -> int:
    """Open and lock the file; again, if who held it before removed it in between."""
    while True:
        descriptor = os.open(path, LOCK_FILE, 0o666)
        try:
            lock_descriptor(descriptor, wait=False)
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
        found = json.loads(read_at(descriptor, LONGEST_LOCK_FILE, 0))
        return Holder(int(found["pid"]), str(found["host"]), str(found["since"]))
    except (ValueError, TypeError, KeyError):
        return None
