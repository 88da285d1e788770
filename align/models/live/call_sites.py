"""Where a call came from, and what it was given, found without looking at any value."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.trace_metadata import TensorKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

# Modules whose frames are no place of the user's: they call what the user's code set up (`Sequential`, hooks).
FRAMEWORKS = frozenset({"torch", "mindspore"})
NOT_THE_USERS = FRAMEWORKS | {"align", "contextlib"}
INSTALLED = frozenset({"site-packages", "dist-packages"})
# The name of functions of ours that stand between the user's code and a framework's, and only pass a call on.
PASSES_ON = "passed_on_to_framework"
# Ours, where the user's code begins: what called it is no part of the model.
BOUNDARY = "align.models.user_code"


def user_line(home: str) -> str:
    """`file:line` of the innermost frame of the user's model around here; "" if no code of the user's is running.

    Files in the folder `home` are given from there.
    """
    return next(user_lines(home), "")


def user_lines(home: str) -> Iterator[str]:
    """Yield the lines of the user's model that lead here, as `user_line` gives them, the innermost first.

    They end where a framework called the user's code.
    """
    frame: FrameType | None = inspect.currentframe()
    is_there = False
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        is_users = module.partition(".")[0] not in NOT_THE_USERS
        if module == BOUNDARY or (is_there and not is_users):
            return
        if is_users:
            is_there = True
            yield f"{frame.f_code.co_filename.removeprefix(home)}:{frame.f_lineno}"
        frame = frame.f_back


def user_place() -> str:
    """`file:line` as messages name it, of the innermost frame of the user's model around here; "" if there is none."""
    file, _, line = user_line("").rpartition(":")
    return f"{_shown(Path(file))}:{line}" if file else ""


def raised_at(error: BaseException) -> str:
    """`file:line` of the user's code that an exception came through last; "" if it came through none.

    Code of packages that are installed counts only where there is no other: models may be theirs.
    """
    frames = [*traceback.walk_tb(error.__traceback__)]
    begun = [number for number, (frame, _) in enumerate(frames) if _module(frame) == BOUNDARY]
    own = [(frame.f_code.co_filename, line) for frame, line in frames[max(begun, default=-1) + 1 :] if _is_users(frame)]
    nearest = [place for place in own if not INSTALLED.intersection(Path(place[0]).parts)]
    file, line = (nearest or own or [("", 0)])[-1]
    return f"{_shown(Path(file))}:{line}" if file else ""


def _shown(file: Path) -> str:
    """The path from the current folder, or from the one of installed packages."""
    installed = [number for number, part in enumerate(file.parts) if part in INSTALLED]
    if installed:
        return Path(*file.parts[installed[-1] + 1 :]).as_posix()
    return str(file).removeprefix(f"{Path.cwd()}{os.sep}")


def _is_users(frame: FrameType) -> bool:
    top = _module(frame).partition(".")[0]
    return top not in NOT_THE_USERS and top not in sys.stdlib_module_names and Path(frame.f_code.co_filename).is_file()


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def called_by_user() -> bool:
    """Tell whether what a framework is doing was asked for by the user's code, not by ours."""
    frame = inspect.currentframe()
    frame = frame.f_back if frame else None  # the function that asks
    while frame := frame.f_back if frame else None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in FRAMEWORKS and frame.f_code.co_name != PASSES_ON:
            return package != "align"
    return False


def tensor_kinds(named: Iterable[tuple[str, Any]]) -> dict[str, TensorKind]:
    """Shape and dtype of those that are tensors, whatever the framework."""
    kinds = {}
    for name, value in named:
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape is not None and dtype is not None:
            kinds[name] = TensorKind(tuple(shape), str(dtype).rpartition(".")[2].lower())
    return kinds
