"""Copies of installed packages in a folder that stands first on the import path; the packages stay as they are.

The whole outermost package is copied: its modules import each other, and read files that lie beside them. Compiled
parts find the libraries that a wheel keeps in `PACKAGE.libs`, which is copied too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from typing import TYPE_CHECKING

from align.core.atomic_files import sha256_of
from align.fixes.thresholds import OVERLAY_BYTES, OVERLAY_FILES
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.words.message_words import Sentence

LEFT_OUT = ("__pycache__", ".git")


def too_large(unit: Path) -> Sentence | None:
    """Why a package is not copied; None if it may be."""
    files = list(files_below(unit))
    nbytes = sum(path.stat().st_size for path in files if path.is_file())
    if nbytes <= OVERLAY_BYTES and len(files) <= OVERLAY_FILES:
        return None
    most = {"most": OVERLAY_BYTES // 1024**2, "most_files": OVERLAY_FILES}
    return sentence("fix_refused.too_large", unit=unit.name, size=nbytes // 1024**2, files=len(files), **most)


def copy_unit(unit: Path, place: Path) -> None:
    """Copy a package or module, and what its compiled parts need; nothing may be at `place`."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if unit.is_file():
        shutil.copy2(unit, place)
        return
    shutil.copytree(unit, place, ignore=shutil.ignore_patterns(*LEFT_OUT), ignore_dangling_symlinks=True)
    libraries = libraries_of(unit)
    if libraries.is_dir():
        shutil.copytree(libraries, libraries_of(place), dirs_exist_ok=True)


def libraries_of(unit: Path) -> Path:
    """The folder in which a wheel keeps the libraries of a package."""
    return unit.with_name(f"{unit.name}.libs")


def remove_unit(place: Path, overlay: Path) -> None:
    """Remove a copy, and the folders around it that are empty then, up to the overlay itself."""
    for path in (place, libraries_of(place)):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
    folder = place.parent
    while folder.is_dir() and folder.is_relative_to(overlay) and _is_empty(folder):
        shutil.rmtree(folder)
        folder = folder.parent


def digest_of(place: Path) -> str:
    """One hash of all names and contents of a copy, but for what Python compiles there."""
    digest = hashlib.sha256()
    for path in sorted(files_below(place)):
        digest.update(f"{path.relative_to(place.parent)}\0{sha256_of(path)}\n".encode())
    return digest.hexdigest()


def files_below(unit: Path) -> Iterator[Path]:
    """All files that are copied of a package or module."""
    if unit.is_file():
        yield unit
    for folder, folders, names in os.walk(unit, followlinks=True):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        yield from (unit / os.path.join(folder, name) for name in names)  # noqa: PTH118 - thousands of files


def _is_empty(folder: Path) -> bool:
    return all(path.name in LEFT_OUT for path in folder.iterdir())
