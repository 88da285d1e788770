"""Blocks of a tensor's bytes: whole, in order, and only as large as asked for."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from align.checkpoints.extents import byte_blocks, mapped, read_whole
from align.core.parameters import Checksum, Extent, StoredTensor
from align.errors import NotACheckpointError


def stored(value: np.ndarray) -> StoredTensor:
    return StoredTensor("w", value.shape, value.dtype.name, lambda: value)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(60, dtype=np.float32).reshape(3, 4, 5).transpose(2, 0, 1),
        np.asfortranarray(np.arange(77, dtype=np.int8).reshape(7, 11)),
        np.broadcast_to(np.arange(5, dtype=np.int64), (6, 5)),
        np.arange(40, dtype=np.complex128).reshape(8, 5)[::2, ::-1],
        np.asfortranarray(np.arange(35, dtype=np.float16).reshape(5, 7))[:0],
    ],
)
@pytest.mark.parametrize("block", [16, 48, 1 << 20])
def test_blocks_of_any_strides_are_full_but_the_last(value, block) -> None:
    blocks = [bytes(part) for part in byte_blocks(stored(value), block)]
    assert b"".join(blocks) == value.tobytes()
    assert {len(part) for part in blocks[:-1]} <= {block}


def test_blocks_of_a_large_transposed_array_are_full() -> None:
    value = np.asfortranarray(np.arange(1_250_100 * 3, dtype=np.int16).reshape(-1, 3))
    sizes = [len(part) for part in byte_blocks(stored(value))]
    assert set(sizes[:-1]) == {1 << 20}
    assert sum(sizes) == value.nbytes


def test_a_source_that_went_away_or_shrank_is_the_sources_fault(tmp_path) -> None:
    path = tmp_path / "source.bin"
    extent = Extent(path, 0, 100)
    tensor = StoredTensor("w", (100,), "uint8", mapped(extent, (100,), "uint8"), extent)
    with pytest.raises(NotACheckpointError, match="No such file"):
        list(byte_blocks(tensor))
    with pytest.raises(NotACheckpointError, match="No such file") as raised:
        tensor.load()
    assert raised.value.message.count("source.bin") == 1
    path.write_bytes(bytes(10))
    with pytest.raises(NotACheckpointError, match="ends at byte 10, expected 100"):
        list(byte_blocks(tensor))
    with pytest.raises(NotACheckpointError, match="cannot be mapped"):
        tensor.load()


def in_file(extent: Extent) -> StoredTensor:
    shape = (extent.nbytes,)
    return StoredTensor("w", shape, "uint8", mapped(extent, shape, "uint8"), extent)


def test_many_tensors_are_read_whole_whatever_file_they_lie_in(tmp_path) -> None:
    one, other = tmp_path / "one.bin", tmp_path / "other.bin"
    one.write_bytes(b"abcdef")
    other.write_bytes(b"uvwxyz")
    places = [Extent(one, 0, 2), Extent(other, 3, 3), Extent(one, 2, 4), Extent(one, 6, 0)]
    tensors = [*map(in_file, places), stored(np.arange(6, dtype=np.uint8)[::2])]
    assert list(read_whole(tensors)) == [b"ab", b"xyz", b"cdef", b"", b"\0\2\4"]


def test_a_tensor_read_whole_is_held_to_its_checksum_and_its_length(tmp_path) -> None:
    path = tmp_path / "source.bin"
    path.write_bytes(b"headvalue")
    sound = Checksum("a", 0, 9, zlib.crc32(b"headvalue"))
    assert list(read_whole([in_file(Extent(path, 4, 5, sound))])) == [b"value"]
    assert sound.holds
    with pytest.raises(NotACheckpointError, match="the crc differs"):
        list(read_whole([in_file(Extent(path, 4, 5, Checksum("a", 0, 9, 7)))]))
    with pytest.raises(NotACheckpointError, match="ends at byte 9, expected 12"):
        list(read_whole([in_file(Extent(path, 4, 8))]))
