"""What torch wrote before version 1.6, and still does on request: pickles in a row, then the storages' bytes.

The pickles are a magic number, a protocol version, facts about the machine, the object, and the keys of the storages
in the order in which their bytes follow: a count of elements (int64), then the elements. How large an element is, only
the first reference to the storage in the object tells. The file is mapped, and only the pickles and the counts are
touched. Still older forms are recognized here and refused.
"""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from align.checkpoints.format_parts.pickle.interpreter import mapping_of, read_pickle
from align.checkpoints.format_parts.pickle.torch_tensors import UnsupportedTensorError, read_storage
from align.checkpoints.format_parts.torch_entries import torch_checkpoint
from align.checkpoints.thresholds import HEAD_BYTES
from align.core.checkpoints import Extent
from align.core.progress import collector_paused
from align.errors import HostileFileError, NeedsItsCodeError, NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from align.checkpoints.format_parts.pickle.interpreter import Persistent
    from align.checkpoints.format_parts.pickle.torch_tensors import Storage
    from align.core.checkpoints import Checkpoint, StoredTensor
    from align.core.protocols import FrameworkName

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


PLUGIN = TorchLegacyFormat()


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
    storages = _storages(path, tree.references)
    return tree.value, _extents(path, data, keys.end, _listed(path, keys.value, storages))


def _storages(path: Path, references: Sequence[Persistent]) -> dict[str, Storage]:
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
