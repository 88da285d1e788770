from __future__ import annotations

import os

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.errors import NotACheckpointError, UnsupportedCheckpointError

REFUSED = (NotACheckpointError, UnsupportedCheckpointError)
WRITTEN = ("ckpt", "npz", "safetensors")


def whole_file(kind, tmp_path, build):
    path = tmp_path / f"whole.{kind}"
    if kind == "torch":
        pickle = build.table(a=build.tensor((2, 2), (2, 1)), b=build.tensor((), (), 4, offset=3))
        return build.torch(path, pickle, {"byteorder": b"little", "data/0": bytes(range(16))})
    tensors = [stored("a", np.arange(6, dtype=np.float32).reshape(2, 3)), stored("b", np.array(7, np.int64))]
    with path.open("wb") as stream:
        checkpoint_formats()[kind].write(stream, tensors, {})
    return path


def write_at(path, place, value):
    with path.open("r+b", buffering=0) as stream:
        stream.seek(place)
        stream.write(bytes([value]))


def stored(name, value):
    return StoredTensor(name, value.shape, value.dtype.name, lambda: value)


@pytest.mark.parametrize("kind", [*WRITTEN, "torch"])
def test_a_file_cut_at_any_byte_is_refused(kind, tmp_path, build):
    """A .ckpt cut between two entries is whole as far as its format can tell: MindSpore has no count of entries."""
    data = whole_file(kind, tmp_path, build).read_bytes()
    path = tmp_path / "cut"
    readable = []
    path.write_bytes(data)
    for length in reversed(range(len(data))):
        os.truncate(path, length)
        try:
            readable.append(list(open_checkpoint(path).tensors))
        except REFUSED:
            continue
    assert readable == ([["a"]] if kind == "ckpt" else [])


@pytest.mark.parametrize("kind", [*WRITTEN, "torch"])
def test_a_file_with_any_byte_changed_is_refused_or_stays_inside_itself(kind, tmp_path, build):
    data = whole_file(kind, tmp_path, build).read_bytes()
    path = tmp_path / "changed"
    path.write_bytes(data)
    for place in range(len(data)):
        for change in (0xFF, 0x80 if place % 2 else 0x01):  # all bits, and in turn the highest and the lowest
            write_at(path, place, data[place] ^ change)
            try:
                checkpoint = open_checkpoint(path)
                for tensor in checkpoint.tensors.values():
                    assert tensor.extent is None or tensor.extent.offset + tensor.extent.nbytes <= len(data)
                    assert tensor.load().nbytes == tensor.nbytes
            except REFUSED:
                continue
        write_at(path, place, data[place])


@pytest.mark.parametrize("kind", [*WRITTEN, "torch"])
def test_a_file_that_shrinks_after_its_header_was_read_is_noticed(kind, tmp_path, build):
    from align.checkpoints.extents import byte_blocks

    path = whole_file(kind, tmp_path, build)
    tensors = open_checkpoint(path).tensors
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(NotACheckpointError, match="ends at byte"):
        list(byte_blocks(tensors["a"]))
