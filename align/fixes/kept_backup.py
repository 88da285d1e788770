"""What was there before a fix, kept in the run folder: `fix/N/backup.json`, and the old content of each changed file.

It is written before anything is changed, so that whatever ends a fix in its middle, `align fix --undo` puts all back.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.atomic_files import write_text
from align.core.documents import TEXT_BY_NAME, Form, listed, read_json, table
from align.core.json_data import json_text
from align.errors import CannotRunError
from align.fixes.overlay import digest_of, remove_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER, MANIFEST = "fix", "backup.json"
BEGUN, DONE = ".begun", ".done"  # what is being kept, and what is being removed: neither is a backup
_FORM = Form(table(dict.fromkeys(("files", "copies"), listed(TEXT_BY_NAME))))
ABSENT = ""  # in the place of a hash: there was no such file


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A changed file: hashes of its old and new content, and the name under which the old one is kept."""

    path: str
    before: str
    after: str
    kept: str


@dataclass(frozen=True, slots=True)
class CopiedUnit:
    """A copy of a package at `path` in the overlay; `digest` is "" until it is whole."""

    path: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Backup:
    """One fix that may be undone: its folder, the files that it changed, the packages that it copied."""

    folder: Path
    overlay: Path
    files: tuple[KeptFile, ...]
    copies: tuple[CopiedUnit, ...]

    def write(self) -> None:
        """Write the list of what is kept."""
        document = {"files": list(map(asdict, self.files)), "copies": list(map(asdict, self.copies))}
        write_text(self.folder / MANIFEST, json_text(document) + "\n")


def begin_backup(
    run: Path, overlay: Path, changes: Sequence[tuple[Path, bytes, bytes]], copies: Sequence[Path]
) -> Backup:
    """Keep the old content of files (path, old, new) that are to change, and name the copies that are to be made.

    Raises CannotRunError, and leaves nothing, where that cannot be written.
    """
    folder = run / FOLDER / str(1 + max((int(one.name) for one in _folders(run)), default=0))
    begun = folder.with_name(BEGUN)
    kept = [
        KeptFile(str(path), hash_of(before), hash_of(after), f"{number}_{path.name}")
        for number, (path, before, after) in enumerate(changes, 1)
    ]
    backup = Backup(folder, overlay, tuple(kept), tuple(CopiedUnit(str(path)) for path in copies))
    try:
        shutil.rmtree(begun, ignore_errors=True)  # of one that was killed
        begun.mkdir(parents=True)
        for one, (_, before, _) in zip(kept, changes, strict=True):
            (begun / one.kept).write_bytes(before)
        replace(backup, folder=begun).write()
        begun.rename(folder)
    except OSError as error:
        shutil.rmtree(begun, ignore_errors=True)
        raise CannotRunError.of("fix_usage.not_written", reason=error) from error
    return backup


def last_backup(run: Path, overlay: Path) -> Backup:
    """Return what the last fix in a run folder kept; raises CannotRunError where there is nothing to undo.

    So it does, once, where the last one was ended before it had kept all and so before it changed anything.
    """
    if (begun := run / FOLDER / BEGUN).is_dir():
        shutil.rmtree(begun, ignore_errors=True)
        raise CannotRunError.of("fix_usage.nothing_changed")
    folders = sorted(_folders(run), key=lambda one: int(one.name))
    if not folders:
        raise CannotRunError.of("fix_usage.nothing_to_undo", folder=run)
    try:
        document = _FORM.require(read_json(folders[-1] / MANIFEST))
        files = tuple(KeptFile(**one) for one in document["files"])
        copies = tuple(CopiedUnit(**one) for one in document["copies"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CannotRunError.of("fix_usage.damaged_backup", folder=folders[-1]) from error
    return Backup(folders[-1], overlay, files, copies)


def refuse_edited(backup: Backup) -> None:
    """Raise CannotRunError naming every file and copy that is neither as it was before nor as the fix left it."""
    edited = [one.path for one in backup.files if _hash_at(one.path) not in (one.before, one.after)]
    edited += [one.path for one in backup.copies if one.digest and _digest_at(one.path) not in (ABSENT, one.digest)]
    if edited:
        raise CannotRunError.of("fix_usage.edited_since", names=edited, folder=backup.folder)


def put_back(backup: Backup) -> list[str]:
    """Put every file back byte for byte, remove the copies, then the backup itself.

    Files that were edited since the fix stay as they are, and the backup with them; returns their paths.
    """
    edited = [one.path for one in backup.files if _hash_at(one.path) not in (one.before, one.after)]
    for one in backup.files:
        _part_of(Path(one.path)).unlink(missing_ok=True)
        if one.path not in edited and _hash_at(one.path) != one.before:
            replace_file(Path(one.path), (backup.folder / one.kept).read_bytes())
    for copy in backup.copies:
        remove_unit(Path(copy.path), backup.overlay)
    if edited:
        return edited
    done = backup.folder.with_name(DONE)
    shutil.rmtree(done, ignore_errors=True)
    backup.folder.rename(done)  # whatever ends the removal, all is put back and none of it is a backup any more
    shutil.rmtree(done)
    if not any(backup.folder.parent.iterdir()):
        backup.folder.parent.rmdir()
    return []


def _part_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.align.part")


def replace_file(path: Path, content: bytes) -> None:
    """Give a file another content in one step, with its mode; what Python compiled of the old one goes.

    A compiled file is known by the size and second of its source, and a fix may change neither.
    """
    part = _part_of(path)
    try:
        part.write_bytes(content)
        part.chmod(stat.S_IMODE(path.stat().st_mode))
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    compiled = path.with_name("__pycache__")
    for file in compiled.glob(f"{path.stem}.*.pyc"):
        file.unlink(missing_ok=True)


def hash_of(content: bytes) -> str:
    """SHA-256 as hex."""
    return hashlib.sha256(content).hexdigest()


def _folders(run: Path) -> list[Path]:
    place = run / FOLDER
    return [one for one in place.iterdir() if one.name.isdigit() and one.is_dir()] if place.is_dir() else []


def _hash_at(path: str) -> str:
    try:
        return hash_of(Path(path).read_bytes())
    except FileNotFoundError:
        return ABSENT


def _digest_at(path: str) -> str:
    return digest_of(Path(path)) if Path(path).exists() else ABSENT
