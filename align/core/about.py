"""What a start can afford to import: what this installation is, where a project lies, and sudden ends refused."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from align.core.thresholds import ARGUMENTS_SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable

__version__ = "0.1.0"
RUN_FOLDER = "align-run"  # where `align run` writes by default

PACKAGE = Path(__file__).parents[1]
CHECKOUT = PACKAGE.parent

PROJECT_FILE, PYPROJECT = "align.toml", "pyproject.toml"
TABLE = re.compile(r"^\s*\[tool\.align\b", re.MULTILINE)


def find_project() -> Path | None:
    """The project file of the current folder, else of the nearest folder above it, up to that of a repository.

    It is `align.toml`, or a `pyproject.toml` with a table `[tool.align]`. One of the current folder is a name, one
    above it an absolute path.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        for name in (PROJECT_FILE, PYPROJECT):
            if (folder / name).is_file() and (name == PROJECT_FILE or TABLE.search(text_of_project(folder / name))):
                return Path(name) if folder == here else folder / name
        if (folder / ".git").exists():
            return None
    return None


def text_of_project(path: Path) -> str:
    """The text of a file, "" if it cannot be read: whoever reads it as a project says why."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


# Ends of the process that skip all that stands around, refused: a module that a start can afford to import.


_SUDDEN_ENDS = ("_exit", "execv", "execve")  # every other `os.exec*` calls one of these


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
