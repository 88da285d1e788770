from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from align.checkpoints.extents import byte_blocks
from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.errors import NotACheckpointError

SAFETENSORS, NPZ = checkpoint_formats()["safetensors"], checkpoint_formats()["npz"]
VALUES = {
    "b.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a.weight": np.ones(3, np.float32),
    "half": np.ones((2, 2), np.float16),
    "count": np.array(7, np.int64),
    "empty": np.ones((0, 3), np.float32),
    "flags": np.array([True, False, True]),
}


def stored(name, value):
    return StoredTensor(name, value.shape, value.dtype.name, lambda: value)


def write(plugin, path, values, metadata=None):
    with path.open("wb") as stream:
        plugin.write(stream, [stored(name, value) for name, value in values.items()], metadata or {})
    return path


def test_the_reference_library_reads_what_is_written(tmp_path) -> None:
    from safetensors.numpy import load_file

    found = load_file(write(SAFETENSORS, tmp_path / "m.safetensors", VALUES, {"format": "pt"}))
    assert {name: value.tobytes() for name, value in found.items()} == {n: v.tobytes() for n, v in VALUES.items()}
    assert {name: value.shape for name, value in found.items()} == {n: v.shape for n, v in VALUES.items()}


def test_what_the_reference_library_writes_is_read(tmp_path) -> None:
    from safetensors.numpy import save_file

    save_file(VALUES, tmp_path / "m.safetensors", {"made": "here"})
    checkpoint = open_checkpoint(tmp_path / "m.safetensors")
    assert checkpoint.metadata == {"made": "here"}
    assert {n: t.load().tobytes() for n, t in checkpoint.tensors.items()} == {n: v.tobytes() for n, v in VALUES.items()}


@pytest.mark.frameworks
def test_torch_and_the_reader_agree_on_bfloat16(tmp_path) -> None:
    import torch
    from safetensors.torch import load_file

    value = np.arange(6).astype(ml_dtypes.bfloat16)
    found = load_file(write(SAFETENSORS, tmp_path / "m.safetensors", {"w": value}, {"format": "pt"}))["w"]
    assert found.dtype == torch.bfloat16
    assert found.float().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.frameworks
def test_the_mindspore_flavour_is_byte_for_byte_mindspores(tmp_path) -> None:
    import mindspore

    values = {name: value for name, value in VALUES.items() if value.size}
    parameters = [{"name": name, "data": mindspore.Tensor(value)} for name, value in values.items()]
    mindspore.save_checkpoint(parameters, str(tmp_path / "theirs"), format="safetensors")
    ours = write(SAFETENSORS, tmp_path / "ours.safetensors", values, {"format": "ms"})
    assert ours.read_bytes() == (tmp_path / "theirs.safetensors").read_bytes()
    loaded = mindspore.load_checkpoint(str(ours), format="safetensors")
    assert {n: p.asnumpy().tobytes() for n, p in loaded.items()} == {n: v.tobytes() for n, v in values.items()}


def test_what_the_flavours_cannot_hold_is_named() -> None:
    tensors = [stored("c", np.ones(2, np.complex64)), stored("z", np.ones(2, np.complex128))]
    assert [line[:2] for line in SAFETENSORS.problems(tensors, {"format": "pt"})] == ["z:"]
    assert sorted(line[:2] for line in SAFETENSORS.problems(tensors, {"format": "ms"})) == ["c:", "z:"]


def test_numpy_reads_what_is_written(tmp_path) -> None:
    with np.load(write(NPZ, tmp_path / "m.npz", VALUES), allow_pickle=False) as found:
        assert {n: found[n].tobytes() for n in found.files} == {n: v.tobytes() for n, v in VALUES.items()}
        assert {n: found[n].shape for n in found.files} == {n: v.shape for n, v in VALUES.items()}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read(tmp_path, save) -> None:
    values = {**VALUES, "columns": np.asfortranarray(VALUES["b.weight"]), "big": np.arange(3, dtype=">f8")}
    save(tmp_path / "m.npz", note=np.array("text"), **values)
    checkpoint = open_checkpoint(tmp_path / "m.npz")
    assert checkpoint.other == {"note": "text array of shape ()"}
    assert set(checkpoint.tensors) == set(values)
    for name, tensor in checkpoint.tensors.items():
        np.testing.assert_array_equal(tensor.load(), values[name])
        assert tensor.load().dtype.newbyteorder("<") == tensor.load().dtype


def test_a_damaged_compressed_array_is_noticed_when_it_is_read(tmp_path) -> None:
    np.savez_compressed(tmp_path / "m.npz", w=np.arange(100_000) % 977)
    tensor = open_checkpoint(tmp_path / "m.npz").tensors["w"]
    data = bytearray((tmp_path / "m.npz").read_bytes())
    data[len(data) // 2 : len(data) // 2 + 2000] = bytes(2000)
    (tmp_path / "m.npz").write_bytes(data)
    with pytest.raises(NotACheckpointError):
        tensor.load()


def test_what_numpy_cannot_hold_is_named() -> None:
    names = ["../up", "x" * (1 << 16), "fine"]
    tensors = [stored("half", np.ones(2, ml_dtypes.bfloat16)), *(stored(name, np.ones(2)) for name in names)]
    assert sorted(line.split(":")[0] for line in NPZ.problems(tensors, {})) == ["../up", "half", "x" * (1 << 16)]


def test_a_compressed_array_is_unpacked_in_blocks(tmp_path):
    """512 MB of zeros in a file of 0.5 MB: moving them must not take 512 MB of memory."""
    zeros = np.zeros(64 << 20)
    np.savez_compressed(tmp_path / "m.npz", w=zeros)
    del zeros
    tracemalloc.start()
    tensor = open_checkpoint(tmp_path / "m.npz").tensors["w"]
    sizes = [len(block) for block in byte_blocks(tensor, 1 << 20)]
    assert sizes == [1 << 20] * 512
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_blocks_of_a_compressed_array_hold_its_bytes(tmp_path):
    value = np.random.default_rng(0).standard_normal((300, 700))
    np.savez_compressed(tmp_path / "m.npz", w=value)
    tensor = open_checkpoint(tmp_path / "m.npz").tensors["w"]
    for block in (64, 4096, 1 << 20, 1 << 22):
        blocks = [bytes(part) for part in byte_blocks(tensor, block)]
        assert b"".join(blocks) == value.tobytes()
        assert {len(part) for part in blocks[:-1]} <= {block}


def test_a_column_major_array_is_mapped_not_read(tmp_path):
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "m.npz", w=np.asfortranarray(value))
    tensor = open_checkpoint(tmp_path / "m.npz").tensors["w"]
    assert tensor.load().tolist() == value.tolist()
    assert not tensor.load().flags.writeable
    assert b"".join(map(bytes, byte_blocks(tensor))) == value.tobytes()


@pytest.mark.parametrize("descr", ["<f4", ">f4", "|u1", ">c16"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (0, 3), (3,), (2, 3, 5)])
def test_compressed_arrays_of_every_layout_are_read_as_numpy_reads_them(tmp_path, descr, order, shape):
    value = np.arange(np.prod(shape)).reshape(shape).astype(descr, order=order)
    np.savez_compressed(tmp_path / "m.npz", w=value)
    tensor = open_checkpoint(tmp_path / "m.npz").tensors["w"]
    np.testing.assert_array_equal(tensor.load(), value)
    assert tensor.load().shape == shape
    assert tensor.load().dtype == value.dtype.newbyteorder("<")
    assert b"".join(map(bytes, byte_blocks(tensor))) == np.ascontiguousarray(tensor.load()).tobytes()
