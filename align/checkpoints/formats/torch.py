"""`torch.save` files, read without torch: `.pth`, `.pt` and `.bin` are one zip with a pickle that is only looked at.

The pickle is interpreted as inert data (`format_parts.pickle`) and the state_dict is found in it by looking
(`torch_entries`); each tensor is a view of a record, checked for sign, size and place before anything is read.

Written, the records and their order are torch's own. The pickle is put together opcode by opcode, because a pickler
would import what it names. Tied tensors share one record, so that they come back as one storage.
"""

from __future__ import annotations

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
from align.checkpoints.sound_records import (
    ALIGNMENT,
    ZIP_HEAD,
    Record,
    ZipWriter,
    first_record_name,
    read_record,
    record_checksums,
    zip_records,
)
from align.checkpoints.thresholds import HEAD_BYTES, LONGEST_PICKLE_BYTES
from align.checkpoints.torch_entries import single_tensor, torch_checkpoint
from align.core.checkpoints import Extent
from align.core.progress import collector_paused
from align.errors import HostileFileError, NeedsItsCodeError, NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from align.checkpoints.pickled_tensors import Persistent, Storage
    from align.core.checkpoints import Checkpoint, StoredTensor
    from align.core.parameters import Shape
    from align.core.protocols import FrameworkName


PICKLE = "data.pkl"
CLASSES = {dtype: name for name, dtype in STORAGES.items()}  # the other dtypes lie in untyped bytes
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
        return _is_pickle(first_record_name(head)) or any(_is_pickle(name) for name in zip_records(path))

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Interpret the pickle and check every view against its record."""
        with collector_paused():
            tree, storages, checksums = _contents(path)
            return replace(torch_checkpoint(path, self.name, tree, storages, key), checksums=checksums)

    def read_tensor(self, path: Path) -> StoredTensor:
        """The tensor that `torch.save(tensor, path)` wrote."""
        tree, storages, _ = _contents(path)
        return single_tensor(path, tree, storages)

    def write_tensor(self, stream: BinaryIO, tensor: StoredTensor) -> None:
        """Write what `torch.save(tensor, path)` makes."""
        out = _Pickle(bytearray(pickle.PROTO + b"\2"))
        _add_tensor(out, tensor, "0")
        _write_records(stream, bytes(out.code + pickle.STOP), {"0": tensor})

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:  # noqa: ARG002
        """Name the tensors of a dtype that torch does not have."""
        return [say("torch_file.unknown_dtype", name=t.name, dtype=t.dtype) for t in tensors if t.dtype not in DTYPES]

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:  # noqa: ARG002
        """Write what `torch.save` makes of a state_dict; tied tensors come back as one storage."""
        _write_archive(stream, tensors)


TORCH_ZIP = TorchFormat()


def _contents(path: Path) -> tuple[Any, dict[str, Extent], tuple[Extent, ...]]:
    """The pickled tree, where the storages lie that it refers to, and all records that have a checksum."""
    records = zip_records(path)
    folder = _folder(path, records)
    _refuse_unreadable(path, folder, records)
    tree = read_pickle(path, read_record(records[f"{folder}/{PICKLE}"])).value
    return tree, _zip_storages(folder, records), record_checksums(records)


def _is_pickle(name: str) -> bool:
    return name.endswith(f"/{PICKLE}") and name.count("/") == 1


def _folder(path: Path, records: Mapping[str, Record]) -> str:
    pickles = [name for name in records if _is_pickle(name)]
    if len(pickles) != 1:
        raise NotACheckpointError(path, say("torch_file.other_pickles", count=len(pickles)))
    return pickles[0].removesuffix(f"/{PICKLE}")


def _refuse_unreadable(path: Path, folder: str, records: Mapping[str, Record]) -> None:
    if (size := records[f"{folder}/{PICKLE}"].size) > LONGEST_PICKLE_BYTES:
        raise HostileFileError(path, say("torch_file.long_pickle", size=size))
    if f"{folder}/constants.pkl" in records or any(name.startswith(f"{folder}/code/") for name in records):
        raise NeedsItsCodeError(path, *texts("torch_file.script"))
    if packed := [name for name, record in records.items() if record.compressed]:
        raise HostileFileError(path, say("torch_file.packed_records", count=len(packed), name=packed[0]))
    order = records.get(f"{folder}/byteorder")
    if order is not None and order.size < 16 and read_record(order) != b"little":
        raise UnsupportedCheckpointError(path, *texts("torch_file.big_endian"))


def _zip_storages(folder: str, records: Mapping[str, Record]) -> dict[str, Extent]:
    prefix = f"{folder}/data/"
    return {name.removeprefix(prefix): r.extent for name, r in records.items() if name.startswith(prefix)}


def _write_archive(stream: BinaryIO, tensors: Sequence[StoredTensor]) -> None:
    """Write the tensors as a state_dict that `torch.load(weights_only=True)` reads, also memory-mapped."""
    stored: dict[object, StoredTensor] = {}
    for tensor in tensors:
        stored.setdefault(tensor.identity, tensor)
    keys = {identity: str(number) for number, identity in enumerate(stored)}
    _write_records(stream, _pickle(tensors, keys), {keys[identity]: tensor for identity, tensor in stored.items()})


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


def _pickle(tensors: Iterable[StoredTensor], keys: Mapping[object, str]) -> bytes:
    """An OrderedDict of names to tensors; each refers to a record by its key."""
    out = _Pickle(bytearray(pickle.PROTO + b"\2"))
    out.constant(ORDERED)
    out.code += pickle.EMPTY_TUPLE + pickle.REDUCE + pickle.MARK
    for tensor in tensors:
        out.code += _text(tensor.name)
        _add_tensor(out, tensor, keys[tensor.identity])
    out.code += pickle.SETITEMS + pickle.STOP
    return bytes(out.code)


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


def _number(number: int) -> bytes:
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
BARE_PICKLES = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
TAR_MARK, TAR_AT = b"ustar", 257
COUNT = 8  # format: bytes of the number of elements in front of a storage


@dataclass(frozen=True, slots=True)
class TorchLegacyFormat:
    """Files of torch before 1.6; bare pickles and tar files are recognized and refused."""

    name: str = "torch-legacy"
    summary: str = "torch.save files as written before torch 1.6, read only, without running their pickles"
    requires: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".tar",)  # as in model_best.pth.tar
    framework: FrameworkName | None = "torch"

    def recognizes(self, path: Path, head: bytes) -> bool:  # noqa: ARG002
        """Tell anything that starts as a pickle does, and tar files."""
        return head.startswith(BARE_PICKLES) or _is_tar(head)

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Interpret the pickles and check that every storage lies in the file."""
        with path.open("rb") as stream, collector_paused():
            _refuse_older(path, stream.read(HEAD_BYTES))
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                tree, storages = _read_pickles(path, data)
            return torch_checkpoint(path, self.name, tree, storages, key)

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:  # noqa: ARG002
        """Say that nothing is written in this form."""
        return [say("torch_file.old_read_only")]

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:
        """Refuse, in the words of `problems`."""
        raise NotImplementedError(self.problems(tensors, metadata)[0])


TORCH_LEGACY = TorchLegacyFormat()


def _is_tar(head: bytes) -> bool:
    return head[TAR_AT : TAR_AT + len(TAR_MARK)] == TAR_MARK


def _refuse_older(path: Path, head: bytes) -> None:
    if _is_tar(head):
        raise NeedsItsCodeError(path, *texts("torch_file.tar"))
    if HEAD.match(head) is None:
        raise UnsupportedCheckpointError(path, *texts("torch_file.bare_pickle"))


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
    found: dict[str, Storage] = {}
    for reference in references:
        if isinstance(reference.reference, tuple) and reference.reference[:1] == ("module",):
            continue  # the class of a module, with its source
        try:
            storage = read_storage(path, sentence("entry_note.some_value"), reference.reference)
        except UnsupportedTensorError as fault:
            raise UnsupportedCheckpointError(path, fault.reason, fault.remedy) from fault
        first = found.setdefault(storage.key, storage)
        if storage.nbytes != first.nbytes:
            raise HostileFileError(
                path, say("torch_file.two_sizes", storage=storage.key, first=first.nbytes, second=storage.nbytes)
            )
    return found


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


PLUGINS = (
    TORCH_ZIP,
    TORCH_LEGACY,
)
