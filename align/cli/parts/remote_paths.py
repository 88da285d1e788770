"""Paths of object storage on a command line: commands see local files in their place."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_WRITTEN = ("destination", "output", "out")
_FOLDERS = ("run",)


@contextmanager
def local_paths(given: dict[str, Any]) -> Iterator[None]:
    """Replace URLs among the paths of a command; what it writes is uploaded when it ends without an error."""
    if not any(":/" in str(value) for value in given.values()):
        yield
        return
    # With --into the destination is a model that is read, and -o the file to write.
    written = _WRITTEN[1:] if given.get("into") else _WRITTEN
    replace = bool(given.get("overwrite", True))
    with ExitStack() as stack:
        for name, value in given.items():
            _require_place(name, value, given)
            given[name] = _local(stack, value, name in written, replace=replace)
        yield


def _require_place(name: str, value: Any, given: Mapping[str, Any]) -> None:
    """Raise UsageError for a URL where a command changes files in their place."""
    from align.core.remote_files import remote_url
    from align.errors import UsageError

    if not isinstance(value, Path) or (url := remote_url(value)) is None:
        return
    if name in _FOLDERS:
        raise UsageError.of("remote_file.run_folder", url=url)
    if name == "destination" and given.get("into") and not given.get("out"):
        raise UsageError.of("remote_file.into", url=url)


def _local(stack: ExitStack, value: Any, written: bool, *, replace: bool) -> Any:
    from align.core.remote_files import local_copy, local_destination, remote_url

    if isinstance(value, tuple | list):
        return type(value)(_local(stack, one, written, replace=replace) for one in value)
    if not isinstance(value, Path) or remote_url(value) is None:
        return value
    return stack.enter_context(local_destination(value, replace=replace) if written else local_copy(value))
