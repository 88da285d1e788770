"""Folders of `.npy` files and `.npz` files, as TroubleShooter's `save` and many scripts write them.

A number in front of a name, `0_conv1.npy`, is the order; without it names are sorted, numbers in them by their value.
Names are those of files: they may be of modules, or of anything else.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.open_checkpoint import FilesBeside, array_of_bytes, open_checkpoint, open_tensor, read_json
from align.core.parameters import dtype_name
from align.core.traces import DumpedTensor, ForeignDump
from align.errors import DumpError
from align.traces.dumped_files import FILE, natural_key, not_known, require_tensors
from align.traces.thresholds import MOST_DUMPED_FILES, MOST_LISTED_RUNS, RECOGNIZED_BYTES
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.core.parameters import Array, StoredTensor


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
        stored = open_checkpoint(path).tensors if path.is_file() else _of_folder(path)
        tensors = (
            DumpedTensor(order, "output", name, 0, "", "", one.shape, one.dtype, load=one.load)
            for order, (name, one) in enumerate(sorted(stored.items(), key=lambda item: natural_key(item[0])))
        )
        found = require_tensors(path, tensors)
        left = [*_left_out(path)] if path.is_dir() else []
        notes = (sentence("dump_note.not_arrays", names=left),) if left else ()
        return ForeignDump(path, "arrays", "", found, of_modules=False, notes=notes)


ARRAYS = ArraysReader()


def _of_folder(path: Path) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    beside = FilesBeside(path / "files")
    for file in _files(path, MOST_DUMPED_FILES + 1):
        if len(tensors) == MOST_DUMPED_FILES:
            raise DumpError.of("dump_error.too_many", path=path, most=MOST_DUMPED_FILES)
        location = file.relative_to(path)
        if beside.file(str(location)) is not None:
            name = ".".join(location.with_suffix("").parts)
            tensors[name if name not in tensors else str(location)] = open_tensor(file)  # x.npy and x.pt, a.b and a/b
    return tensors


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


# Results that Polygraphy saves as JSON (`--save-outputs`): outputs by name, the arrays as `.npy` in base64.

_KIND = "polygraphy_class"


@dataclass(frozen=True, slots=True)
class PolygraphyReader:
    """A file of one runner's results."""

    name: str = "polygraphy"
    summary: str = "Polygraphy JSON: the results of one runner, as --save-outputs writes them"
    requires: tuple[str, ...] = ()
    last_resort: bool = False
    tried_with: str = "Polygraphy 0.49.27"

    def recognizes(self, path: Path) -> bool:
        """Tell by the name of the first list, and the class at the end."""
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            head = stream.read(RECOGNIZED_BYTES)
            stream.seek(max(path.stat().st_size - RECOGNIZED_BYTES, 0))
            return b'"lst"' in head and b"RunResults" in stream.read()

    def read(self, path: Path) -> ForeignDump:
        """Decode all arrays; the file holds them all anyway."""
        document = read_json(path)
        runs = document.get("lst") if isinstance(document, dict) else None
        if not isinstance(runs, list) or not all(_is_run(run) for run in runs) or not runs:
            raise DumpError.of("dump_error.no_runners", path=path)
        if len(runs) > 1:
            names = [str(run[0]) for run in runs][:MOST_LISTED_RUNS]
            raise DumpError.of("dump_error.several_runners", path=path, count=len(runs), names=names)
        unknown: list[str] = []
        tensors = require_tensors(path, _tensors(path, runs[0][1], unknown))
        notes = not_known(self.tried_with, unknown)
        return ForeignDump(path, "polygraphy", "", tensors, of_modules=False, notes=notes)


POLYGRAPHY = PolygraphyReader()


def _is_run(run: Any) -> bool:
    return isinstance(run, list) and len(run) == 2 and isinstance(run[1], list)


def _tensors(path: Path, iterations: list[Any], unknown: list[str]) -> Iterator[DumpedTensor]:
    order = 0
    for call, iteration in enumerate(iterations):
        outputs = iteration.get("outputs") if isinstance(iteration, dict) else None
        for name, held in outputs.items() if isinstance(outputs, dict) else ():
            value = _array(path, str(name), held)
            if value is None:
                unknown.append(str(name))
                continue
            dtype, load = dtype_name(value.dtype), partial(np.asarray, value)
            yield DumpedTensor(order, "output", str(name), call, "", "", value.shape, dtype, load=load)
            order += 1


def _array(path: Path, name: str, value: Any) -> Array | None:
    """The array inside of the classes that may hold one; None for what is not known."""
    for _ in range(4):
        if not isinstance(value, dict):
            return None
        if value.get(_KIND) in ("ndarray", "Tensor") and isinstance(value.get("array"), str):
            try:
                content = base64.b64decode(value["array"], validate=True)
            except ValueError as error:  # of letters beyond ASCII, or binascii.Error
                raise DumpError.of("dump_error.no_base64", path=path, name=name, reason=error) from error
            return array_of_bytes(path, name, content)
        value = value.get("values")
    return None


PLUGINS = (ARRAYS, POLYGRAPHY)
