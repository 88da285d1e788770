"""Paths of object storage on a command line: commands see local files in their place."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_WRITTEN = ("destination", "output", "out")
_FOLDERS = ("run",)
_TEXTS = ("reference", "candidate", "inputs", "candidate_inputs", "batch")  # a path, or the name of a function
_TEXT_MARK = "://"  # without it a text is no URL, but the name of a function


@contextmanager
def local_paths(command: str, given: dict[str, Any]) -> Iterator[None]:
    """Replace URLs among the paths of a command; what it writes is uploaded when it ends without an error.

    Of what `inspect` looks at, headers are fetched alone. A job of many tasks keeps its URLs: a task fetches its own.
    """
    if given.get("as_batch") is True or not any(":/" in str(value) for value in given.values()):
        yield
        return
    # With --into the destination is a model that is read, and -o the file to write.
    written = _WRITTEN[1:] if given.get("into") else _WRITTEN
    replace = bool(given.get("overwrite", True))
    with ExitStack() as stack:
        for name, value in given.items():
            _require_place(name, value, given)
            if name in written:
                given[name] = _destination(stack, value, replace=replace)
            else:
                given[name] = _local(stack, value, texts=name in _TEXTS, headers=command == "inspect")
        yield


def _require_place(name: str, value: Any, given: Mapping[str, Any]) -> None:
    """Raise UsageError for a URL where a command changes files in their place."""
    from align.errors import UsageError
    from align.remote.remote_files import remote_url

    if not isinstance(value, Path) or (url := remote_url(value)) is None:
        return
    if name in _FOLDERS:
        raise UsageError.of("remote_file.run_folder", url=url)
    if name == "destination" and given.get("into") and not given.get("out"):
        raise UsageError.of("remote_file.into", url=url)


def _destination(stack: ExitStack, value: Any, *, replace: bool) -> Any:
    from align.remote.remote_files import local_destination, remote_url

    if not isinstance(value, Path) or remote_url(value) is None:
        return value
    return stack.enter_context(local_destination(value, replace=replace))


def _local(stack: ExitStack, value: Any, *, texts: bool, headers: bool) -> Any:
    from align.remote.remote_files import local_copy, remote_url

    if isinstance(value, tuple | list):
        return type(value)(_local(stack, one, texts=texts, headers=headers) for one in value)
    text = texts and isinstance(value, str) and _TEXT_MARK in value
    if not (text or isinstance(value, Path)) or remote_url(value) is None:
        return value
    found = stack.enter_context(local_copy(value, headers=headers))
    return str(found) if text else found
