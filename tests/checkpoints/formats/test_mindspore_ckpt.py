from __future__ import annotations

import io
import zlib

import ml_dtypes
import numpy as np
import pytest

from align.checkpoints.formats import mindspore_ckpt
from align.checkpoints.open_checkpoint import open_checkpoint
from align.checkpoints.protobuf import number_bytes
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.errors import NotACheckpointError, UnsupportedCheckpointError

CKPT = checkpoint_formats()["ckpt"]
NUMBERS = np.arange(6).reshape(2, 3)
KINDS = [
    "float64",
    "float32",
    "float16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "bool",
]


def stored(name, value):
    return StoredTensor(name, value.shape, value.dtype.name, lambda: value)


def write(path, *tensors):
    with path.open("wb") as stream:
        CKPT.write(stream, tensors, {})
    return path


@pytest.mark.frameworks
@pytest.mark.parametrize("crc", [False, True])
def test_the_file_is_byte_for_byte_what_mindspore_writes(tmp_path, crc) -> None:
    import mindspore

    values = {kind: NUMBERS.astype(kind) for kind in KINDS}
    values |= {"0-d": np.array(3.5, np.float32), "层.权重": np.ones((1, 200), np.float32)}
    parameters = [{"name": name, "data": mindspore.Tensor(value)} for name, value in values.items()]
    parameters.append({"name": "bf16", "data": mindspore.Tensor(NUMBERS, mindspore.bfloat16)})
    mindspore.save_checkpoint(parameters, str(tmp_path / "theirs.ckpt"), crc_check=crc)
    tensors = [stored(name, value) for name, value in values.items()]
    tensors.append(stored("bf16", NUMBERS.astype(ml_dtypes.bfloat16)))
    ours = write(tmp_path / "ours.ckpt", *tensors).read_bytes()
    theirs = (tmp_path / "theirs.ckpt").read_bytes()
    assert theirs[: len(ours)] == ours
    assert len(theirs) - len(ours) == (17 if crc else 0)
    assert list(open_checkpoint(tmp_path / "theirs.ckpt").tensors) == [tensor.name for tensor in tensors]


@pytest.mark.frameworks
def test_mindspore_loads_every_dtype_with_its_bits(tmp_path) -> None:
    import mindspore

    tensors = [stored(kind, NUMBERS.astype(kind)) for kind in KINDS]
    tensors += [stored("bfloat16", NUMBERS.astype(ml_dtypes.bfloat16)), stored("0-d", np.array(7, np.int64))]
    loaded = mindspore.load_checkpoint(str(write(tmp_path / "ours.ckpt", *tensors)))
    assert list(loaded) == [tensor.name for tensor in tensors]
    for tensor in tensors:
        assert tuple(loaded[tensor.name].shape) == tensor.shape
        assert loaded[tensor.name].asnumpy().tobytes() == tensor.load().tobytes()


def test_a_large_tensor_is_cut_into_slices_and_joined_again(tmp_path, monkeypatch) -> None:
    """MindSpore's slice of 512 MiB is made small here; `slow` tests use the real one."""
    monkeypatch.setattr(mindspore_ckpt, "SLICE", 2 << 20)
    value = np.arange(5 << 18, dtype=np.float32)
    path = write(tmp_path / "sliced.ckpt", stored("big", value), stored("small", value[:3]))
    found = open_checkpoint(path).tensors
    assert len(found["big"].pieces) == 3
    assert found["big"].load().tobytes() == value.tobytes()
    assert found["small"].load().tolist() == [0, 1, 2]
    again = write(tmp_path / "again.ckpt", *found.values())
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.frameworks
@pytest.mark.slow
def test_a_real_slice_boundary_is_byte_for_byte_mindspores(tmp_path) -> None:
    import mindspore

    value = np.zeros((129, 1 << 20), np.float32)
    value[-1, -1] = 1
    mindspore.save_checkpoint([{"name": "big", "data": mindspore.Tensor(value)}], str(tmp_path / "theirs.ckpt"))
    ours = write(tmp_path / "ours.ckpt", stored("big", value))
    assert ours.read_bytes() == (tmp_path / "theirs.ckpt").read_bytes()


def entry(name: bytes, dims: bytes, content: bytes, kind: bytes = b"Float32") -> bytes:
    inner = dims + bytes([0x12, len(kind)]) + kind + bytes([0x1A, len(content)]) + content
    body = bytes([0x0A, len(name)]) + name + bytes([0x12, len(inner)]) + inner
    return bytes([0x0A, len(body)]) + body


def test_a_first_message_as_long_as_a_brace_is_no_index(tmp_path) -> None:
    value = np.full(103, 0x20, np.uint8)  # the file begins with a line feed and "{", as an index of shards may
    path = write(tmp_path / "brace.ckpt", stored("quote", value), stored("next", value))
    assert path.read_bytes()[:2] == b"\n{"
    assert open_checkpoint(path).tensors["quote"].load().tolist() == value.tolist()


def test_older_spellings_are_understood(tmp_path) -> None:
    """Packed dims, a 0-d tensor as dims [0], a later entry that replaces an earlier one, text."""
    one, two = np.float32(1).tobytes(), np.arange(2, dtype=np.float32).tobytes()
    path = tmp_path / "old.ckpt"
    path.write_bytes(
        entry(b"w", b"\x08\x02", bytes(8))
        + entry(b"packed", b"\x0a\x02\x02\x01", two)
        + entry(b"scalar", b"\x08\x00", one)
        + entry(b"w", b"\x08\x02", two)
        + entry(b"note", b"\x08\x00", "ja".encode("utf-32-le"), b"str")
    )
    checkpoint = open_checkpoint(path)
    assert {name: tensor.shape for name, tensor in checkpoint.tensors.items()} == {
        "packed": (2, 1),
        "scalar": (),
        "w": (2,),
    }
    assert checkpoint.tensors["w"].load().tolist() == [0, 1]
    assert checkpoint.other == {"note": "text"}


def test_slices_may_be_of_any_size(tmp_path) -> None:
    """The asynchronous writer cuts along the first axis."""
    value = np.arange(6, dtype=np.float32).reshape(3, 2)
    dims = b"\x08\x03\x08\x02"
    path = tmp_path / "rows.ckpt"
    path.write_bytes(entry(b"w", dims, value[:1].tobytes()) + entry(b"w", dims, value[1:].tobytes()))
    assert open_checkpoint(path).tensors["w"].load().tolist() == value.tolist()


def test_slices_with_another_entry_between_them_are_no_slices(tmp_path) -> None:
    path = tmp_path / "odd.ckpt"
    half = entry(b"w", b"\x08\x02", bytes(4))
    path.write_bytes(half + entry(b"v", b"\x08\x01", bytes(4)) + half)
    with pytest.raises(NotACheckpointError, match="'w' has 4 bytes"):
        open_checkpoint(path)


@pytest.mark.frameworks
def test_the_crc_that_mindspore_writes_is_told_and_checked(tmp_path) -> None:
    import mindspore

    rows = [{"name": "w", "data": mindspore.Tensor(NUMBERS, mindspore.float32)}]
    for name, crc in (("with", True), ("without", False)):
        mindspore.save_checkpoint(rows, str(tmp_path / f"{name}.ckpt"), crc_check=crc)
    without = open_checkpoint(tmp_path / "without.ckpt")
    assert (without.check, without.metadata) == (None, {"format": "ms"})
    checkpoint = open_checkpoint(tmp_path / "with.ckpt")
    checkpoint.check()
    assert checkpoint.metadata["crc"] == f"{zlib.crc32((tmp_path / 'without.ckpt').read_bytes()):#010x}"


def test_opening_reads_no_values_even_where_there_is_a_crc(tmp_path, bytes_read, guard) -> None:
    """Eight sparse GiB."""
    size = 8 << 30
    tensor = b"\x08" + number_bytes(size // 4) + b"\x12\x07Float32\x1a" + number_bytes(size)
    body = b"\x0a\x01w\x12" + number_bytes(len(tensor) + size) + tensor
    path = tmp_path / "large.ckpt"
    with path.open("wb") as stream:
        stream.write(b"\x0a" + number_bytes(len(body) + size) + body)
        stream.seek(size, io.SEEK_CUR)
        stream.write(b"crc_num" + bytes(10))
    before = bytes_read()
    with guard(2):  # what is mapped does not count as read, but a crc of it takes longer
        checkpoint = open_checkpoint(path)
    assert bytes_read() - before < 1 << 20
    assert checkpoint.tensors["w"].nbytes == size
    assert checkpoint.metadata["crc"] == "0x00000000"


@pytest.mark.frameworks
@pytest.mark.parametrize(("kind", "name"), [("qint4x2", "Int4"), ("hifloat8", "HiFloat8")])
def test_types_that_numpy_lacks_are_named(tmp_path, kind, name) -> None:
    import mindspore

    odd = mindspore.Tensor(np.ones((2, 2), np.int8), getattr(mindspore.common.dtype, kind))
    rows = [{"name": "odd", "data": odd}, {"name": "w", "data": mindspore.Tensor(NUMBERS)}]
    mindspore.save_checkpoint(rows, str(tmp_path / "m.ckpt"))
    checkpoint = open_checkpoint(tmp_path / "m.ckpt")
    assert list(checkpoint.tensors) == ["w"]
    assert checkpoint.other == {"odd": f"{name} tensor"}
    assert checkpoint.other_tensors == {"odd": 1}


def test_types_that_nobody_knows_are_all_named(tmp_path) -> None:
    path = tmp_path / "odd.ckpt"
    path.write_bytes(entry(b"v", b"", bytes(4), b"Float31") + entry(b"w", b"", bytes(4), b"Float33"))
    with pytest.raises(UnsupportedCheckpointError, match="'v' has the type 'Float31', 'w' has the type 'Float33'"):
        open_checkpoint(path)


@pytest.mark.frameworks
@pytest.mark.parametrize("kind", ["complex64", "complex128", "float8_e4m3fn", "float8_e5m2"])
def test_types_that_mindspore_only_saves_are_read(tmp_path, kind) -> None:
    import mindspore

    value = mindspore.Tensor(NUMBERS.astype(np.int8), getattr(mindspore.common.dtype, kind))
    mindspore.save_checkpoint([{"name": "w", "data": value}], str(tmp_path / "m.ckpt"))
    tensor = open_checkpoint(tmp_path / "m.ckpt").tensors["w"]
    assert tensor.dtype == kind
    assert np.array_equal(tensor.load().astype(np.complex64), NUMBERS)


def test_slices_of_different_shape_are_refused(tmp_path) -> None:
    path = tmp_path / "odd.ckpt"
    path.write_bytes(entry(b"w", b"\x08\x02", bytes(4)) + entry(b"w", b"\x08\x03", bytes(4)))
    with pytest.raises(NotACheckpointError, match="slices of 'w'"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    "value", [np.ones(2, np.complex64), np.ones(2, ml_dtypes.float8_e5m2), np.ones((0, 3)), np.ones(0)]
)
def test_what_mindspore_could_not_load_again_is_refused_by_name(value) -> None:
    (problem,) = CKPT.problems([stored("odd", value), stored("fine", np.ones(2))], {})
    assert problem.startswith("odd: ")


def test_nothing_is_written_for_nothing() -> None:
    stream = io.BytesIO()
    CKPT.write(stream, [], {})
    assert stream.getvalue() == b""


@pytest.mark.parametrize("sizes", [[1] * 24, [5, 19], [24], [0, 3, 0, 21], [8, 8, 8], [16, 8]])
def test_slices_end_where_they_must_whatever_the_blocks(tmp_path, monkeypatch, sizes) -> None:
    monkeypatch.setattr(mindspore_ckpt, "SLICE", 8)
    value = NUMBERS.astype(np.float32)
    whole = write(tmp_path / "whole.ckpt", stored("w", value), stored("v", value)).read_bytes()

    def blocks(_block):
        data, at = memoryview(value.tobytes()), 0
        for size in sizes:
            yield data[at : at + size]
            at += size

    odd = [StoredTensor(name, value.shape, "float32", lambda: value, blocks=blocks) for name in "wv"]
    path = write(tmp_path / "odd.ckpt", *odd)
    assert path.read_bytes() == whole
    found = open_checkpoint(path).tensors
    assert [len(tensor.pieces) for tensor in found.values()] == [3, 3]
    assert found["v"].load().tolist() == value.tolist()
