"""`torch.save` files, read without torch: `.pth`, `.pt` and `.bin` are one zip with a pickle that is only looked at.

The pickle is interpreted as inert data (`_pickle`) and the state_dict found in it by looking; each tensor is a view of
a record, checked for sign, size and place before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from align.core.checkpoints import Checkpoint, Extent, StoredTensor
from align.core.dtypes import numpy_dtype
from align.core.extents import mapped
from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError
from align.formats._archives import ZIP_HEAD, Record, first_record_name, read_record, zip_records
from align.formats._pickle import (
    TensorView,
    UnsupportedTensorError,
    find_state_dict,
    is_tensor,
    read_others,
    read_pickle,
    read_view,
)
from align.formats._torch_writer import torch_problems, write_torch_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from align.core.dtypes import Array

PICKLE = "data.pkl"
# The first bytes of the form before torch 1.6: a pickled magic number, 0x1950a86a20f9469cfc6c.
LEGACY_HEAD = bytes.fromhex("80028a0a6cfc9c46f9206aa85019")
BARE_PICKLES = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
TAR_MARK, TAR_AT = b"ustar", 257
RESAVE = "load it with torch.load and save model.state_dict() with torch.save of torch 1.6 or newer"
MOST_LISTED = 12


@dataclass(frozen=True, slots=True)
class TorchFormat:
    """The zip files of `torch.save`; older forms are recognized and refused."""

    name: str = "torch"
    summary: str = "torch.save files (.pth .pt .bin), read without torch and without running their pickles"
    requires: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".pth", ".pt", ".bin")
    framework: str | None = "torch"

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Tell a zip with a `data.pkl`, and the forms that are refused: old pickles and tar files."""
        if head.startswith(ZIP_HEAD):
            return _is_pickle(first_record_name(head)) or any(_is_pickle(name) for name in zip_records(path))
        return head.startswith(BARE_PICKLES) or head[TAR_AT : TAR_AT + len(TAR_MARK)] == TAR_MARK

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Interpret the pickle and check every view against its record."""
        with path.open("rb") as stream:
            _refuse_old_forms(path, stream.read(512))
        records = zip_records(path)
        folder = _folder(path, records)
        _refuse_unreadable(path, folder, records)
        tree = read_pickle(path, read_record(records[f"{folder}/{PICKLE}"]))
        state_dict = find_state_dict(path, tree)
        views = _views(path, state_dict.entries)
        tensors = {
            name: _tensor(path, name, view, records.get(f"{folder}/data/{view.key}")) for name, view in views.items()
        }
        return Checkpoint(path, self.name, tensors, {"format": "pt"}, *read_others(tree, state_dict, views))

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:  # noqa: ARG002
        """Name the tensors of a dtype that torch does not have."""
        return torch_problems(tensors)

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:  # noqa: ARG002
        """Write what `torch.save` makes of a state_dict; tied tensors come back as one storage."""
        write_torch_file(stream, tensors)


PLUGIN = TorchFormat()


def _is_pickle(name: str) -> bool:
    return name.endswith(f"/{PICKLE}") and name.count("/") == 1


def _refuse_old_forms(path: Path, head: bytes) -> None:
    if head.startswith(LEGACY_HEAD):
        raise UnsupportedCheckpointError(path, "it is in the form that torch wrote before version 1.6", RESAVE)
    if head[TAR_AT : TAR_AT + len(TAR_MARK)] == TAR_MARK:
        raise UnsupportedCheckpointError(path, "it is a tar file, the oldest form of torch.save", RESAVE)
    if head.startswith(BARE_PICKLES):
        raise UnsupportedCheckpointError(path, "it is a bare pickle, which is not run", RESAVE)


def _folder(path: Path, records: Mapping[str, Record]) -> str:
    pickles = [name for name in records if _is_pickle(name)]
    if len(pickles) != 1:
        raise NotACheckpointError(path, f"it holds {len(pickles)} records data.pkl, expected one")
    return pickles[0].removesuffix(f"/{PICKLE}")


def _refuse_unreadable(path: Path, folder: str, records: Mapping[str, Record]) -> None:
    if f"{folder}/constants.pkl" in records or any(name.startswith(f"{folder}/code/") for name in records):
        hint = "load it with torch.jit.load and save its state_dict() with torch.save"
        raise UnsupportedCheckpointError(path, "it is a TorchScript program", hint)
    if packed := [name for name, record in records.items() if record.compressed]:
        raise HostileFileError(
            path, f"{len(packed)} records are compressed ({packed[0]!r}); torch.save never does that"
        )
    order = records.get(f"{folder}/byteorder")
    if order is not None and order.size < 16 and read_record(order) != b"little":
        raise UnsupportedCheckpointError(path, "it was saved on a big-endian machine", RESAVE)


def _views(path: Path, entries: Mapping[Any, Any]) -> dict[str, TensorView]:
    """The tensors among the entries; raises UnsupportedCheckpointError naming all that are no plain ones."""
    views: dict[str, TensorView] = {}
    faults: list[UnsupportedTensorError] = []
    for name, value in entries.items():
        if isinstance(name, str) and is_tensor(value):
            try:
                views[name] = read_view(path, name, value)
            except UnsupportedTensorError as fault:
                faults.append(fault)
    if faults:
        listed = "; ".join(fault.reason for fault in faults[:MOST_LISTED])
        more = f"; and {len(faults) - MOST_LISTED} more" if len(faults) > MOST_LISTED else ""
        raise UnsupportedCheckpointError(path, listed + more, faults[0].remedy)
    return views


def _tensor(path: Path, name: str, view: TensorView, record: Record | None) -> StoredTensor:
    if record is None:
        raise NotACheckpointError(path, f"the bytes of tensor {name!r} are missing: there is no record data/{view.key}")
    if record.size < view.storage_bytes:
        reason = f"the record of tensor {name!r} has {record.size} bytes, its storage needs {view.storage_bytes}"
        raise NotACheckpointError(path, reason)
    itemsize = numpy_dtype(view.dtype).itemsize
    # The same view of the same storage is one tensor; other views of it (flattened LSTM weights) are not tied.
    storage = f"{view.key}+{view.offset}:{view.shape}:{view.stride}"
    if view.contiguous:
        extent = Extent(path, record.extent.offset + view.offset * itemsize, view.nbytes)
        return StoredTensor(name, view.shape, view.dtype, mapped(extent, view.shape, view.dtype), extent, storage)
    whole = Extent(path, record.extent.offset, view.needs)
    return StoredTensor(name, view.shape, view.dtype, lambda: _strided(view, whole), None, storage)


def _strided(view: TensorView, whole: Extent) -> Array:
    """A view that is not contiguous, over its storage mapped into memory."""
    itemsize = numpy_dtype(view.dtype).itemsize
    base = mapped(whole, (whole.nbytes // itemsize,), view.dtype)()
    strides = tuple(step * itemsize for step in view.stride)
    return np.ndarray(view.shape, base.dtype, base.data, view.offset * itemsize, strides)
