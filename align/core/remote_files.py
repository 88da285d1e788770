"""Files of object storage (`s3://bucket/key` and what else fsspec knows), as local files while they are needed.

A whole copy is read rather than the storage itself: readers map files into memory, and a checkpoint is read more than
once. An upload begins when the local file is complete, and object storage shows nothing of it before it has ended.
Credentials are the environment's (`AWS_ACCESS_KEY_ID`, `~/.aws`); a URL that holds some is refused.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.atomic_files import check_space
from align.errors import (
    AlignError,
    CannotRunError,
    DestinationError,
    FrameworkMissingError,
    MissingFileError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@contextmanager
def local_copy(path: Path | str) -> Iterator[Path]:
    """Yield the path itself, or that of a copy of a remote file or folder, which is removed with the context.

    Raises MissingFileError if there is no such object, NoSpaceError if the folder for temporary files (`TMPDIR`) has no
    room for it, and CannotRunError for all else that the storage says.
    """
    if (url := remote_url(path)) is None:
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="align-remote-") as folder:
        yield _fetched(url, Path(folder))


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
        with _told(url):
            storage, key = _storage(url)
            if not replace and storage.exists(key):
                raise DestinationError.of("remote_file.exists", url=url)
        above, _, name = key.rpartition("/")
        written = Path(folder, name)
        yield written
        if written.is_file():
            beside = [path for path in sorted(Path(folder).iterdir()) if path.is_file() and path != written]
            with _told(url):
                for path in (*beside, written):
                    storage.put_file(str(path), f"{above}/{path.name}")


def _fetched(url: str, folder: Path) -> Path:
    with _told(url):
        storage, key = _storage(url)
        if storage.isfile(key):
            names = [key]
        elif not (names := sorted(storage.find(key))):
            raise MissingFileError(url, "remote file")
        check_space(folder, sum(storage.size(name) for name in names))
        found = folder / key.rstrip("/").rpartition("/")[2]
        for name in names:
            place = found / name.removeprefix(key).lstrip("/")
            if not place.resolve().is_relative_to(folder.resolve()):  # a key may hold `..`
                raise UsageError.of("remote_file.outside", url=url, name=name)
            place.parent.mkdir(parents=True, exist_ok=True)
            storage.get_file(name, str(place))
        return found


def _storage(url: str) -> tuple[Any, str]:
    """The file system of a URL and the key in it; raises FrameworkMissingError without the package that it needs."""
    scheme, _, rest = url.partition("://")
    if "@" in rest.partition("/")[0]:
        raise UsageError.of("remote_file.credentials", scheme=scheme)
    if importlib.util.find_spec("fsspec") is None:
        raise FrameworkMissingError("fsspec", "pip install 'mindalign[remote]'")
    fsspec: Any = importlib.import_module("fsspec")  # it has no types
    if scheme not in fsspec.available_protocols():
        raise UsageError.of("remote_file.unknown", url=url, scheme=scheme)
    try:
        storage, key = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise FrameworkMissingError(f"the package for {scheme}://", _install(scheme)) from error
    storage.invalidate_cache()  # listings are kept for the life of the process
    return storage, str(key)


def _install(scheme: str) -> str:
    if scheme in ("s3", "s3a"):
        return "pip install 'mindalign[remote]'"
    return f"pip install 'fsspec[{scheme}]'"


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Have all that a storage raises be one message: each library has errors of its own."""
    try:
        yield
    except (AlignError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except FileNotFoundError as error:
        raise CannotRunError.of("remote_file.missing", url=url) from error
    except PermissionError as error:
        raise CannotRunError.of("remote_file.forbidden", url=url) from error
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise CannotRunError.of("remote_file.failed", url=url, reason=reason) from error
