"""Files that a project names and that are not there: all of them in one message, before anything is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.errors import ProjectFileError
from align.runs.evidence import file_of
from align.runs.project_file import NAME
from align.runs.rung import shown
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from align.runs.project_file import Project
    from align.runs.rung import Missing, Plan


def require_named_files(project: Project, run: Path, plans: Iterable[Plan | Missing]) -> None:
    """Raise ProjectFileError for what these rungs read, or would read, and is not there.

    What a climb makes lies in its run folder.
    """
    missing: dict[Path, list[str]] = {}
    for plan in plans:
        for role, given in plan.made_from.items():
            file = file_of(given)
            if file is not None and not file.is_file() and run.absolute() not in file.absolute().parents:
                roles = missing.setdefault(file, [])
                roles += [role] if role not in roles else []
    if missing:
        faults = [say("run_usage.not_there", file=shown(file), roles=roles) for file, roles in missing.items()]
        raise ProjectFileError(project.file or NAME, faults, say("run_usage.missing_files_hint"))
