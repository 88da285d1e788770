"""Folders of `.npy` files and `.npz` files, as TroubleShooter's `save` and many scripts write them.

A number in front of a name, `0_conv1.npy`, is the order; without it names are sorted, numbers in them by their value.
Names are those of files: they may be of modules, or of anything else.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.checkpoints.open_checkpoint import open_checkpoint
from align.checkpoints.single_files import FilesBeside, open_tensor
from align.core.traces import DumpedTensor, ForeignDump
from align.errors import DumpError
from align.traces.foreign_parts.mindspore_names import FILE
from align.traces.foreign_parts.run_folders import natural_key
from align.traces.thresholds import MOST_DUMPED_FILES
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.core.checkpoints import StoredTensor

_SUFFIXES = (".npy", ".pt")
_OTHER_SUFFIXES = (".npz", ".pth", ".bin", ".ckpt", ".safetensors")


@dataclass(frozen=True, slots=True)
class ArraysReader:
    """A folder of arrays, folders in it included, or one `.npz` file."""

    name: str = "arrays"
    summary: str = "folders of .npy (TroubleShooter, anybody's) or .pt files of one tensor each, and .npz files"
    requires: tuple[str, ...] = ()
    last_resort: bool = True
    tried_with: str = "NumPy 1.26, TroubleShooter 1.0.18"

    def recognizes(self, path: Path) -> bool:
        """Tell by the names of files; those of MindSpore's Dump have names of their own."""
        if path.is_file():
            return path.suffix == ".npz"
        first = next(_files(path, 1), None)
        return first is not None and not any(FILE.fullmatch(file.name) for file in first.parent.iterdir())

    def read(self, path: Path) -> ForeignDump:
        """Read the headers."""
        stored = _of_archive(path) if path.is_file() else _of_folder(path)
        tensors = tuple(
            DumpedTensor(order, "output", name, 0, "", "", one.shape, one.dtype, load=one.load)
            for order, (name, one) in enumerate(sorted(stored.items(), key=lambda item: natural_key(item[0])))
        )
        if not tensors:
            raise DumpError.of("dump_error.no_tensors", path=path)
        left = [*_left_out(path)] if path.is_dir() else []
        notes = (sentence("dump_note.not_arrays", names=left),) if left else ()
        return ForeignDump(path, "arrays", "", tensors, of_modules=False, notes=notes)


PLUGIN = ArraysReader()


def _of_archive(path: Path) -> dict[str, StoredTensor]:
    return dict(open_checkpoint(path).tensors)


def _of_folder(path: Path) -> dict[str, StoredTensor]:
    found: dict[str, StoredTensor] = {}
    beside = FilesBeside(path / "files")
    for file in _files(path, MOST_DUMPED_FILES + 1):
        if len(found) == MOST_DUMPED_FILES:
            raise DumpError.of("dump_error.too_many", path=path, most=MOST_DUMPED_FILES)
        location = file.relative_to(path)
        if beside.file(str(location)) is not None:
            name = ".".join(location.with_suffix("").parts)
            found[name if name not in found else str(location)] = open_tensor(file)  # x.npy and x.pt, a.b and a/b
    return found


def _files(path: Path, most: int) -> Iterator[Path]:
    """Up to so many files of arrays, those in folders too; links to folders are not followed."""
    count = 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            if name.endswith(_SUFFIXES):
                yield path.__class__(folder, name)
                count += 1
                if count == most:
                    return


def _left_out(path: Path) -> Iterator[str]:
    """Files inside that may hold tensors too, of other forms, and links to folders."""
    for folder, folders, names in os.walk(path):
        folders.sort()
        inner = [name for name in sorted(names) if name.endswith(_OTHER_SUFFIXES)]
        for name in (*inner, *(name for name in folders if path.__class__(folder, name).is_symlink())):
            yield str(path.__class__(folder, name).relative_to(path))
