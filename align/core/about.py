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

__version__ = "0.2.0"
RUN_FOLDER = "align-run"  # where `align run` writes by default

PACKAGE = Path(__file__).parents[1]
CHECKOUT = PACKAGE.parent

MAPPINGS, MAPPINGS_VARIABLE = "mappings", "ALIGN_MAPPINGS"
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


def user_mappings(kind: str) -> tuple[Path, ...]:
    """The rule files of a kind (`layers`, `models`, `pitfalls`, `log_formats`) that the user wrote.

    They lie in the folders that `ALIGN_MAPPINGS` names, as PATH does, and in `mappings/` beside the project file that
    the command line names, or that is found.
    """
    project = _CHOSEN[-1] if _CHOSEN else find_project()
    folders = [Path(name) for name in os.environ.get(MAPPINGS_VARIABLE, "").split(os.pathsep) if name]
    folders += [project.absolute().parent / MAPPINGS] if project is not None else []
    places = dict.fromkeys(folder.resolve() for folder in folders)
    return tuple(
        path for folder in places if folder != CHECKOUT / MAPPINGS for path in sorted(folder.glob(f"{kind}/*.toml"))
    )


_CHOSEN: list[Path] = []


def choose_project(file: Path | None) -> None:
    """The project file that a command line names, if it names one, from now on."""
    _CHOSEN[:] = [] if file is None else [file]


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
