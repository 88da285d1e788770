"""Folders of torch.distributed.checkpoint: FSDP, torchtitan and Megatron's distributed form write them.

`.metadata` is a pickle, which is looked at and never run: the shape of each tensor, its chunks, and where each lies.
`__0_0.distcp` and its like are archives of torch.save one after the other, a chunk in each; an archive is opened when
its chunk is read, so that a folder of a hundred thousand chunks opens as fast as its list is read.

Megatron's `torch_dist` is such a folder with its arguments in `common.pt`. There one tensor holds a parameter of all
layers, and of all experts, one behind the other: each gets the name that it has in the model.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from math import prod
from typing import TYPE_CHECKING, Any

from align.checkpoints.extents import byte_blocks
from align.checkpoints.pickled_tensors import DTYPES, Global, Made, OddKey, is_tensor, read_pickle
from align.checkpoints.shard_pieces import Box, streamed_tensor, tiled_tensor, tracked_folder
from align.checkpoints.sound_records import FilesBeside, sound_shape
from align.checkpoints.thresholds import DEEPEST_KEY, LONGEST_KEY, LONGEST_PICKLE_BYTES
from align.checkpoints.torch_archives import MEGATRON, RankFile, dtype_of, fields_of, read_rank_file, shape_arguments
from align.checkpoints.torch_entries import (
    OPTIMIZER,
    StoredTreeReader,
    archive_tree,
    choose_entry,
    read_others,
    read_tensors,
    size_of,
)
from align.core.align_sequences import grouped
from align.core.parameters import Checkpoint, Extent, OddTensor, StoredTensor, numpy_dtype
from align.core.protocols import collector_paused
from align.errors import HostileFileError, NotACheckpointError, ShardsError
from align.words.catalogue import counted, say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from align.core.parameters import Shape

METADATA, PIECES = ".metadata", "*.distcp"
TENSOR = "TensorStorageMetadata"
OPTIMIZERS = frozenset({"optimizer", "optim"})
COMMON = "common.pt"  # what all of Megatron's ranks share: its arguments among them
# Source: sharded_state_dict in megatron-core's transformer_block.py, moe/experts.py, and dist_checkpointing/mapping.py.
LAYERS = re.compile(r"((?:.*\.)?layers)\.(?!\d+\.)(.+)")
EXPERTS = re.compile(r"(.*\.experts)\.experts\.(?!\d+\.)(.+)")
NUMBERED_EXPERT = re.compile(r"(\.experts)\.experts\.(\d+\.)")
OF_OPTIMIZER = re.compile(r"(chained_\d+\.)?(optimizer|optim)\.")
OBJECT_PIECE = re.compile(r"/shard_[\d._]+$")
FLAT_OPTIMIZER = ("state.", "param_groups.")  # what stands before all names of a flattened optimizer state


@dataclass(frozen=True, slots=True)
class TorchDistributedFolder:
    """What `torch.distributed.checkpoint.save` writes."""

    name: str = "torch-distributed"
    summary: str = "folders of torch.distributed.checkpoint (FSDP, torchtitan, Megatron), joined while they are read"
    requires: tuple[str, ...] = ()
    file_names: tuple[str, ...] = (METADATA,)

    def find(self, path: Path) -> Path | None:
        """The `.metadata` of a folder, of the last one that was saved in it, or of the only one."""
        if path.is_file():
            return path if path.name == METADATA and any(path.parent.glob(PIECES)) else None
        folder = tracked_folder(path, lambda inner: any(inner.glob(PIECES)))
        if folder is not None and not (folder / METADATA).is_file():
            raise NotACheckpointError(folder, say("shard_fault.no_metadata"))
        return folder and folder / METADATA

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Read the list of chunks, and hold each against its file; no archive is opened."""
        with collector_paused():
            listed, settings = _read_metadata(path), _arguments(path)
            if settings is not None:
                listed = _by_layer(path, listed)
            tensors, odd, files = _tensors(path, listed)
            tree = _tree(path, listed, {**tensors, **odd})
            look = _Reader(path)
            chosen = choose_entry(path, tree, look, key)
            tensors, unread = read_tensors(
                chosen, look, lambda name, one: replace(one, name=name) if isinstance(one, StoredTensor) else one
            )
            others, counts = read_others(path, tree, chosen, {*tensors, *unread}, look)
        return Checkpoint(
            path,
            f"{self.name} ({'' if settings is None else 'Megatron, '}{counted(len(files), 'file')})",
            tensors,
            {"format": "pt"} | ({MEGATRON: json.dumps(settings)} if settings else {}),
            others,
            counts,
            chosen.key,
            chosen.entries,
            (path, *files),
            unread,
            notes=tuple(_padding_note(settings or {})),
            is_joined=True,
        )


PLUGIN = TorchDistributedFolder()


@dataclass(frozen=True, slots=True)
class _OfLayer:
    """The entry of a layer: the name and fields of the tensor that it is a part of, and how many axes count layers."""

    whole: str
    fields: dict[Any, Any]
    axes: int


@dataclass(frozen=True, slots=True)
class _Listed:
    """What `.metadata` says: entries by name, the keys that lead to each, and where the chunks lie."""

    entries: dict[str, Any]
    paths: Mapping[Any, Any]
    places: dict[tuple[str, Shape | None], tuple[str, int, int]]


def _read_metadata(path: Path) -> _Listed:
    with path.open("rb") as stream:
        raw = stream.read(LONGEST_PICKLE_BYTES + 1)
    if len(raw) > LONGEST_PICKLE_BYTES:
        raise HostileFileError(path, say("torch_file.long_pickle", size=len(raw)))
    table = fields_of(read_pickle(path, raw).value)
    entries, storage = fields_of(table.get("state_dict_metadata")), fields_of(table.get("storage_data"))
    if not entries or not storage:
        raise NotACheckpointError(path, say("shard_fault.no_list"))
    if odd := [name for name in entries if not isinstance(name, str)]:
        raise HostileFileError(path, say("shard_fault.odd_name", name=repr(odd[0])[:60]))
    places = dict(_place(path, key, value) for key, value in storage.items())
    return _Listed(entries, fields_of(table.get("planner_data")), places)


def _place(path: Path, key: Any, value: Any) -> tuple[tuple[str, Shape | None], tuple[str, int, int]]:
    """Which chunk of which tensor, and where: a file, the first byte and the number of bytes."""
    index = fields_of(key.value if isinstance(key, OddKey) else key)
    info = fields_of(value)
    file, offset, length, name = info.get("relative_path"), info.get("offset"), info.get("length"), index.get("fqn")
    numbers = isinstance(offset, int) and isinstance(length, int) and 0 <= offset < 1 << 63 and 0 < length < 1 << 63
    if not numbers or not isinstance(file, str) or not isinstance(name, str):
        raise HostileFileError(path, say("shard_fault.odd_place", name=str(name)[:60]))
    if info.get("transform_descriptors"):
        raise NotACheckpointError(path, *texts("shard_fault.transformed", name=name))
    start = index.get("offset")
    return (name, None if start is None else size_of(start)), (file, int(offset or 0), int(length or 0))


def _arguments(path: Path) -> dict[str, int] | None:
    """Megatron's arguments that tell of shapes; None for a folder that is not Megatron's."""
    common = path.with_name(COMMON)
    return shape_arguments(read_rank_file(common).table("args")) if common.is_file() else None


def _padding_note(settings: Mapping[str, int]) -> Iterator[str]:
    if (rows := settings.get("padded_vocab_size")) and settings.get("vocab_size") != rows:
        yield sentence("shard_note.padded", rows=rows)


def _by_layer(path: Path, listed: _Listed) -> _Listed:
    """The list with an entry for each layer and expert, in the place of one for all of them.

    An entry becomes its fields with the chunks of one layer, whose places are still those of the whole. Raises
    ShardsError for a layer without a chunk. A tensor whose chunks reach over several layers stays as it is.
    """
    entries: dict[str, Any] = {}
    faults: list[str] = []
    for name, entry in listed.entries.items():
        if OF_OPTIMIZER.match(name) or _kind(entry) != TENSOR:
            entries.setdefault(OBJECT_PIECE.sub("", name), entry)
            continue
        names = [match for pattern in (LAYERS, EXPERTS) if (match := pattern.fullmatch(name))]
        fields = fields_of(entry)
        size, chunks = size_of(fields.get("size")), fields.get("chunks")
        chunks = chunks if isinstance(chunks, list) else []
        starts = _leading(chunks, len(names))
        if not names or size is None or len(size) < len(names) or min(size) < 0 or starts is None:
            entries[NUMBERED_EXPERT.sub(r"\1.local_experts.\2", name)] = entry
            continue
        by_index = grouped(zip(starts, chunks, strict=True))
        if len(by_index) != prod(size[: len(names)]):
            faults.append(say("shard_fault.gap", name=name, shape=str(size)))
            continue
        for index in product(*map(range, size[: len(names)])):
            entries[_numbered(name, index)] = _OfLayer(name, fields | {"chunks": by_index.get(index, [])}, len(index))
    if faults:
        raise ShardsError(path, faults, of_ranks=True)
    return replace(listed, entries=entries)


def _leading(chunks: list[Any], axes: int) -> list[Shape] | None:
    """Where each chunk starts along the first axes; None if one of them reaches further than a step along these."""
    starts = []
    for chunk in chunks:
        start, size = (size_of(fields_of(chunk).get(word)) for word in ("offsets", "sizes"))
        if start is None or size is None or len(start) < axes or set(size[:axes]) - {1}:
            return None
        starts.append(start[:axes])
    return starts


def _numbered(name: str, index: Shape) -> str:
    """The name of a parameter of one layer and one expert, as the model on one rank has it."""
    numbers = list(index)
    if match := LAYERS.fullmatch(name):
        name = f"{match[1]}.{numbers.pop(0)}.{match[2]}"
    if match := EXPERTS.fullmatch(name):
        name = f"{match[1]}.local_experts.{numbers.pop(0)}.{match[2]}"
    return name


def _tensors(path: Path, listed: _Listed) -> tuple[dict[str, StoredTensor], dict[str, OddTensor], list[Path]]:
    """Each tensor of its chunks, those of a kind that has no plain form, and the files; faults are told together."""
    present = _files(path, listed)
    tensors: dict[str, StoredTensor] = {}
    odd: dict[str, OddTensor] = {}
    left = len(listed.places)  # each chunk has a place of its own: lists that tensors share would take for ever
    for name, entry in listed.entries.items():
        part = entry if isinstance(entry, _OfLayer) else _OfLayer(name, fields_of(entry), 0)
        if isinstance(entry, _OfLayer) or _kind(entry) == TENSOR:
            left -= len(chunks) if isinstance(chunks := part.fields.get("chunks"), list) else 0
            if left < 0:
                raise HostileFileError(path, say("shard_fault.more_chunks", count=len(listed.places)))
            tensor = _tensor(path, name, part, listed, present)
            if isinstance(tensor, OddTensor):
                odd[name] = tensor
            else:
                tensors[name] = tensor
    return tensors, odd, list(present.values())


def _files(path: Path, listed: _Listed) -> dict[str, Path]:
    """The files by what the list calls them; all that it says of a place must be so, and no two places meet."""
    beside = FilesBeside(path)
    located = {
        location: beside.file(location) for location in dict.fromkeys(place[0] for place in listed.places.values())
    }
    if missing := [location for location, file in located.items() if file is None]:
        gone = say("index_file.shard_missing")
        raise ShardsError(path, [say("index_file.shard", name=one, problem=gone) for one in missing], of_ranks=True)
    files = {location: file for location, file in located.items() if file is not None}
    sizes = {location: file.stat().st_size for location, file in files.items()}
    ordered = sorted(
        (file, offset, offset + length, name) for (name, _), (file, offset, length) in listed.places.items()
    )
    if faults := [
        say("shard_fault.beyond_file", name=name, end=end, file=file, size=sizes[file])
        for file, _, end, name in ordered
        if end > sizes[file]
    ]:
        raise ShardsError(path, faults, of_ranks=True)
    for before, after in pairwise(ordered):
        if before[0] == after[0] and after[1] < before[2]:
            raise HostileFileError(path, say("shard_fault.places_meet", names=[before[3], after[3]]))
    return files


def _kind(entry: Any) -> str:
    return entry.callee.name if isinstance(entry, Made) and isinstance(entry.callee, Global) else ""


def _tensor(
    path: Path, name: str, part: _OfLayer, listed: _Listed, files: Mapping[str, Path]
) -> StoredTensor | OddTensor:
    dims, dtype = size_of(part.fields.get("size")), _dtype(part.fields.get("properties"))
    chunks, axes = part.fields.get("chunks"), part.axes
    if dims is None or not isinstance(chunks, list):
        raise HostileFileError(path, say("shard_fault.odd_tensor", name=name))
    if dtype not in DTYPES:
        return OddTensor(*texts("pickle_file.unknown_dtype", what=f"tensor {name!r}", kind=dtype))
    shape, boxes = sound_shape(path, name, dims), []
    for chunk in chunks:
        start, size = (size_of(fields_of(chunk).get(word)) for word in ("offsets", "sizes"))
        if start is None or size is None or not len(start) == len(size) == len(shape) or min((*start, *size, 0)) < 0:
            raise HostileFileError(path, say("shard_fault.odd_tensor", name=name))
        place = listed.places.get((part.whole, start))
        if place is None:
            raise ShardsError(path, [say("shard_fault.no_chunk", name=name, start=str(start))], of_ranks=True)
        file, offset, length = place
        if prod(sound_shape(path, name, size)) * numpy_dtype(dtype).itemsize > length:
            raise HostileFileError(path, say("shard_fault.large_chunk", name=name, size=str(size), length=length))
        extent = Extent(files[file], offset, length)
        blocks = partial(_chunk_blocks, extent, name, size, dtype)
        boxes.append(Box(start[axes:], streamed_tensor(name, size[axes:], dtype, blocks)))
    return tiled_tensor(path, name, shape[axes:], dtype, boxes)


def _dtype(properties: Any) -> str:
    """The dtype is the first of what a tensor's properties are pickled as, or a field in older versions."""
    state = properties.state if isinstance(properties, Made) else None
    first = state[0] if isinstance(state, tuple) and state else fields_of(properties).get("dtype")
    return dtype_of(first)


def _chunk_blocks(place: Extent, name: str, shape: Shape, dtype: str, block: int) -> Iterator[memoryview]:
    """The bytes of a chunk; raises NotACheckpointError for an archive that holds something else."""
    tree, storages, _ = archive_tree(place.path, place)
    if not is_tensor(tree):
        raise NotACheckpointError(place.path, say("shard_fault.no_chunk_there", name=name, offset=place.offset))
    chunk = RankFile(place.path, {}, storages, ()).tensor(name, tree)
    if (chunk.shape, chunk.dtype) != (shape, dtype):
        listed, stored = f"{dtype} {shape}", f"{chunk.dtype} {chunk.shape}"
        raise NotACheckpointError(place.path, say("shard_fault.other_chunk", name=name, listed=listed, stored=stored))
    return byte_blocks(chunk, block)


def _tree(path: Path, listed: _Listed, tensors: Mapping[str, StoredTensor | OddTensor]) -> dict[str, Any]:
    """The nested mapping that was saved, as far as the list tells the keys of each entry; lists go by their numbers."""
    tree: dict[str, Any] = {}
    for name in listed.entries:
        keys = listed.paths.get(name)
        sound = isinstance(keys, tuple) and keys and all(isinstance(one, (str, int)) for one in keys)
        *above, last = map(str, keys) if sound and isinstance(keys, tuple) else _guessed_keys(name)
        inner: Any = tree
        for key in above[:DEEPEST_KEY]:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or last in inner or len(above) > DEEPEST_KEY:
            raise HostileFileError(path, say("shard_fault.odd_name", name=name[:LONGEST_KEY]))
        inner[last] = tensors.get(name, _Object())
    return {key: _with_optimizer(key, value) for key, value in tree.items()}


def _guessed_keys(name: str) -> tuple[str, ...]:
    """Of an entry without keys: Megatron names all state of its optimizer so."""
    match = OF_OPTIMIZER.match(name)
    return (match[2], (match[1] or "") + name[match.end() :]) if match else (name,)


def _with_optimizer(key: str, value: Any) -> Any:
    """The state of an optimizer in the form in which it is known, whatever form it was flattened to."""
    if not isinstance(value, dict) or OPTIMIZER.issubset(value):
        return value
    if key in OPTIMIZERS or all(name.startswith(FLAT_OPTIMIZER) for name in value):
        return {"state": value, "param_groups": {}}
    return value


class _Object:
    """Something that was pickled beside the tensors: it is listed, and never read."""


class _Reader(StoredTreeReader):
    def describe(self, value: Any) -> str:
        """An object goes by what it is, not by its class."""
        return sentence("shard_note.object") if isinstance(value, _Object) else super().describe(value)
