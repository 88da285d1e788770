"""Written torch files: the layout that torch's own loader relies on, ties, and sizes beyond 4 GB."""

from __future__ import annotations

import io
import os
import pickletools
import zipfile
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor

if TYPE_CHECKING:
    from pathlib import Path

    from align.core.parameters import Array

TORCH = checkpoint_formats()["torch"]
MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def stored(name: str, value: Any, storage: str | None = None) -> StoredTensor:
    return StoredTensor(name, value.shape, value.dtype.name, lambda: value, storage=storage)


def written(*tensors: StoredTensor) -> bytes:
    stream = io.BytesIO()
    TORCH.write(stream, tensors, {})
    return stream.getvalue()


def save(path: Path, *tensors: StoredTensor) -> Path:
    path.write_bytes(written(*tensors))
    return path


SOME = [
    stored("layer.weight", MATRIX),
    stored("empty", np.ones((0, 3), np.float32)),
    stored("half", np.ones(3, ml_dtypes.bfloat16)),
    stored("eight", np.ones(5, ml_dtypes.float8_e5m2)),
    stored("count", np.array(7, np.int64)),
    stored("unsigned", np.arange(100, dtype=np.uint16)),
]


@pytest.mark.frameworks
def test_the_records_are_those_of_torch_in_its_order_with_its_flags() -> None:
    import torch

    theirs = io.BytesIO()
    torch.save({"a": torch.from_numpy(MATRIX.copy()), "b": torch.zeros(0)}, theirs)
    ours = written(stored("a", MATRIX), stored("b", np.zeros(0, np.float32)))
    with zipfile.ZipFile(theirs) as expected, zipfile.ZipFile(io.BytesIO(ours)) as found:
        assert [(i.filename, i.flag_bits, i.compress_type, i.date_time, i.extra) for i in found.infolist()] == [
            (i.filename, i.flag_bits, i.compress_type, i.date_time, i.extra) for i in expected.infolist()
        ]
        for name in expected.namelist():
            if not name.endswith(("data.pkl", "serialization_id")):
                assert found.read(name) == expected.read(name)
        assert len(found.read("archive/.data/serialization_id")) == 40


@pytest.mark.frameworks
@pytest.mark.parametrize("mapped_into_memory", [False, True])
def test_torch_finds_every_storage_by_calculation_too(tmp_path, monkeypatch, mapped_into_memory) -> None:
    """Torch compares what it calculates with what it reads, if it is told to."""
    import torch
    from torch.utils.serialization import config

    path = save(tmp_path / "m.pth", *SOME)
    monkeypatch.setenv("TORCH_SERIALIZATION_DEBUG", "1")
    with config.patch({"load.calculate_storage_offsets": True}):
        found = torch.load(path, weights_only=True, mmap=mapped_into_memory)
    assert list(found) == [tensor.name for tensor in SOME]
    assert found["unsigned"].tolist() == list(range(100))


@pytest.mark.frameworks
def test_tied_tensors_are_written_once_and_come_back_as_one_storage(tmp_path) -> None:
    import torch

    large = np.ones(10_000, np.float32)
    path = save(tmp_path / "m.pth", stored("in", large, "s"), stored("other", large, "t"), stored("out", large, "s"))
    assert path.stat().st_size < 3 * large.nbytes
    for mmap in (False, True):
        found = torch.load(path, weights_only=True, mmap=mmap)
        assert list(found) == ["in", "other", "out"]
        assert found["in"].data_ptr() == found["out"].data_ptr() != found["other"].data_ptr()
    again = open_checkpoint(path).tensors
    assert again["in"].storage == again["out"].storage != again["other"].storage


def test_one_storage_in_two_shapes_or_dtypes_is_written_twice(tmp_path) -> None:
    tensors = [stored("a", MATRIX, "s"), stored("b", MATRIX.T, "s"), stored("c", MATRIX.astype(np.float16), "s")]
    found = open_checkpoint(save(tmp_path / "m.pth", *tensors)).tensors
    assert {name: tensor.load().tolist() for name, tensor in found.items()} == {
        "a": MATRIX.tolist(), "b": MATRIX.T.tolist(), "c": MATRIX.tolist()
    }  # fmt: skip


@pytest.mark.frameworks
def test_a_real_module_takes_the_file_in_a_strict_load(tmp_path) -> None:
    import torch

    def build() -> Any:
        return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.LSTM(4, 2))

    model, port = build(), build()
    torch.save(model.state_dict(), tmp_path / "theirs.pth")
    save(tmp_path / "ours.pth", *open_checkpoint(tmp_path / "theirs.pth").tensors.values())
    assert str(port.load_state_dict(torch.load(tmp_path / "ours.pth", weights_only=True))) == (
        "<All keys matched successfully>"
    )
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in port.state_dict().items())


def test_every_crc_holds_and_every_payload_is_aligned() -> None:
    data = written(*SOME)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        for info in archive.infolist():
            lengths = data[info.header_offset + 26 : info.header_offset + 30]
            payload = info.header_offset + 30 + sum(np.frombuffer(lengths, "<u2").tolist())
            assert payload % 64 == 0
            assert data[payload : payload + info.file_size] == archive.read(info)


def test_the_pickle_names_only_torchs_own_makers() -> None:
    with zipfile.ZipFile(io.BytesIO(written(*SOME))) as archive:
        operations = list(pickletools.genops(archive.read("archive/data.pkl")))
    assert {argument for code, argument, _ in operations if code.name == "GLOBAL"} == {
        "collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3",
        "torch FloatStorage", "torch BFloat16Storage", "torch LongStorage", "torch.storage UntypedStorage",
        "torch uint16", "torch float8_e5m2",
    }  # fmt: skip


@pytest.mark.frameworks
def test_more_tensors_than_a_plain_zip_file_can_count_cost_little_more_than_their_names(tmp_path) -> None:
    import torch

    small = np.ones(4, np.float32)
    tensors = [stored(f"model.layers.{number}.weight", small) for number in range(1 << 16)]
    path = save(tmp_path / "m.pth", *tensors)
    assert path.stat().st_size < 450 * len(tensors)
    names = [tensor.name for tensor in tensors]
    assert list(open_checkpoint(path).tensors) == names
    found = torch.load(path, weights_only=True)
    assert list(found) == names
    assert found[names[-1]].tolist() == [1, 1, 1, 1]


def test_a_dtype_that_torch_does_not_have_is_named() -> None:
    odd = StoredTensor("w", (1,), "float128", lambda: np.ones(1, np.longdouble))
    assert TORCH.problems([odd, *SOME], {}) == ["w: torch has no float128"]


class Holes(io.FileIO):
    """A file in which zeros take no room on the disk."""

    def write(self, data: Any, /) -> int:
        if len(data) > 1 << 16 and not np.frombuffer(data, np.uint64, len(data) // 8).any():
            self.seek(len(data), os.SEEK_CUR)
            return len(data)
        return super().write(data)


def sparse(name: str, nbytes: int) -> StoredTensor:
    """A float32 tensor of so many bytes, zero but for its first and last element: memory that is only read is none."""

    def load() -> Array:
        value = np.zeros(nbytes // 4, np.float32)
        value[0], value[-1] = 1, 2
        return value

    return StoredTensor(name, (nbytes // 4,), "float32", load)


@pytest.mark.frameworks
@pytest.mark.slow
def test_torch_loads_what_is_larger_than_four_gigabytes(tmp_path, monkeypatch) -> None:
    import torch
    from torch.utils.serialization import config

    path = tmp_path / "large.pth"
    with Holes(path, "wb") as stream:
        TORCH.write(stream, [sparse("large", 4 << 30), stored("behind", MATRIX), stored("last", MATRIX)], {})
    monkeypatch.setenv("TORCH_SERIALIZATION_DEBUG", "1")
    for calculated in (False, True):
        with config.patch({"load.calculate_storage_offsets": calculated}):
            found = torch.load(path, weights_only=True, mmap=True)
        assert found["large"].shape == (1 << 30,)
        assert found["large"][[0, 1, -2, -1]].tolist() == [1, 0, 0, 2]
        assert found["behind"].tolist() == found["last"].tolist() == MATRIX.tolist()
    again = open_checkpoint(path).tensors
    assert again["large"].load()[[0, -1]].tolist() == [1, 2]
    assert again["last"].load().tolist() == MATRIX.tolist()


@pytest.mark.frameworks
@pytest.mark.slow
def test_mindspore_loads_a_parameter_cut_into_slices(tmp_path, monkeypatch) -> None:
    import mindspore

    # It refuses a file larger than the memory that holds nothing at all, not even a cache of files.
    monkeypatch.setattr(mindspore.train.serialization, "_get_available_memory", lambda: None, raising=False)
    nbytes = (512 << 20) + 4096
    with Holes(tmp_path / "large.ckpt", "wb") as stream:
        checkpoint_formats()["ckpt"].write(stream, [sparse("large", nbytes), stored("behind", MATRIX)], {})
    found = mindspore.load_checkpoint(str(tmp_path / "large.ckpt"))
    assert found["large"].shape == (nbytes // 4,)
    value = found["large"].asnumpy()
    assert value[[0, -1]].tolist() == [1, 2]
    assert np.count_nonzero(value) == 2
    assert found["behind"].asnumpy().tolist() == MATRIX.tolist()
