"""Files of object storage (`s3://bucket/key` and what else fsspec knows), as local files while they are needed.

A whole copy is read rather than the storage itself: readers map files into memory, and a checkpoint is read more than
once. Where headers are enough, only that of a safetensors file is fetched. An upload begins when the local file is
complete, and object storage shows nothing of it before it has ended. Results and messages name the URL, not the copy.
Credentials are the environment's (`AWS_ACCESS_KEY_ID`, `~/.aws`); a URL that holds some is refused, and what stands
after `?`, which may be a signature, is shown nowhere.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import struct
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from align.core.atomic_files import check_space
from align.errors import (
    AlignError,
    CannotRunError,
    DestinationError,
    FrameworkMissingError,
    MissingFileError,
    UsageError,
)
from align.words.message_words import changed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
