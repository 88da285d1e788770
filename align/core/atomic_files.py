"""Files and folders written whole or not at all, the hash of a file, and object storage as local files.

What is written lies in a folder of its own beside the destination until it is complete. The folder is locked as long as
the process lives, so that what a killed one left behind can be distinguished from work in progress, and is removed by
the next that writes to the same destination.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import importlib
import importlib.util
import json
import os
import re
import secrets
import shutil
import struct
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from align.core.operating_system import FOLDER, OPENS_FOLDERS, flush_to_disk, lock_descriptor
from align.core.thresholds import BLOCK_BYTES, SCRATCH_NAME_LENGTH
from align.errors import (
    AlignError,
    CannotRunError,
    DestinationError,
    FrameworkMissingError,
    MissingFileError,
    NoSpaceError,
    UsageError,
)
from align.words.catalogue import changed, say

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # format: of linux/fcntl.h and linux/fs.h
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
            flush_to_disk(folder / written.name)
            (folder / written.name).replace(written)
    except OSError as error:
        raise _not_written(destination, written.parent, nbytes, error) from error


def _not_written(destination: Path, folder: Path, nbytes: int, error: OSError) -> DestinationError:
    """What to say of a file or folder that could not be written: no room on the disk, no memory, or something else."""
    if error.errno in NO_SPACE:
        return NoSpaceError(destination, nbytes, _free(folder), error.strerror or "")
    fault = "file_fault.no_memory" if error.errno == errno.ENOMEM else "file_fault.not_written"
    return DestinationError.of(fault, destination=destination, reason=error.strerror or error)


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
def atomic_folder(destination: Path, replaceable: Collection[str]) -> Iterator[Path]:
    """Yield a new folder, which takes the destination's place if the block ends without an error and goes otherwise.

    A folder that is there is replaced if it holds nothing but files called as in `replaceable`. Raises
    DestinationError where it holds something else, or cannot be written.
    """
    destination = destination.absolute()
    part = destination.with_name(f".{destination.name}.{secrets.token_hex(4)}.part")
    try:
        strange = sorted(path.name for path in destination.iterdir()) if destination.exists() else []
        if strange := [name for name in strange if name not in replaceable]:
            raise DestinationError.of("file_fault.not_empty", destination=destination, names=strange)
        part.mkdir(parents=True)
        yield part
        replace_folder(part, destination)
    except OSError as error:
        raise _not_written(destination, destination.parent, 0, error) from error
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


def _exchange(path: Path, other: Path) -> bool:
    """Exchange two paths of one file system; False where it has no such call."""
    call = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    return call is not None and call(AT_FDCWD, os.fsencode(path), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0


def write_text(destination: Path, text: str) -> None:
    """Write UTF-8 text atomically; names of files stand in it as on the disk, whatever the locale takes for letters."""
    with atomic_writer(destination) as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))


def remove_dead_parts(folder: Path) -> None:
    """Remove what killed processes left of files that they were writing into a folder, whatever the files were."""
    for part in folder.iterdir():
        if (match := _SCRATCH.fullmatch(part.name)) and part.is_dir():
            held = [path.name for path in part.iterdir()]
            if all(name[:SCRATCH_NAME_LENGTH] == match["name"] for name in held):
                _remove_if_dead(part, held[0] if held else "")


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
        if not OPENS_FOLDERS:
            _remove_scratch(folder, destination.name, None)
        with contextlib.suppress(OSError):
            folder.rmdir()


def _make_locked(folder: Path, locks: list[int]) -> None:
    """Make a folder and lock it; again, if another process took it for a leftover in between."""
    while True:
        folder.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            if OPENS_FOLDERS:
                locks.append(os.open(folder, FOLDER))
                with contextlib.suppress(OSError):  # not every system and file system has locks: nothing is cleaned up
                    lock_descriptor(locks[-1], wait=True)
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
            lock_descriptor(lock, wait=False)
            _remove_scratch(folder, name, lock)
        finally:
            os.close(lock)


def _remove_scratch(folder: Path, name: str, opened: int | None) -> None:
    """Remove the file and the folder, nothing else that might be in there; `opened` is the folder, where it can be."""
    with contextlib.suppress(OSError):
        if opened is None:
            (folder / name).unlink()
        else:
            os.unlink(name, dir_fd=opened)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


# Files of object storage (`s3://bucket/key` and what else fsspec knows), as local files while they are needed.
#
# A whole copy is read rather than the storage itself: readers map files into memory, and a checkpoint is read more
# than once. Where headers are enough, only that of a safetensors file is fetched. An upload begins when the local
# file is complete, and object storage shows nothing of it before it has ended. Results and messages name the URL, not
# the copy. Credentials are the environment's (`AWS_ACCESS_KEY_ID`, `~/.aws`); a URL that holds some is refused, and
# what stands after `?`, which may be a signature, is shown nowhere.


_Data = TypeVar("_Data")
_HEADER_SUFFIX, _INDEX_SUFFIX = ".safetensors", ".index.json"
_LENGTH = struct.Struct("<Q")  # what a safetensors file begins with: how long its header is
_QUERY = re.compile(r"\?[^\s'\"]*")
_copies: dict[str, str] = {}  # the URL of each local path that stands for one now
# A Path joins the slashes of a URL. One letter is no scheme, but a drive.
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/{1,2}(?P<rest>[^/].*)", re.DOTALL)


def remote_url(path: Path | str) -> str | None:
    """The URL that a path is, with both slashes; None for a path of this machine.

    >>> remote_url(Path("s3://bucket/model.safetensors"))
    's3://bucket/model.safetensors'
    >>> remote_url("runs/model.safetensors")
    """
    found = _URL.fullmatch(str(path))
    if found is None or Path(f"{found['scheme']}:").is_dir():
        return None
    return f"{found['scheme']}://{found['rest']}"


def with_urls(data: _Data) -> _Data:
    """Plain data or text in which URLs stand where it names their local copies; others are returned as they are."""
    return _replaced(data, _copies) if _copies else data


@contextmanager
def local_copy(path: Path | str, *, headers: bool = False) -> Iterator[Path]:
    """Yield the path itself, or that of a copy of a remote file or folder, which is removed with the context.

    With `headers`, safetensors files are fetched up to the end of their header, and have zeros for their values. An
    index brings the files that it names. Raises MissingFileError if there is no such object, NoSpaceError if the folder
    for temporary files (`TMPDIR`) has no room for it, and CannotRunError for all else that the storage says.
    """
    if (url := remote_url(path)) is None:
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="align-remote-") as folder:
        with storage_errors(url):
            found = _fetched(url, Path(folder), headers=headers)
        with _standing_for(url, found):
            yield found


@contextmanager
def local_destination(path: Path | str, *, replace: bool = True) -> Iterator[Path]:
    """Yield the path itself, or one whose file becomes the remote object if the context ends without an error.

    Without a file at the end nothing is uploaded; an upload that fails leaves no part of it. What lies beside the file
    then goes beside the object. Raises DestinationError if the object is there and not to be replaced.
    """
    if (url := remote_url(path)) is None:
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="align-remote-") as folder:
        with storage_errors(url):
            storage, key = storage_of(url)
            if not replace and storage.exists(key):
                raise DestinationError.of("remote_file.exists", url=shown_url(url))
        above, _, name = key.rpartition("/")
        written = Path(folder, name)
        with _standing_for(url, written):
            yield written
        if written.is_file():
            beside = [path for path in sorted(Path(folder).iterdir()) if path.is_file() and path != written]
            with storage_errors(url):
                for path in (*beside, written):
                    storage.put_file(str(path), f"{above}/{path.name}")


def _fetched(url: str, folder: Path, *, headers: bool) -> Path:
    storage, key = storage_of(url)
    names = _names(storage, key)
    if not names:
        raise MissingFileError(shown_url(url), "remote file")
    sizes = {name: _needed(storage, name, headers=headers) for name in names}
    check_space(folder, sum(sizes.values()))
    above, _, last = key.rstrip("/").rpartition("/")
    for name, size in sizes.items():
        place = folder / shown_url(name.removeprefix(above).lstrip("/"))
        if not place.resolve().is_relative_to(folder.resolve()):  # a key may hold `..`
            raise UsageError.of("remote_file.outside", url=shown_url(url), name=name)
        place.parent.mkdir(parents=True, exist_ok=True)
        _fetch(storage, name, place, size)
    return folder / shown_url(last)


def _names(storage: Any, key: str) -> list[str]:
    """The keys of a file, of an index with the files that it names, or of all in a folder."""
    if not storage.isfile(key):
        return sorted(storage.find(key))
    if not key.endswith(_INDEX_SUFFIX):
        return [key]
    above = key.rpartition("/")[0]
    try:
        shards = {str(name) for name in json.loads(storage.cat_file(key))["weight_map"].values()}
    except (ValueError, KeyError, TypeError, AttributeError):  # the reader says what is wrong with it
        return [key]
    return [key, *(name for shard in sorted(shards) if storage.isfile(name := f"{above}/{shard}"))]


def _needed(storage: Any, name: str, *, headers: bool) -> int:
    """Bytes of a file to fetch from its start: all, or those of the header that it claims to have."""
    size = int(storage.size(name))
    if not headers or not name.endswith(_HEADER_SUFFIX):
        return size
    if size < _LENGTH.size:
        return size
    (length,) = _LENGTH.unpack(storage.cat_file(name, start=0, end=_LENGTH.size))
    return min(size, _LENGTH.size + int(length))


def _fetch(storage: Any, name: str, place: Path, needed: int) -> None:
    """Fetch a file, or its first bytes into a file of the whole length."""
    size = int(storage.size(name))
    if needed == size:
        storage.get_file(name, str(place))
        return
    place.write_bytes(storage.cat_file(name, start=0, end=needed))
    with place.open("r+b") as file:
        file.truncate(size)


def storage_of(url: str) -> tuple[Any, str]:
    """The file system of a URL and the key in it; raises FrameworkMissingError without the package that it needs."""
    scheme, _, rest = url.partition("://")
    if "@" in rest.partition("/")[0]:
        raise UsageError.of("remote_file.credentials", scheme=scheme)
    if importlib.util.find_spec("fsspec") is None:
        raise FrameworkMissingError("fsspec", "pip install 'mindalign[remote]'")
    fsspec: Any = importlib.import_module("fsspec")  # it has no types
    if scheme not in fsspec.available_protocols():
        raise UsageError.of("remote_file.unknown", url=shown_url(url), scheme=scheme)
    try:
        storage, key = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise FrameworkMissingError(f"fsspec[{scheme}]", _install(scheme)) from error
    storage.invalidate_cache()  # listings are kept for the life of the process
    return storage, str(key)


def _install(scheme: str) -> str:
    if scheme in ("s3", "s3a"):
        return "pip install 'mindalign[remote]'"
    return f"pip install 'fsspec[{scheme}]'"


@contextmanager
def _standing_for(url: str, path: Path) -> Iterator[None]:
    """Have errors and `with_urls` name the URL in place of the local path."""
    _copies[str(path)] = shown_url(url)
    try:
        yield
    except AlignError as error:
        copies = dict(_copies)  # an error is told when they are gone

        def named(text: str) -> str:
            return str(_replaced(text, copies))

        error.message, error.hint = changed(error.message, named), changed(error.hint, named)
        raise
    finally:
        del _copies[str(path)]


def _replaced(data: Any, copies: Mapping[str, str]) -> Any:
    if isinstance(data, str):
        for path, url in copies.items():
            data = data.replace(path, url) if path in data else data
        return data
    if isinstance(data, dict):
        return {_replaced(key, copies): _replaced(value, copies) for key, value in data.items()}
    return [_replaced(item, copies) for item in data] if isinstance(data, list) else data


def shown_url(url: str) -> str:
    """A URL without what stands after `?`."""
    return url.partition("?")[0]


@contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """Have all that a storage raises be one message: each library has errors of its own."""
    try:
        yield
    except (AlignError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except FileNotFoundError as error:
        raise CannotRunError.of("remote_file.missing", url=shown_url(url)) from error
    except PermissionError as error:
        raise CannotRunError.of("remote_file.forbidden", url=shown_url(url)) from error
    except Exception as error:
        reason = _QUERY.sub("", str(error)) or type(error).__name__
        raise CannotRunError.of("remote_file.failed", url=shown_url(url), reason=reason) from error
