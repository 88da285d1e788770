"""Folders of MindSpore Transformers with a `metadata.json`: which chunk of which tensor lies in which file.

Each rank writes its chunks into a file of safetensors, under the name of the whole. The list has the shape of the whole
and, of each chunk, where it begins and its own shape; several files may hold one chunk, and then hold it alike.
Source: MindSpore Transformers v1.7.0, mindformers/checkpoint/metadata.py (save_metadata).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from align.checkpoints.shard_pieces import Box, equal_copies, tiled_tensor, tracked_folder
from align.checkpoints.sound_records import FilesBeside, parse_json, sound_shape
from align.core.load_code import checkpoint_formats
from align.core.parameters import Checkpoint
from align.core.protocols import collector_paused
from align.core.thresholds import LONGEST_JSON_BYTES, MOST_AXES
from align.errors import HostileFileError, MissingEntryError, NotACheckpointError, ShardsError
from align.words.catalogue import counted, say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.core.parameters import Shape, StoredTensor

METADATA = "metadata.json"
TENSORS, PLACES = "state_dict_metadata", "storage_data"
HEAD_BYTES = 200  # format: the first of the two tables begins in so many


@dataclass(frozen=True, slots=True)
class MindSporeChunksFolder:
    """What `save_checkpoint` of MindSpore Transformers writes in its Megatron form."""

    name: str = "mindspore-chunks"
    summary: str = "folders of MindSpore Transformers with metadata.json, joined while they are read"
    requires: tuple[str, ...] = ()
    file_names: tuple[str, ...] = (METADATA,)

    def find(self, path: Path) -> Path | None:
        """The `metadata.json` of a folder, or of the last step in it."""
        if path.is_file():
            return path if _is_list(path) else None
        folder = tracked_folder(path, lambda one: _is_list(one / METADATA))
        return None if folder is None else folder / METADATA

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Read the list, and the header of each file that it names."""
        if key is not None:
            raise MissingEntryError(path, key, ())
        with collector_paused():
            listed, places = _read_list(path)
            files = _read_files(path, places)
            tensors = {name: _joined(path, name, entry, places, files) for name, entry in listed.items()}
        label = f"{self.name} ({counted(len(files), 'file')})"
        paths = (path, *(one.path for one in files.values()))
        return Checkpoint(path, label, tensors, {"format": "ms"}, files=paths, is_joined=True)


PLUGIN = MindSporeChunksFolder()


def _is_list(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return TENSORS.encode() in stream.read(HEAD_BYTES)


def _read_list(path: Path) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The entries of the tensors, and which files hold each chunk, by its name in the list."""
    with path.open("rb") as stream:
        raw = stream.read(LONGEST_JSON_BYTES + 1)
    try:
        document = parse_json(raw) if len(raw) <= LONGEST_JSON_BYTES else None
    except ValueError as error:
        raise NotACheckpointError(path, say("safetensors_file.no_json", error=error)) from error
    listed, stored = (document.get(key) if isinstance(document, dict) else None for key in (TENSORS, PLACES))
    if not isinstance(listed, dict) or not isinstance(stored, dict) or not listed or not stored:
        raise NotACheckpointError(path, say("shard_fault.no_list"))
    places = {name: [*_file_names(path, name, entries)] for name, entries in stored.items()}
    return listed, places


def _file_names(path: Path, name: str, entries: Any) -> Iterator[str]:
    for entry in entries if isinstance(entries, list) else [None]:
        file = entry.get("file_name") if isinstance(entry, dict) else None
        if not isinstance(file, str):
            raise HostileFileError(path, say("shard_fault.odd_tensor", name=name))
        yield file


def _read_files(path: Path, places: dict[str, list[str]]) -> dict[str, Checkpoint]:
    """Each file by its name; raises ShardsError with all that are missing."""
    beside, reader = FilesBeside(path), checkpoint_formats()["safetensors"]
    files = {name: beside.file(name) for name in sorted({one for names in places.values() for one in names})}
    missing = [name for name, file in files.items() if file is None]
    if missing:
        problem = say("index_file.shard_missing")
        faults = [say("index_file.shard", name=name, problem=problem) for name in missing]
        raise ShardsError(path, faults, of_ranks=True)
    return {name: reader.read(file) for name, file in files.items() if file is not None}


def _joined(
    path: Path, name: str, entry: Any, places: dict[str, list[str]], files: dict[str, Checkpoint]
) -> StoredTensor:
    """The whole of a tensor's chunks, which must fill it."""
    chunks = entry.get("chunk") if isinstance(entry, dict) else None
    dims = _dims(path, name, entry.get("global_shape") if isinstance(entry, dict) else None)
    if not isinstance(chunks, list) or not chunks:
        raise HostileFileError(path, say("shard_fault.odd_tensor", name=name))
    shape, boxes = sound_shape(path, name, dims), []
    for chunk in chunks:
        table = chunk if isinstance(chunk, dict) else {}
        start, size = (_dims(path, name, table.get(key)) for key in ("global_offset", "local_shape"))
        piece = _chunk(path, name, start, size, places, files)
        boxes.append(Box((*start, *[0] * (len(shape) - len(start)))[: len(shape)], piece))
    return tiled_tensor(path, name, shape, boxes[0].tensor.dtype, boxes)


def _chunk(
    path: Path, name: str, start: Shape, size: Shape, places: dict[str, list[str]], files: dict[str, Checkpoint]
) -> StoredTensor:
    """One chunk, of all files that hold it."""
    copies = []
    for file in dict.fromkeys(places.get(str((name, start)), ())):
        tensor = files[file].tensors.get(name)
        if tensor is None or tensor.shape != size:
            stored = "" if tensor is None else f"{tensor.dtype} {tensor.shape}"
            facts = {"name": name, "listed": str(size), "stored": stored}
            raise NotACheckpointError(files[file].path, say("shard_fault.other_chunk", **facts))
        copies.append((file, tensor))
    if not copies:
        raise ShardsError(path, [say("shard_fault.no_chunk", name=name, start=str(start))], of_ranks=True)
    try:
        return equal_copies(path, copies)
    except ValueError as error:
        raise NotACheckpointError(path, str(error)) from error


def _dims(path: Path, name: str, value: Any) -> Shape:
    sound = isinstance(value, list) and len(value) <= MOST_AXES and all(type(one) is int and one >= 0 for one in value)
    if not sound or prod(max(one, 1) for one in value) >= 1 << 62:
        raise HostileFileError(path, say("shard_fault.odd_tensor", name=name))
    return tuple(value)
