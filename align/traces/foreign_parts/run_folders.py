"""Folders of steps, ranks and processes: which of them holds the dump of one run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from align.errors import DumpError
from align.traces.thresholds import DEEPEST_RUN_FOLDER, MOST_LISTED_RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RUN = re.compile(r"(step|rank|proc|iteration)[_-]?[0-9]*|[0-9]+")


def has_run(folder: Path, is_run: Callable[[Path], bool], names: re.Pattern[str] = RUN) -> bool:
    """Tell whether a folder, or one inside of such a name, is what `is_run` says."""
    return next(_runs(folder, is_run, names), None) is not None


def only_run(folder: Path, is_run: Callable[[Path], bool], names: re.Pattern[str] = RUN) -> Path:
    """The one folder that is a run; raises DumpError naming all of several, for the user to choose from."""
    found = all_runs(folder, is_run, names)
    if not found:
        raise DumpError.of("dump_error.no_run", path=folder)
    if len(found) > 1:
        shown = [str(one) for one in found[:MOST_LISTED_RUNS]]
        raise DumpError.of("dump_error.several_runs", path=folder, count=len(found), runs=shown, first=shown[0])
    return found[0]


def all_runs(folder: Path, is_run: Callable[[Path], bool], names: re.Pattern[str] = RUN) -> list[Path]:
    """The folders that are runs: this one, or those inside of such names, step2 before step10."""
    return sorted(_runs(folder, is_run, names), key=lambda path: natural_key(str(path)))


def natural_key(name: str) -> list[tuple[int, str]]:
    """A key by which step2 comes before step10."""
    return [(int(part) if part.isdecimal() else 0, part) for part in re.split(r"([0-9]+)", name)]


def _runs(folder: Path, is_run: Callable[[Path], bool], names: re.Pattern[str], depth: int = 0) -> Iterator[Path]:
    if is_run(folder):
        yield folder
    elif depth < DEEPEST_RUN_FOLDER:
        for inner in sorted(folder.iterdir()):
            if names.fullmatch(inner.name) and inner.is_dir() and not inner.is_symlink():
                yield from _runs(inner, is_run, names, depth + 1)
