"""Opening a checkpoint by its content; the suffix decides nothing, because people rename files.

One of several files, which an index names, is read as one. The index is Hugging Face's (`model.safetensors.index.json`,
`pytorch_model.bin.index.json`, with a `weight_map`) or MindSpore's `param_name_map.json`, which has one too, or is
nothing but the map, in older versions. Its words are not trusted: shards lie beside it and are plain files, however
they are linked, and every tensor must be where it says.

What lies in the place of a checkpoint and is none (a file that was not fetched, an archive around one) is named with
the line to type. Nothing is unpacked: an archive may hold anything, and take any room.
"""

from __future__ import annotations

import io
import re
import shlex
import traceback
import zlib
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.extents import file_state, mapped
from align.checkpoints.pickled_tensors import Made, mapping_of, read_pickle
from align.checkpoints.sound_records import (
    MAGIC,
    TAR_BLOCK,
    ZIP_HEAD,
    FilesBeside,
    external_file,
    is_tar,
    names_in_tar,
    parse_json,
    read_npy_header,
    read_record,
    zip_records,
)
from align.checkpoints.thresholds import (
    HEAD_BYTES,
    LONGEST_DUMP_BYTES,
    LONGEST_INDEX_BYTES,
    LONGEST_PICKLE_BYTES,
    MOST_SHARDS,
)
from align.checkpoints.torch_entries import StoredTreeReader, choose_entry, read_others, read_tensors
from align.core.atomic_files import existing_file
from align.core.load_code import (
    check_packages,
    checkpoint_formats,
    folder_formats,
    put_first,
    tensor_files,
    trusted_loaders,
)
from align.core.parameters import Checkpoint, Extent, StoredTensor, dtype_name, in_numpy, numpy_dtype, require_plain
from align.core.protocols import collector_paused
from align.errors import (
    CannotRunError,
    HostileFileError,
    MissingEntryError,
    NeedsItsCodeError,
    NotACheckpointError,
    ShardsError,
    UnsupportedCheckpointError,
    UsageError,
)
from align.rules.training_rules import part_by_name, part_of_model
from align.words.catalogue import counted, printable, say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from align.core.parameters import Array
    from align.core.protocols import CheckpointFormat


WEIGHT_MAP = "weight_map"
PIECE = ".distcp"  # of a file that torch.distributed.checkpoint writes
OPTIMIZER_PART = "optimizer_states"
MINDSPORE_INDEX = "param_name_map.json"
UNLISTED = "hyper_param.safetensors"  # what `mindspore.unified_safetensors` puts beside it, and does not list
INDEX_NAMES = ("*.index.json", MINDSPORE_INDEX)
CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r")  # JSON has none of them outside of escapes
SHARD_NAME = re.compile(r"-[0-9]{5}-of-([0-9]{5})(?![0-9])")


@collector_paused()
def open_checkpoint(path: Path | str, key: str | None = None, *, odd_too: bool = False) -> Checkpoint:
    """Read the header of a checkpoint of any known format; no tensor is loaded.

    `path` may also be the index of a sharded checkpoint, or a folder that holds one index or one checkpoint. `key`
    chooses an entry of a nested file. Tensors without a plain form are refused, or kept in `odd` with `odd_too`. Raises
    MissingFileError, UsageError (several checkpoints in a folder), SeveralEntriesError, MissingEntryError,
    UnsupportedTensorsError, NotACheckpointError (with the known formats) or what the reader says.

    >>> import numpy, tempfile
    >>> path = Path(tempfile.mkdtemp(), "model.npz")
    >>> numpy.savez(path, **{"fc.weight": numpy.ones((2, 3), numpy.float32)})
    >>> open_checkpoint(path).tensors["fc.weight"].shape
    (2, 3)
    """
    path = Path(path)
    try:
        if (parts := _open_parts(path, key, odd_too)) is not None:
            return parts
        file = existing_file(_checkpoint_in(path) if path.is_dir() else path, "checkpoint")
        open_file = partial(_open_file, key=key, odd_too=odd_too)
        if _is_index(_head(file)):
            return _open_sharded(file, open_file)
        opened = open_file(file)
        elsewhere = tuple(name for name in _names_beside(file) if name not in opened.tensors)
        return replace(opened, notes=(*opened.notes, *_shard_note(file)), elsewhere=elsewhere)
    except OSError as error:
        raise NotACheckpointError(path, error.strerror or str(error)) from error
    except MemoryError as error:
        traceback.clear_frames(error.__traceback__)  # what was read so far makes room for the words
        raise UnsupportedCheckpointError(path, *texts("checkpoint_file.all_memory")) from error


def require_checkpoint(path: Path | str) -> None:
    """Raise MissingFileError if there is neither a file nor a folder at `path`; nothing is read."""
    if not Path(path).is_dir():
        existing_file(Path(path), "checkpoint")


def printable_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with all its words fit to be shown; names of tensors go to maps and files and stay as they are.

    Raises HostileFileError for names of tensors that cannot be shown.
    """
    for name in (*checkpoint.tensors, *checkpoint.odd):
        if not name.isprintable():
            raise HostileFileError(checkpoint.path, *texts("checkpoint_file.control_characters", name=name))
    return replace(
        checkpoint,
        metadata=dict(_shown(checkpoint.metadata.items())),
        other=dict(_shown(checkpoint.other.items())),
        other_tensors={printable(name): count for name, count in checkpoint.other_tensors.items()},
    )


def _open_parts(path: Path, key: str | None, odd_too: bool) -> Checkpoint | None:
    """What ranks of a training wrote in parts, as one checkpoint; None if there is nothing of the kind."""
    for plugin in folder_formats().values():
        known = path.is_dir() or (path.name in plugin.file_names and path.is_file())
        if known and (place := plugin.find(path)) is not None:
            found = printable_checkpoint(plugin.read(place, key))
            states = {file: file_state(file) for file in found.all_files}
            return replace(found if odd_too else require_plain(found), states=states)
    return None


def _open_file(path: Path, key: str | None, odd_too: bool) -> Checkpoint:
    if path.suffix == PIECE:
        raise CannotRunError.of("unfinished.distributed_piece", path=path, folder=path.parent)
    states, head = {path: file_state(path)}, _head(path)
    suffix = path.suffix.lower()  # says who is asked first, and no more
    for plugin in sorted(checkpoint_formats().values(), key=lambda one: suffix not in one.suffixes):
        if plugin.recognizes(path, head):
            found = printable_checkpoint(_read_by(plugin, path, key))
            states |= {other: file_state(other) for other in found.all_files if other != path}
            return replace(found if odd_too else require_plain(found), states=states)
    if (foreign := foreign_file(path, head)) is not None:
        raise foreign
    reason = say("checkpoint_file.unknown_format") if head else say("checkpoint_file.empty")
    raise NotACheckpointError(
        path, reason, [f"{p.name} ({' '.join(p.suffixes)})" for p in checkpoint_formats().values()]
    )


def _read_by(plugin: CheckpointFormat, path: Path, key: str | None) -> Checkpoint:
    """What a format reads; of a file that is known as a part of a checkpoint, what it is and not what it lacks."""
    try:
        return plugin.read(path, key)
    except UnsupportedCheckpointError as error:
        if part := part_by_name(path):
            raise CannotRunError.of(f"part_of_model.{part}", path=path, others=[], told="") from error
        raise


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(HEAD_BYTES)


def _shown(table: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    return ((printable(name), printable(value)) for name, value in table)


def _is_index(head: bytes) -> bool:
    """Tell a file of JSON by its first bytes; a `.ckpt` whose first message has 123 bytes begins with a brace too."""
    return head.lstrip().startswith(b"{") and CONTROLS.isdisjoint(head)


def _open_sharded(index: Path, open_file: Callable[[Path], Checkpoint]) -> Checkpoint:
    """Open all shards, each by `open_file`, and put their tensors in the order of the index.

    Raises NotACheckpointError for JSON that is no index, HostileFileError for shards that are not beside it, and
    ShardsError with all that is missing, too much, in the wrong place or unreadable.
    """
    merged = _Merged(index, file_state(index))
    weight_map = _read_weight_map(index)
    for name in dict.fromkeys(weight_map.values()):
        merged.add(name, open_file)
    if index.name == MINDSPORE_INDEX and (index.parent / UNLISTED).is_file():
        merged.add(UNLISTED, open_file)
        weight_map |= {name: UNLISTED for name, shard in merged.tensors if shard == UNLISTED}
    if problems := [*merged.problems, *_index_faults(weight_map, merged)]:
        raise ShardsError(index, problems)
    tensors = {place[0]: merged.tensors[place] for place in weight_map.items() if place in merged.tensors}
    return merged.checkpoint(tensors)


def _checkpoint_in(folder: Path) -> Path:
    """The one index of a folder, or its one checkpoint file, by name; the shards of an index go with it.

    An optimizer's parts are none. Raises UsageError for several, NotACheckpointError for none, CannotRunError for parts
    of one that no reader of folders has put together.
    """
    suffixes = {suffix for plugin in checkpoint_formats().values() for suffix in plugin.suffixes}
    indexes = {index: _shards_of(index) for index in _indexes_in(folder)}
    beside = folder.iterdir() if all(indexes.values()) else ()  # what belongs to an unsound index is not known
    shards = {UNLISTED} if any(index.name == MINDSPORE_INDEX for index in indexes) else set()
    shards = shards.union(*indexes.values())
    files = (path for path in beside if path.suffix.lower() in suffixes and path.name not in shards)
    candidates = sorted(path for path in (*indexes, *files) if path.is_file() and not path.name.startswith("."))
    parts = {path: part for path in candidates if (part := part_by_name(path))}
    for path, part in parts.items():
        if part != OPTIMIZER_PART or len(parts) == len(candidates):
            raise CannotRunError.of(f"part_of_model.{part}", path=path, others=[], told="")
    candidates = [path for path in candidates if path not in parts]
    if len(candidates) > 1:
        names = [_with_absent_shards(path, indexes.get(path, ())) for path in candidates]
        raise UsageError.of("checkpoint_file.several_in_folder", folder=folder, count=len(candidates), names=names)
    if not candidates:
        inner = sorted(path.name for path in folder.iterdir() if path.is_dir())
        if ranks := [name for name in inner if part_of_model(folder / name / "-")]:
            raise CannotRunError.of("unfinished.folder_of_parts", folder=folder, names=ranks)
        raise NotACheckpointError(folder, say("checkpoint_file.none_in_folder"), sorted(suffixes))
    return candidates[0]


def _with_absent_shards(path: Path, shards: Iterable[str]) -> str:
    """The name of a file, and of an index also which of its shards are not there."""
    absent = sorted(name for name in shards if not (path.parent / name).is_file())
    return (
        sentence("checkpoint_note.absent_shards", index=path.name, names=absent, count=len(absent))
        if absent
        else path.name
    )


def _shard_note(path: Path) -> Iterator[str]:
    """Say that a file is one of several shards, by an index beside it or by its name."""
    for index in _indexes_in(path.parent):
        shards = _shards_of(index)
        if path.name in shards and len(shards) > 1:
            yield sentence("checkpoint_note.one_shard", file=path.name, count=len(shards), index=index.name)
            return
    if (found := SHARD_NAME.search(path.name)) and int(found[1]) > 1:
        yield sentence("checkpoint_note.one_shard_by_name", file=path.name, count=int(found[1]))


def _names_beside(path: Path) -> Iterator[str]:
    """What an index lists that names this file as one of its shards."""
    for index in _indexes_in(path.parent):
        if path.name in (shards := _shards_of(index)) and len(shards) > 1:
            yield from _read_weight_map(index)
            return


def _indexes_in(folder: Path) -> list[Path]:
    return sorted(path for pattern in INDEX_NAMES for path in folder.glob(pattern) if path.is_file())


def _shards_of(index: Path) -> set[str]:
    try:
        return set(_read_weight_map(index).values())
    except (NotACheckpointError, OSError):
        return set()


@dataclass(slots=True)
class _Merged:
    """What the shards hold together; tensors by name and shard."""

    index: Path
    state: tuple[int, int]
    shards: list[Checkpoint] = field(default_factory=list)
    tensors: dict[tuple[str, str], StoredTensor] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def add(self, name: str, open_file: Callable[[Path], Checkpoint]) -> None:
        problem = say("index_file.shard_missing")
        try:
            path = external_file(self.index, name)
            shard = None if path is None else open_file(path)
        except (NotACheckpointError, UnsupportedCheckpointError, MissingEntryError) as error:
            problem, shard = error.message, None
        except OSError as error:
            problem, shard = error.strerror or str(error), None
        if shard is None:
            self.unread.add(name)
            self.problems.append(say("index_file.shard", name=name, problem=problem))
            return
        self.shards.append(shard)
        for tensor_name in (*shard.tensors, *shard.odd):
            self.places.setdefault(tensor_name, []).append(name)
        for tensor in shard.tensors.values():
            # Storages are numbered in each file anew: equal numbers of two files are no tie.
            own = tensor if tensor.storage is None else replace(tensor, storage=f"{name}:{tensor.storage}")
            self.tensors[tensor.name, name] = own

    def checkpoint(self, tensors: dict[str, StoredTensor]) -> Checkpoint:
        kinds = " and ".join(sorted({shard.format for shard in self.shards}))
        metadata: dict[str, str] = {}
        for shard in reversed(self.shards):
            metadata |= shard.metadata
        return Checkpoint(
            self.index,
            f"{kinds} ({counted(len(self.shards), 'shard')})",
            tensors,
            metadata,
            {f"{name} ({shard.path.name})": words for shard in self.shards for name, words in shard.other.items()},
            {f"{name} ({s.path.name})": count for s in self.shards for name, count in s.other_tensors.items()},
            key=self.shards[0].key,
            files=(self.index, *(shard.path for shard in self.shards)),
            odd={name: tensor for shard in self.shards for name, tensor in shard.odd.items()},
            checksums=tuple(extent for shard in self.shards for extent in shard.checksums),
            check=self.check if any(shard.check is not None for shard in self.shards) else None,
            states={self.index: self.state} | {path: one for s in self.shards for path, one in s.states.items()},
        )

    def check(self) -> None:
        for shard in self.shards:
            if shard.check is not None:
                shard.check()


def _index_faults(weight_map: Mapping[str, str], merged: _Merged) -> Iterator[str]:
    """Where the index and the shards that could be read do not agree."""
    for name, shard in weight_map.items():
        places = merged.places.get(name, [])
        if shard not in places and shard not in merged.unread:
            yield say("index_file.elsewhere", name=name, shard=shard, places=places)
    for name, places in merged.places.items():
        if len(places) > 1:
            yield say("index_file.several_shards", name=name, count=len(places), places=places)
        elif name not in weight_map:
            yield say("index_file.not_listed", name=name, shard=places[0])


def _read_weight_map(index: Path) -> dict[str, str]:
    with index.open("rb") as stream:
        raw = stream.read(LONGEST_INDEX_BYTES + 1)
    if len(raw) > LONGEST_INDEX_BYTES:
        raise HostileFileError(index, say("index_file.too_long", most=LONGEST_INDEX_BYTES))
    try:
        document = parse_json(raw)
    except ValueError as error:
        raise NotACheckpointError(index, say("json_file.not_sound", error=error)) from error
    weight_map = document.get(WEIGHT_MAP, document)
    if not weight_map or not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        reason, hint = texts("index_file.no_map", map=WEIGHT_MAP)
        raise NotACheckpointError(index, reason, hint=hint)
    _check_names(index, weight_map.keys(), set(weight_map.values()))
    return weight_map


def _check_names(index: Path, tensors: Iterable[str], shards: set[str]) -> None:
    """Names can be shown; shards lie beside the index and are not too many."""
    unsound = [repr(name) for name in tensors if not name.isprintable()]
    if unsound:
        raise HostileFileError(index, say("index_file.control_characters", names=unsound))
    outside = sorted(repr(name) for name in shards if set(name) & {"/", "\\"} or name in ("", ".", ".."))
    outside += sorted(repr(name) for name in shards if not name.isprintable())
    if outside:
        raise HostileFileError(index, say("index_file.outside", count=len(outside), names=outside))
    if len(shards) > MOST_SHARDS:
        raise HostileFileError(index, say("index_file.too_many_shards", count=len(shards), most=MOST_SHARDS))


# Files that are no checkpoints but hold tensors or tell of them: one tensor, JSON, a file that another one names.
#
# They come from other tools, and are believed as far as checkpoints are: sizes are held against the file, pickles are
# never run, and a name in a file leads nowhere but below the folder that the file lies in.

__all__ = ["FilesBeside", "array_of_bytes", "npy_bytes", "open_tensor", "read_json", "torch_tensor_bytes"]


def open_tensor(path: Path) -> StoredTensor:
    """The tensor that a file holds alone: `.npy`, or what `torch.save(tensor, path)` writes; only its header is read.

    Raises MissingFileError, NotACheckpointError or UnsupportedCheckpointError.
    """
    file = existing_file(path, "file")
    try:
        with file.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
            if head.startswith(MAGIC):
                return _npy(file, stream.read, head)
        for plugin in tensor_files():
            if plugin.recognizes(file, head):
                return plugin.read_tensor(file)
    except OSError as error:
        raise NotACheckpointError(path, error.strerror or str(error)) from error
    raise UnsupportedCheckpointError(path, *texts("single_file.no_tensor"))


def read_json(path: Path) -> Any:
    """The JSON of a file; raises MissingFileError, or NotACheckpointError for damage, too much of it, or too deep."""
    file = existing_file(path, "file")
    try:
        size = file.stat().st_size
        if size > LONGEST_DUMP_BYTES:
            raise UnsupportedCheckpointError(path, *texts("single_file.too_long", size=size, most=LONGEST_DUMP_BYTES))
        return parse_json(file.read_bytes())
    except OSError as error:
        raise NotACheckpointError(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise NotACheckpointError(path, say("single_file.no_json", error=error)) from error


def torch_tensor_bytes(value: Array) -> bytes:
    """The bytes of the file that `torch.save(tensor, path)` would write."""
    stream = io.BytesIO()
    tensor = StoredTensor(
        "", value.shape, dtype_name(value.dtype), lambda: np.ascontiguousarray(value).reshape(value.shape)
    )
    next(iter(tensor_files())).write_tensor(stream, tensor)
    return stream.getvalue()


def npy_bytes(value: Array) -> bytes:
    """The bytes of an `.npy` file; bfloat16 and float8, which it cannot hold, in float32."""
    stream = io.BytesIO()
    plain = value if in_numpy(dtype_name(value.dtype)) else value.astype(np.float32)
    np.save(stream, plain, allow_pickle=False)
    return stream.getvalue()


def array_of_bytes(path: Path, name: str, data: bytes) -> Array:
    """The array of the bytes of an `.npy` file inside of the file at `path`; raises as `open_tensor` does."""
    header = read_npy_header(path, name, len(data), lambda count: data[:count])
    if header.dtype.kind in "SU":
        raise UnsupportedCheckpointError(path, *texts("single_file.no_tensor"))
    return header.array(data, header.length)


def _npy(path: Path, more: Any, head: bytes) -> StoredTensor:
    size = path.stat().st_size
    header = read_npy_header(path, path.name, size, lambda count: (head + more(max(count - len(head), 0)))[:count])
    if header.dtype.kind in "SU":
        raise UnsupportedCheckpointError(path, *texts("single_file.no_tensor"))
    dtype, shape = dtype_name(header.dtype), header.shape
    little, rows_first = numpy_dtype(dtype), not header.fortran or len(shape) <= 1
    extent = Extent(path, header.length, size - header.length)
    if header.dtype == little and rows_first:
        return StoredTensor(path.name, shape, dtype, mapped(extent, shape, dtype), extent)
    raw = mapped(extent, (extent.nbytes,), "uint8")
    return StoredTensor(path.name, shape, dtype, lambda: header.array(raw().data))


# Opening a file that only its own code can: whole pickled modules, TorchScript, the oldest form of torch.save.
#
# What the safe readers can open is never run, however much the user trusts it: they are lazy, and faster. What they
# cannot is loaded whole into memory by the framework, at the one boundary where foreign code runs.


def open_trusted(path: Path | str, key: str | None = None, *, odd_too: bool = False) -> Checkpoint:
    """Open a checkpoint, running the code that it names only if there is no other way; `notes` then say so.

    Whole modules are taken as their state_dict, so that `key` may name one. Modules are also looked for in the current
    folder. Raises FrameworkMissingError where torch is missing, MissingClassError for a class that cannot be imported,
    UserCodeError for what the file's code raises, and all that `open_checkpoint` does.

    >>> import numpy, tempfile
    >>> path = Path(tempfile.mkdtemp(), "model.npz")
    >>> numpy.savez(path, w=numpy.ones(2))
    >>> open_trusted(path).notes
    ()
    """
    path = Path(path)
    try:
        return open_checkpoint(path, key, odd_too=odd_too)
    except NeedsItsCodeError as error:
        if error.path != path:  # a shard; its index vouches for names that only the safe readers can check
            raise
    loader = trusted_loaders()["torch"]
    check_packages(loader)
    put_first(Path.cwd())
    tree, look = loader.load_trusted(path), StoredTreeReader(path)
    chosen = choose_entry(path, tree, look, key)
    tensors, odd = read_tensors(chosen, look, lambda _, tensor: tensor)
    others, counts = read_others(path, tree, chosen, {*tensors, *odd}, look)
    notes = (sentence("checkpoint_note.trusted", path=str(path)),)
    found = Checkpoint(
        path, loader.name, tensors, {"format": "pt"}, others, counts, chosen.key, chosen.entries, odd=odd, notes=notes
    )
    return printable_checkpoint(found if odd_too else require_plain(found))


# Settings that `torch.save` kept, such as training_args.bin: the pickle is looked at and never run.

PICKLE = "data.pkl"
PLAIN = (str, int, float, bool, type(None))


def is_kept_by_torch(head: bytes) -> bool:
    """Tell the beginning of a file of `torch.save`."""
    return head.startswith(ZIP_HEAD)


def read_kept_settings(path: Path) -> dict[str, Any]:
    """The fields of the one object that the file holds: plain values, lists of such, and values of enums.

    Raises NotACheckpointError for a file that holds something else, or is damaged.
    """
    records = zip_records(path)
    found = next((record for name, record in records.items() if name.rpartition("/")[2] == PICKLE), None)
    if found is None:
        raise NotACheckpointError(path, say("settings_fault.no_object"))
    value = read_pickle(path, read_record(found, LONGEST_PICKLE_BYTES)).value
    fields = value.state if isinstance(value, Made) else mapping_of(value)
    if isinstance(fields, tuple):
        fields = next((value for value in fields if isinstance(value, dict)), None)
    if not isinstance(fields, dict):
        raise NotACheckpointError(path, say("settings_fault.no_object"))
    plain = {str(name): _plain(value) for name, value in fields.items()}
    return {name: value for name, value in plain.items() if value is not NotImplemented}


def _plain(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(one, PLAIN) for one in value):
        return tuple(value)
    if (
        isinstance(value, Made) and isinstance(value.arguments, tuple) and len(value.arguments) == 1
    ):  # a value of an enum
        return value.arguments[0] if isinstance(value.arguments[0], PLAIN) else NotImplemented
    return NotImplemented


# How what lies in the place of a checkpoint starts when it was not fetched.
NOT_FETCHED = {
    b"version https://git-lfs": "checkpoint_file.lfs_pointer",
    b"<!doctype html": "checkpoint_file.web_page",
    b"<html": "checkpoint_file.web_page",
}
GZIP = b"\x1f\x8b"
COMPRESSED = {
    GZIP: ("gzip", "gzip -dk"),
    b"BZh": ("bzip2", "bzip2 -dk"),
    b"\xfd7zXZ\0": ("xz", "xz -dk"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "zstd -d"),
}
TAR_SUFFIXES = (".tgz", ".tbz2", ".txz", ".nemo")
NEMO, NEMO_WEIGHTS = "model_config.yaml", "model_weights"  # format: what NeMo puts into its archives


def foreign_file(path: Path, head: bytes) -> CannotRunError | None:
    """What to say of a file that no format recognises; None where nothing is known of it."""
    for start, fault in NOT_FETCHED.items():
        if head.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(start):
            reason, hint = texts(fault)
            return NotACheckpointError(path, reason, hint=hint)
    if names := names_in_tar(path, head):
        plain = sorted(name.removeprefix("./") for name in names)
        return _of_nemo(path, plain) if NEMO in plain else _around(path, "tar", "tar -xf", names)
    if head.startswith(ZIP_HEAD):
        return _around(path, "zip", "unzip", zip_records(path))
    for start, (name, command) in COMPRESSED.items():
        if head.startswith(start):
            line = shlex.join([*(["tar", "-xf"] if _holds_tar(path, head) else command.split()), str(path)])
            return UnsupportedCheckpointError(path, *texts("foreign_file.compressed", name=name, line=line))
    return None


def _holds_tar(path: Path, head: bytes) -> bool:
    if ".tar" in path.suffixes or path.suffix in TAR_SUFFIXES:
        return True
    try:
        return head.startswith(GZIP) and is_tar(zlib.decompressobj(wbits=31).decompress(head, TAR_BLOCK))
    except zlib.error:
        return False


def _of_nemo(path: Path, names: Iterable[str]) -> UnsupportedCheckpointError:
    """The weights are a file of torch, or the folder of a parallel training; they may stand behind other members."""
    first = {name.partition("/")[0] for name in names}
    weights = min(
        (name for name in first if name.startswith((NEMO_WEIGHTS, "mp_rank"))), default=f"{NEMO_WEIGHTS}.ckpt"
    )
    line = shlex.join(["tar", "-xf", str(path)])
    return UnsupportedCheckpointError(path, *texts("foreign_file.nemo", weights=weights, line=line))


def _around(path: Path, name: str, command: str, names: Iterable[str]) -> UnsupportedCheckpointError:
    shown = sorted(names)
    facts = {"name": name, "names": shown, "count": len(shown), "line": shlex.join([*command.split(), str(path)])}
    return UnsupportedCheckpointError(path, *texts("foreign_file.archive", **facts))
