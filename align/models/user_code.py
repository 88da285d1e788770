"""The one boundary where every exception is caught: behind it runs code that is not ours.

While it runs, the command line, the folder and the end of the process stay align's own.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from align.errors import AlignError
from align.models.thresholds import ARGUMENTS_SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
_SUDDEN_ENDS = ("_exit", "execv", "execve")  # every other `os.exec*` calls one of these


def run_user_code(code: Callable[[], T], failed: Callable[[BaseException], AlignError], folder: str = "") -> T:
    """Return what the user's code returns; whatever it raises, or a call that ends the program, is `failed(error)`.

    An AlignError passes: it comes from our own code that the user's code called, a sink or a reader. What the code
    prints goes to standard error, since standard output is for results. It starts in `folder`, by default the current
    one, and sees no arguments of the command line; folder and arguments are put back.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr), kept_process(folder):
            return code()
    except AlignError:
        raise
    except (Exception, SystemExit) as error:
        raise failed(error) from error


class ProgramEnded(SystemExit):
    """The user's code called `os._exit` or `os.exec*`; `call` is what it wrote."""

    def __init__(self, name: str, arguments: tuple[object, ...]) -> None:
        super().__init__(2)
        self.call = f"os.{name}({', '.join(map(repr, arguments[:ARGUMENTS_SHOWN]))})"


def refuse_sudden_ends() -> Callable[[], None]:
    """Let what would end this process past all that stands around raise ProgramEnded; return what undoes it.

    In processes that are forked from this one it does what it always does.
    """
    before = {name: getattr(os, name) for name in _SUDDEN_ENDS}
    own = os.getpid()
    for name, end in before.items():
        setattr(os, name, partial(_raise_instead, own, name, end))
    return partial(vars(os).update, before)


def _raise_instead(own: int, name: str, end: Callable[..., NoReturn], *arguments: Any, **named: Any) -> NoReturn:
    if os.getpid() != own:
        end(*arguments, **named)
    raise ProgramEnded(name, (*arguments, *named.values()))


@contextlib.contextmanager
def kept_process(folder: str = "") -> Iterator[None]:
    """Give the user's code no arguments of ours, start it in `folder`, and undo what it does to the process.

    `os._exit` and `os.exec*` raise ProgramEnded here: they would end align with a code of the user's choice.
    """
    argv, hook, before = sys.argv, sys.excepthook, _current_folder()
    sys.argv = argv[:1]
    _go_to(folder)
    allow_ends = refuse_sudden_ends()
    try:
        yield
    finally:
        allow_ends()
        sys.argv, sys.excepthook = argv, hook
        _go_to(before)


def _current_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # it was removed while align runs in it
        return ""


def _go_to(folder: str) -> None:
    if folder and folder != _current_folder():
        os.chdir(folder)
