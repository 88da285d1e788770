"""The one boundary where every exception is caught: behind it runs code that is not ours.

While it runs, the command line, the folder and the end of the process stay align's own. A function of the user's is
named by its module or file.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from align.core.import_user_code import import_user_code, users_code
from align.core.protocols import Preparer
from align.core.registry import check_packages, model_readers
from align.errors import AlignError, SideError, UserCodeError
from align.models.live_calls import raised_at
from align.models.thresholds import ARGUMENTS_SHOWN
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.errors import CannotRunError

T = TypeVar("T")
_FOLDERS_AFTER_IMPORT: dict[str, str] = {}
_SUDDEN_ENDS = ("_exit", "execv", "execve")  # every other `os.exec*` calls one of these


def run_user_code(code: Callable[[], T], failed: Callable[[BaseException], AlignError], folder: str = "") -> T:
    """Return what the user's code returns; whatever it raises, or a call that ends the program, is `failed(error)`.

    An AlignError passes: it comes from our own code that the user's code called, a sink or a reader. What the code
    prints goes to standard error, since standard output is for results. It starts in `folder`, by default the current
    one, and sees no arguments of the command line; folder and arguments are put back.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr), kept_process(folder), users_code():
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


def load_function(side: str, what: str = "model file") -> Callable[[], Any]:
    """Return the function that `package.module:function` or `file.py:function` names; whatever it raises is wrapped.

    A model that stands there, which may be called as well, is what the function returns. `what` a file that is not
    there is called.
    """
    function = find_function(side, what)
    if any(reader.owns(function) for reader in model_readers().values()):
        return lambda: function
    return lambda: _guarded(side, function, _FOLDERS_AFTER_IMPORT.get(side.rpartition(":")[0], ""))


def find_function(side: str, what: str = "model file") -> Callable[..., Any]:
    """Return what `package.module:function` or `file.py:function` names, which can be called; raises SideError."""
    meant = what.removesuffix(" file")
    place, separator, name = side.rpartition(":")
    if not separator or not place or not name.isidentifier():
        raise SideError(side, say("side_usage.no_form"), meant)
    module = _guarded(side, lambda: _imported(place, what))
    function = getattr(module, name, None)
    if not callable(function):
        fault = "side_usage.no_function" if hasattr(module, name) else "side_usage.no_such_name"
        raise SideError(
            side,
            say(fault, name=name, place=place, functions=_functions(module) or say("side_usage.no_functions")),
            meant,
        )
    found: Callable[..., Any] = function
    return found


def _imported(place: str, what: str) -> Any:
    """Import it, and keep the folder that its code went to, from which its functions may read files."""
    before = str(Path.cwd())
    module = import_user_code(place, what)
    if (after := str(Path.cwd())) != before:
        _FOLDERS_AFTER_IMPORT[place] = after
    return module


def _functions(module: Any) -> str:
    own = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
    return ", ".join(sorted(name for name in own if not name.startswith("_")))


def _guarded(side: str, code: Callable[[], Any], folder: str = "") -> Any:
    def failed(error: BaseException) -> AlignError:
        if isinstance(error, ModuleNotFoundError):
            return _missing_module(side, error)
        return _with_line(
            _named_otherwise(UserCodeError(say("model_error.building", side=side), error), side, error), error
        )

    for reader in model_readers().values():
        if isinstance(reader, Preparer):
            reader.prepare()
    return run_user_code(code, failed, folder)


def _with_line(failed: UserCodeError, error: BaseException) -> UserCodeError:
    if line := raised_at(error):
        failed.hint = say("model_error.look_at", line=line, hint=failed.hint)
    return failed


def _named_otherwise(failed: UserCodeError, side: str, error: BaseException) -> UserCodeError:
    """Say of a relative import that leads nowhere how to name the side instead."""
    place, _, function = side.rpartition(":")
    if isinstance(error, ImportError) and "relative import" in str(error):
        if place.endswith(".py"):
            failed.hint = say("side_usage.dot_in_folder")
        else:
            failed.hint = say("side_usage.as_package", path=place.replace(".", "/"), function=function)
    return failed


def _missing_module(side: str, error: ModuleNotFoundError) -> CannotRunError:
    name = error.name or ""
    for reader in model_readers().values():
        if name.partition(".")[0] in reader.requires:
            check_packages(reader)
    if f"{side.rpartition(':')[0]}.".startswith(f"{name}."):
        return SideError(side, say("side_usage.no_module", name=name))
    return UserCodeError(say("model_error.building", side=side), error)
