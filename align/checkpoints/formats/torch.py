"""`torch.save` files, read without torch: `.pth`, `.pt` and `.bin` are one zip with a pickle that is only looked at.

The pickle is interpreted as inert data (`format_parts.pickle`) and the state_dict is found in it by looking
(`torch_entries`); each tensor is a view of a record, checked for sign, size and place before anything is read.

Written, the records and their order are torch's own. The pickle is put together opcode by opcode, because a pickler
would import what it names. Tied tensors share one record, so that they come back as one storage.
"""

from __future__ import annotations

import json
import mmap
import pickle
import re
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO

from align.checkpoints.extents import byte_blocks
from align.checkpoints.pickled_tensors import (
    DTYPES,
    STORAGES,
    UnsupportedTensorError,
    mapping_of,
    read_pickle,
    read_storage,
)
from align.checkpoints.sound_records import ALIGNMENT, ZIP_HEAD, ZipWriter, first_record_name, names_in_tar, zip_records
from align.checkpoints.thresholds import HEAD_BYTES
from align.checkpoints.torch_archives import plain_tree
from align.checkpoints.torch_entries import archive_tree, is_pickle, single_tensor, torch_checkpoint
from align.core.parameters import Extent, StoredTensor
from align.core.protocols import collector_paused
from align.errors import HostileFileError, NeedsItsCodeError, NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from align.checkpoints.pickled_tensors import Persistent, Storage
    from align.core.parameters import Checkpoint, Shape
    from align.core.protocols import FrameworkName


CLASSES = {dtype: name for name, dtype in STORAGES.items()}  # the other dtypes lie in untyped bytes
ENTRIES, MODEL = "entries", "model"
FOLDER = "archive"  # torch takes the file's name, which would make equal tensors unequal files


@dataclass(frozen=True, slots=True)
class TorchFormat:
    """The zip files of `torch.save`."""

    name: str = "torch"
    summary: str = "torch.save files (.pth .pt .bin), read without torch and without running their pickles"
    requires: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".pth", ".pt", ".bin")
    framework: FrameworkName | None = "torch"

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Tell a zip with a `data.pkl`."""
        if not head.startswith(ZIP_HEAD):
            return False
        return is_pickle(first_record_name(head)) or any(is_pickle(name) for name in zip_records(path))

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Interpret the pickle and check every view against its record."""
        with collector_paused():
            tree, storages, checksums = archive_tree(path)
            return replace(torch_checkpoint(path, self.name, tree, storages, key), checksums=checksums)

    def read_tensor(self, path: Path) -> StoredTensor:
        """The tensor that `torch.save(tensor, path)` wrote."""
        tree, storages, _ = archive_tree(path)
        return single_tensor(path, tree, storages)

    def read_tree(self, path: Path) -> Any:
        """All that the file holds, as dicts, lists, numbers and texts with tensors among them."""
        with collector_paused():
            tree, storages, _ = archive_tree(path)
            return plain_tree(path, tree, storages)

    def write_tree(self, stream: BinaryIO, tree: Any) -> None:
        """Write what `torch.save` makes of dicts, lists, numbers and texts with tensors among them."""
        out = _Pickle(bytearray(pickle.PROTO + b"\2"))
        stored: dict[object, tuple[str, StoredTensor]] = {}
        _add_value(out, tree, stored)
        _write_records(stream, bytes(out.code + pickle.STOP), dict(stored.values()))

    def write_tensor(self, stream: BinaryIO, tensor: StoredTensor) -> None:
        """Write what `torch.save(tensor, path)` makes."""
        out = _Pickle(bytearray(pickle.PROTO + b"\2"))
        _add_tensor(out, tensor, "0")
        _write_records(stream, bytes(out.code + pickle.STOP), {"0": tensor})

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:  # noqa: ARG002
        """Name the tensors of a dtype that torch does not have."""
        return [say("torch_file.unknown_dtype", name=t.name, dtype=t.dtype) for t in tensors if t.dtype not in DTYPES]

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:
        """Write what `torch.save` makes of a state_dict; tied tensors come back as one storage.

        With `entries`, numbers and texts as JSON, it is of a dict that holds these and the state_dict as `model`.
        """
        stored: dict[object, StoredTensor] = {}
        for tensor in tensors:
            stored.setdefault(tensor.identity, tensor)
        keys = {identity: str(number) for number, identity in enumerate(stored)}
        pickled = _pickle(tensors, keys, json.loads(metadata.get(ENTRIES, "{}")))
        _write_records(stream, pickled, {keys[identity]: tensor for identity, tensor in stored.items()})


TORCH_ZIP = TorchFormat()


def _write_records(stream: BinaryIO, pickled: bytes, storages: Mapping[str, StoredTensor]) -> None:
    archive = ZipWriter(stream)
    archive.add(f"{FOLDER}/data.pkl", pickled)
    archive.add(f"{FOLDER}/.format_version", b"1")
    archive.add(f"{FOLDER}/.storage_alignment", str(ALIGNMENT).encode())
    archive.add(f"{FOLDER}/byteorder", b"little")
    for key, tensor in storages.items():
        archive.add_blocks(f"{FOLDER}/data/{key}", tensor.nbytes, byte_blocks(tensor))
    archive.add(f"{FOLDER}/version", b"3\n")
    archive.add(f"{FOLDER}/.data/serialization_id", archive.fingerprint())
    archive.finish()


@dataclass(slots=True)
class _Pickle:
    """Opcodes of a pickle of protocol 2; constants are written once and then called by their number."""

    code: bytearray = field(default_factory=bytearray)
    numbers: dict[bytes, int] = field(default_factory=dict)

    def constant(self, code: bytes) -> None:
        if code in self.numbers:
            self.code += pickle.BINGET + bytes([self.numbers[code]])
        else:
            self.numbers[code] = len(self.numbers)
            self.code += code + pickle.BINPUT + bytes([self.numbers[code]])


def _pickle(tensors: Iterable[StoredTensor], keys: Mapping[object, str], entries: Mapping[str, float | str]) -> bytes:
    """An OrderedDict of names to tensors, each refers to a record by its key; with entries, a dict around it."""
    out = _Pickle(bytearray(pickle.PROTO + b"\2"))
    if entries:
        out.code += pickle.EMPTY_DICT + pickle.MARK
        for name, value in entries.items():
            out.code += _text(name) + (_text(value) if isinstance(value, str) else _number(value))
        out.code += _text(MODEL)
    out.constant(ORDERED)
    out.code += pickle.EMPTY_TUPLE + pickle.REDUCE + pickle.MARK
    for tensor in tensors:
        out.code += _text(tensor.name)
        _add_tensor(out, tensor, keys[tensor.identity])
    out.code += pickle.SETITEMS * (2 if entries else 1) + pickle.STOP
    return bytes(out.code)


def _add_value(out: _Pickle, value: Any, stored: dict[object, tuple[str, StoredTensor]]) -> None:
    if isinstance(value, StoredTensor):
        _add_tensor(out, value, stored.setdefault(value.identity, (str(len(stored)), value))[0])
    elif isinstance(value, dict):
        out.code += pickle.EMPTY_DICT + pickle.MARK
        for key, item in value.items():
            _add_value(out, key, stored)
            _add_value(out, item, stored)
        out.code += pickle.SETITEMS
    elif isinstance(value, (list, tuple)):
        as_list = isinstance(value, list)
        out.code += (pickle.EMPTY_LIST if as_list else b"") + pickle.MARK
        for item in value:
            _add_value(out, item, stored)
        out.code += pickle.APPENDS if as_list else pickle.TUPLE
    else:
        out.code += _text(value) if isinstance(value, str) else pickle.dumps(value, 2)[2:-1]  # as `_number` does


def _add_tensor(out: _Pickle, tensor: StoredTensor, key: str) -> None:
    """`_rebuild_tensor_v2(storage, 0, shape, stride, requires_grad, hooks)`; v3 has the dtype behind them."""
    typed = tensor.dtype in CLASSES
    out.constant(_global("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3"))
    out.code += pickle.MARK + pickle.MARK
    out.constant(_text("storage"))
    out.constant(_global("torch", CLASSES[tensor.dtype]) if typed else _global("torch.storage", "UntypedStorage"))
    out.code += _text(key)
    out.constant(_text("cpu"))
    out.code += _number(prod(tensor.shape) if typed else tensor.nbytes) + pickle.TUPLE + pickle.BINPERSID
    out.code += _number(0) + _numbers(tensor.shape) + _numbers(_strides(tensor.shape)) + pickle.NEWFALSE
    out.constant(ORDERED)
    out.code += pickle.EMPTY_TUPLE + pickle.REDUCE
    if not typed:
        out.constant(_global("torch", tensor.dtype))
    out.code += pickle.TUPLE + pickle.REDUCE


def _strides(shape: Shape) -> list[int]:
    return [prod(max(n, 1) for n in shape[axis + 1 :]) for axis in range(len(shape))]


def _global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    raw = text.encode("utf-8")
    return pickle.BINUNICODE + len(raw).to_bytes(4, "little") + raw


def _number(number: float) -> bytes:
    return pickle.dumps(number, 2)[2:-1]  # without the protocol and the stop


def _numbers(numbers: Iterable[int]) -> bytes:
    return pickle.MARK + b"".join(map(_number, numbers)) + pickle.TUPLE


ORDERED = _global("collections", "OrderedDict")


# What torch wrote before version 1.6, and still does on request: pickles in a row, then the storages' bytes.
#
# The pickles are a magic number, a protocol version, facts about the machine, the object, and the keys of the
# storages in the order in which their bytes follow: a count of elements (int64), then the elements. How large an
# element is, only the first reference to the storage in the object tells. The file is mapped, and only the pickles
# and the counts are touched. Still older forms are recognized here and refused.

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # format: what torch.save wrote before 1.6
# Protocol 2 or higher, from 4 on in a frame; then the magic number as a long of ten bytes.
HEAD = re.compile(rb"\x80[\x02-\x05](?:\x95.{8})?\x8a\x0a" + re.escape(MAGIC.to_bytes(10, "little")), re.DOTALL)
OLDEST = {"pickle", "storages", "tensors"}  # format: members of the tar file that torch.save wrote at first
COUNT = 8  # format: bytes of the number of elements in front of a storage


@dataclass(frozen=True, slots=True)
class TorchLegacyFormat:
    """Files of torch before 1.6; tar files, which it wrote at first, are recognized and refused."""

    name: str = "torch-legacy"
    summary: str = "torch.save files as written before torch 1.6, read only, without running their pickles"
    requires: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".tar",)  # as in model_best.pth.tar
    framework: FrameworkName | None = "torch"

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Tell torch's magic number, and tar files that hold what its oldest form did."""
        return HEAD.match(head) is not None or bool(names_in_tar(path, head) & OLDEST)

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Interpret the pickles and check that every storage lies in the file."""
        with collector_paused():
            return torch_checkpoint(path, self.name, *_legacy_contents(path), key)

    def read_tree(self, path: Path) -> Any:
        """All that the file holds, as dicts, lists, numbers and texts with tensors among them."""
        with collector_paused():
            return plain_tree(path, *_legacy_contents(path))

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:  # noqa: ARG002
        """Say that nothing is written in this form."""
        return [say("torch_file.old_read_only")]

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:
        """Refuse, in the words of `problems`."""
        raise NotImplementedError(self.problems(tensors, metadata)[0])


TORCH_LEGACY = TorchLegacyFormat()


def _legacy_contents(path: Path) -> tuple[Any, dict[str, Extent]]:
    with path.open("rb") as stream:
        if HEAD.match(stream.read(HEAD_BYTES)) is None:
            raise NeedsItsCodeError(path, *texts("torch_file.tar"))
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read_pickles(path, data)


def _read_pickles(path: Path, data: mmap.mmap) -> tuple[Any, dict[str, Extent]]:
    """The object's tree, and where the bytes of each storage lie."""
    magic = read_pickle(path, data)
    protocol = read_pickle(path, data, magic.end)
    if magic.value != MAGIC or protocol.value != PROTOCOL:
        raise NotACheckpointError(path, say("torch_file.no_magic"))
    machine = read_pickle(path, data, protocol.end)
    if (mapping_of(machine.value) or {}).get("little_endian") is not True:
        raise UnsupportedCheckpointError(path, *texts("torch_file.not_little_endian"))
    tree = read_pickle(path, data, machine.end)
    keys = read_pickle(path, data, tree.end)
    storages = _legacy_storages(path, tree.references)
    return tree.value, _extents(path, data, keys.end, _listed(path, keys.value, storages))


def _legacy_storages(path: Path, references: Sequence[Persistent]) -> dict[str, Storage]:
    """The storages by key as first referred to; others may be views, but agree on the size."""
    storages: dict[str, Storage] = {}
    for reference in references:
        if isinstance(reference.reference, tuple) and reference.reference[:1] == ("module",):
            continue  # the class of a module, with its source
        try:
            storage = read_storage(path, sentence("entry_note.some_value"), reference.reference)
        except UnsupportedTensorError as fault:
            raise UnsupportedCheckpointError(path, fault.reason, fault.remedy) from fault
        first = storages.setdefault(storage.key, storage)
        if storage.nbytes != first.nbytes:
            raise HostileFileError(
                path, say("torch_file.two_sizes", storage=storage.key, first=first.nbytes, second=storage.nbytes)
            )
    return storages


def _listed(path: Path, keys: Any, storages: Mapping[str, Storage]) -> list[Storage]:
    """The storages in the order of their bytes."""
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise HostileFileError(path, say("torch_file.no_storages"))
    if len(set(keys)) != len(keys):
        raise HostileFileError(path, say("torch_file.storage_twice"))
    if unknown := [key for key in keys if key not in storages]:
        raise HostileFileError(path, say("torch_file.unknown_storage", storage=unknown[0][:60]))
    return [storages[key] for key in keys]


def _extents(path: Path, data: mmap.mmap, start: int, storages: Sequence[Storage]) -> dict[str, Extent]:
    extents: dict[str, Extent] = {}
    at = start
    for storage in storages:
        end = at + COUNT + storage.nbytes
        if end > len(data):
            raise NotACheckpointError(path, say("torch_file.too_short", count=len(data), storage=storage.key, end=end))
        count = int.from_bytes(data[at : at + COUNT], "little", signed=True)
        if count != storage.count:
            raise NotACheckpointError(
                path, say("torch_file.other_count", storage=storage.key, count=count, claimed=storage.count)
            )
        extents[storage.key] = Extent(path, at + COUNT, storage.nbytes)
        at = end
    return extents


PLUGINS = (TORCH_ZIP, TORCH_LEGACY)
