"""The files that the user's own code opens for reading: weights that a factory loads itself, data, vocabularies.

No option names them, and what they hold decides what a side computes. Python tells an audit hook of each file that it
opens, on whose behalf ever. A hook cannot be taken away again: there is one, from when `note_opened_files` is called,
and it notes only while the user's code runs. What compiled code opens by itself, it does not see.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.import_user_code import outside_of_packages

if TYPE_CHECKING:
    from collections.abc import Iterator

CODE = (".py", ".pyc", ".so")  # known as modules, or by the version of their package
OF_THE_SYSTEM = ("/proc/", "/sys/", "/dev/")
State = tuple[int, int]


@dataclass
class _Noted:
    """What this process has opened: files read with their first `(size, mtime_ns)`, files written, and who runs now."""

    is_listening: bool = False
    running: int = 0
    read: dict[str, State] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)


_NOTED = _Noted()


def note_opened_files() -> None:
    """Note from now on which files the user's code opens; of those noted before, the ones that are as they were stay.

    A module that is loaded once may have read them, and is not loaded again.
    """
    _NOTED.read = {name: state for name, state in _NOTED.read.items() if name not in _NOTED.written}
    _NOTED.read = {name: state for name, state in _NOTED.read.items() if _state(name) == state}
    _NOTED.written.clear()
    if not _NOTED.is_listening:
        _NOTED.is_listening = True
        sys.addaudithook(_hear)


@contextlib.contextmanager
def users_code() -> Iterator[None]:
    """What is opened in this block is opened by the user's code, in whatever thread."""
    _NOTED.running += 1
    try:
        yield
    finally:
        _NOTED.running -= 1


def opened_files() -> dict[Path, State]:
    """The files that the user's code has read in this process, with the size and the time that each had at first.

    What it wrote itself, code, and what belongs to installed packages or to the system is left out.
    """
    noted = [(name, state) for name, state in list(_NOTED.read.items()) if name not in _NOTED.written]
    return {Path(name): state for name, state in noted if outside_of_packages(name)}


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Note one file; whatever is wrong with its name, the caller's own call says it."""
    if not _NOTED.running or event not in ("open", "os.rename"):
        return
    with contextlib.suppress(OSError, TypeError, ValueError):
        if event == "os.rename":  # how a file is replaced by one that was just written
            _NOTED.written.add(_name(arguments[1]))
        elif not isinstance(arguments[0], int):
            _note(_name(arguments[0]), arguments[2])


def _note(name: str, flags: int) -> None:
    if name.endswith(CODE) or name.startswith(OF_THE_SYSTEM):
        return
    if flags & os.O_ACCMODE != os.O_RDONLY:
        _NOTED.written.add(name)
    elif name not in _NOTED.read:
        state = _state(name)
        if state is not None:
            _NOTED.read[name] = state


def _state(name: str) -> State | None:
    try:
        found = os.stat(name)  # noqa: PTH116 - the hook is called for every file of the process
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns)


def _name(given: Any) -> str:
    return os.path.abspath(os.fsdecode(given))  # noqa: PTH100 - as above
