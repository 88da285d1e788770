"""`torch.save` files, read without torch: `.pth`, `.pt` and `.bin` are one zip with a pickle that is only looked at.

The pickle is interpreted as inert data (`format_parts.pickle`) and the state_dict is found in it by looking
(`torch_entries`); each tensor is a view of a record, checked for sign, size and place before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from align.checkpoints.format_parts.pickle import LONGEST_PICKLE, read_pickle
from align.checkpoints.format_parts.torch_entries import RESAVE_HINT, collector_paused, torch_checkpoint
from align.checkpoints.format_parts.torch_writer import torch_problems, write_torch_file
from align.checkpoints.format_parts.zip_reader import ZIP_HEAD, Record, first_record_name, read_record, zip_records
from align.errors import HostileFileError, NeedsItsCodeError, NotACheckpointError, UnsupportedCheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from align.core.checkpoints import Checkpoint, Extent, StoredTensor
    from align.core.protocols import FrameworkName

PICKLE = "data.pkl"


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
            records = zip_records(path)
            folder = _folder(path, records)
            _refuse_unreadable(path, folder, records)
            tree = read_pickle(path, read_record(records[f"{folder}/{PICKLE}"])).value
            return torch_checkpoint(path, self.name, tree, _storages(folder, records), key)

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:  # noqa: ARG002
        """Name the tensors of a dtype that torch does not have."""
        return torch_problems(tensors)

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:  # noqa: ARG002
        """Write what `torch.save` makes of a state_dict; tied tensors come back as one storage."""
        write_torch_file(stream, tensors)


PLUGIN = TorchFormat()


def _is_pickle(name: str) -> bool:
    return name.endswith(f"/{PICKLE}") and name.count("/") == 1


def _folder(path: Path, records: Mapping[str, Record]) -> str:
    pickles = [name for name in records if _is_pickle(name)]
    if len(pickles) != 1:
        raise NotACheckpointError(path, f"it holds {len(pickles)} records data.pkl, expected one")
    return pickles[0].removesuffix(f"/{PICKLE}")


def _refuse_unreadable(path: Path, folder: str, records: Mapping[str, Record]) -> None:
    if (size := records[f"{folder}/{PICKLE}"].size) > LONGEST_PICKLE:
        raise HostileFileError(path, f"its pickle is {size} bytes long, more than any checkpoint needs")
    if f"{folder}/constants.pkl" in records or any(name.startswith(f"{folder}/code/") for name in records):
        hint = "load it with torch.jit.load and save its state_dict() with torch.save"
        raise NeedsItsCodeError(path, "it is a TorchScript program", hint)
    if packed := [name for name, record in records.items() if record.compressed]:
        raise HostileFileError(
            path, f"{len(packed)} records are compressed ({packed[0]!r}); torch.save never does that"
        )
    order = records.get(f"{folder}/byteorder")
    if order is not None and order.size < 16 and read_record(order) != b"little":
        raise UnsupportedCheckpointError(path, "it was saved on a big-endian machine", RESAVE_HINT)


def _storages(folder: str, records: Mapping[str, Record]) -> dict[str, Extent]:
    prefix = f"{folder}/data/"
    return {name.removeprefix(prefix): r.extent for name, r in records.items() if name.startswith(prefix)}
