"""The process while the user's code runs in it: the command line, the folder and the end of align are its own."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator


class ProgramEnded(SystemExit):
    """The user's code called `os._exit`; `call` is what it wrote."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.call = f"os._exit({status})"


@contextlib.contextmanager
def kept_process(folder: str = "") -> Iterator[None]:
    """Give the user's code no arguments of ours, start it in `folder`, and undo what it does to the process.

    `os._exit` raises ProgramEnded here: it would end align with a code of the user's choice, past all that stands
    around. In processes that the user's code starts it does what it always does.
    """
    argv, before = sys.argv, _current_folder()
    sys.argv = argv[:1]
    _go_to(folder)
    try:
        with _no_sudden_end():
            yield
    finally:
        sys.argv = argv
        _go_to(before)


@contextlib.contextmanager
def _no_sudden_end() -> Iterator[None]:
    own, end = os.getpid(), os._exit

    def raise_instead(status: int) -> NoReturn:
        if os.getpid() != own:
            end(status)
        raise ProgramEnded(status)

    os._exit = raise_instead
    try:
        yield
    finally:
        os._exit = end


def _current_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # it was removed while align runs in it
        return ""


def _go_to(folder: str) -> None:
    if folder and folder != _current_folder():
        os.chdir(folder)
