"""The changes of a fix made: all files or none, with what was there before kept first."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from align.errors import CannotRunError
from align.fixes.kept_backup import Backup, CopiedUnit, begin_backup, put_back, replace_file
from align.fixes.overlay import copy_unit, digest_of
from align.models.edited_code import compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.fixes.source_places import FilePlace

PART = ".copying"  # the folder in the overlay in which a copy is made


@dataclass(frozen=True, slots=True)
class FileChange:
    """The old and new content of a file, and where it stands."""

    place: FilePlace
    before: bytes
    after: bytes


def apply_changes(changes: Sequence[FileChange], run: Path, overlay: Path) -> Backup:
    """Change all files, those of packages in a copy; put everything back if any step fails.

    Raises CannotRunError, and changes nothing, for a file that was edited since it was read, that is read-only, or
    whose new content Python would not compile. What is edited while others are written is left as it is then.
    """
    _check(changes)
    units = {one.place.copy: one.place.copied for one in changes if one.place.copy and one.place.copied}
    in_place = [(one.place.destination, one.before, one.after) for one in changes if one.place.copy is None]
    backup = begin_backup(run, overlay, in_place, [*units])
    begun = 0
    try:
        for place, unit in units.items():
            _copy_changed(unit, place, [one for one in changes if one.place.copy == place], overlay)
        for path, before, after in in_place:
            if path.read_bytes() != before:
                raise CannotRunError.of("fix_usage.edited_meanwhile", names=[str(path)])
            begun += 1
            replace_file(path, after)
        copies = tuple(CopiedUnit(str(place), digest_of(place)) for place in units)
        backup = replace(backup, copies=copies)
        backup.write()
    except BaseException as error:
        put_back(replace(backup, files=backup.files[:begun]))
        if isinstance(error, (OSError, shutil.Error)):
            raise CannotRunError.of("fix_usage.not_written", reason=error) from error
        raise
    return backup


def _check(changes: Sequence[FileChange]) -> None:
    edited = [str(one.place.file) for one in changes if one.place.file.read_bytes() != one.before]
    if edited:
        raise CannotRunError.of("fix_usage.edited_meanwhile", names=edited)
    locked = [str(one.place.destination) for one in changes if one.place.copy is None and _is_locked(one.place.file)]
    if locked:
        raise CannotRunError.of("fix_usage.read_only", names=locked)
    there = [str(one.place.copy) for one in changes if one.place.copy is not None and one.place.copy.exists()]
    if there:
        raise CannotRunError.of("fix_usage.copy_is_there", names=sorted(set(there)), overlay=Path(there[0]).parent)
    for one in changes:
        _require_syntax(one)


def _is_locked(file: Path) -> bool:
    """Tell whether somebody took the right to write from a file: to replace it would be against that."""
    return not file.stat().st_mode & stat.S_IWUSR or not os.access(file, os.W_OK | os.R_OK)


def _require_syntax(change: FileChange) -> None:
    """Raise CannotRunError for Python that would not compile; other files are taken as they are."""
    if change.place.file.suffix != ".py":
        return
    try:
        compiled(change.after, str(change.place.file))
    except (SyntaxError, ValueError) as error:
        raise CannotRunError.of("fix_usage.no_python", name=change.place.file, reason=error) from error


def _copy_changed(unit: Path, place: Path, changes: Sequence[FileChange], overlay: Path) -> None:
    """Copy a package beside its place, change the copy, and move it there whole."""
    part = overlay / PART
    shutil.rmtree(part, ignore_errors=True)
    try:
        made = part / place.relative_to(overlay)
        copy_unit(unit, made)
        for one in changes:
            replace_file(part / one.place.destination.relative_to(overlay), one.after)
        place.parent.mkdir(parents=True, exist_ok=True)
        for path in sorted(made.parent.iterdir()):
            path.rename(place.parent / path.name)
    finally:
        shutil.rmtree(part, ignore_errors=True)
