"""Folders of torch.distributed.checkpoint: one that FSDP wrote, others that torch writes here, and hostile ones."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from align.checkpoints.extents import byte_blocks
from align.checkpoints.inspect_checkpoint import inspect_checkpoint, refuse_unfinished
from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.convert.diff_checkpoints import diff_checkpoints
from align.errors import (
    AlignError,
    CannotRunError,
    HostileFileError,
    NotACheckpointError,
    SeveralEntriesError,
    ShardsError,
    UsageError,
)

DATA = Path(__file__).parents[1] / "data"  # made by make_distributed.py
FSDP, WHOLE = DATA / "fsdp", DATA / "fsdp.pth"


@pytest.fixture
def fsdp(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FSDP, tmp_path / "fsdp"))


def test_a_folder_of_two_ranks_is_read_as_one_checkpoint(tmp_path: Path) -> None:
    found, whole = open_checkpoint(FSDP), open_checkpoint(WHOLE)
    assert found.key == "model"
    assert {name: (one.shape, one.dtype) for name, one in found.tensors.items()} == {
        name: (one.shape, one.dtype) for name, one in whole.tensors.items()
    }
    for name, tensor in found.tensors.items():
        assert tensor.load().tobytes() == whole.tensors[name].load().tobytes(), name
        for block in (2, 4, 6, 1 << 20):
            parts = [bytes(part) for part in byte_blocks(tensor, block * tensor.load().itemsize)]
            assert b"".join(parts) == whole.tensors[name].load().tobytes(), (name, block)
    assert found.other_tensors == {"optimizer": 6}
    assert {"step", "name"} <= found.other.keys()
    refuse_unfinished(found)
    shown = inspect_checkpoint(FSDP, check=True)
    assert shown.crc_checked
    assert all(tensor.contiguous for tensor in shown.tensors)
    assert diff_checkpoints(FSDP, WHOLE).verdict.outcome.value == "aligned"
    record = convert_checkpoint(FSDP, tmp_path / "net.pth")
    assert record.content_hash == convert_checkpoint(WHOLE, tmp_path / "other.pth").content_hash


def test_the_list_and_the_folder_above_stand_for_the_folder_and_a_piece_does_not(fsdp: Path) -> None:
    assert open_checkpoint(fsdp / ".metadata").tensors.keys() == open_checkpoint(fsdp.parent).tensors.keys()
    with pytest.raises(CannotRunError, match="one piece of a distributed checkpoint") as error:
        open_checkpoint(fsdp / "__0_0.distcp")
    assert str(fsdp) in str(error.value.hint)
    shutil.copytree(fsdp, fsdp.with_name("step-2"))
    with pytest.raises(UsageError, match="2 checkpoints"):
        open_checkpoint(fsdp.parent)


def test_a_folder_that_lacks_a_file_says_which(fsdp: Path) -> None:
    (fsdp / "__1_0.distcp").rename(fsdp / "kept")
    with pytest.raises(ShardsError, match=r"__1_0\.distcp: it is missing"):
        open_checkpoint(fsdp)
    (fsdp / "__1_0.distcp").write_bytes((fsdp / "kept").read_bytes()[:-9])
    with pytest.raises(ShardsError, match="ends at byte"):
        open_checkpoint(fsdp)
    (fsdp / ".metadata").unlink()
    with pytest.raises(NotACheckpointError, match=r"\.metadata is missing"):
        open_checkpoint(fsdp)


def test_a_damaged_chunk_is_found_when_it_is_read(fsdp: Path, tmp_path: Path) -> None:
    data = bytearray((fsdp / "__0_0.distcp").read_bytes())
    value = open_checkpoint(WHOLE).tensors["0.weight"].load()[:3].tobytes()
    data[data.index(value) + 5] ^= 1
    (fsdp / "__0_0.distcp").write_bytes(data)
    assert open_checkpoint(fsdp).tensors
    with pytest.raises(NotACheckpointError, match="the crc differs"):
        convert_checkpoint(fsdp, tmp_path / "net.pth")
    assert not (tmp_path / "net.pth").exists()


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_what_one_process_saves_is_read_by_its_keys(tmp_path: Path, assert_each) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    w = torch.arange(6.0).reshape(2, 3)
    flat = {"state.fc.w.exp_avg": w, "state.fc.w.step": torch.tensor(3.0), "param_groups.fc.w.lr": 0.1}
    examples = [
        ("names alone", {"fc.w": w, "half": w.half(), "count": torch.tensor(5)}, "", {"fc.w", "half", "count"}),
        ("titan", {"fc.w": w, "optimizer": flat, "train_state": b"x"}, "", {"fc.w"}),
        ("nested", {"model": {"fc.w": w}, "optimizer": flat, "step": 7}, "model", {"fc.w"}),
        ("empty", {"fc.w": w, "cache": torch.zeros(0, 4)}, "", {"fc.w", "cache"}),
        ("two", {"model": {"fc.w": w}, "ema": {"fc.w": w + 1}}, None, set()),
    ]

    def check(label: str, saved: dict, key: str | None, names: set[str]) -> None:
        folder = tmp_path / label
        dcp.save(saved, checkpoint_id=folder, no_dist=True)
        if key is None:
            with pytest.raises(SeveralEntriesError):
                open_checkpoint(folder)
            assert open_checkpoint(folder, "ema").tensors["fc.w"].load()[0, 0] == 1
            return
        found = open_checkpoint(folder)
        assert (found.key, found.tensors.keys()) == (key, names)
        assert np.array_equal(found.tensors["fc.w"].load(), w.numpy())

    assert_each(check, examples)


class Written:
    """Stands for the classes of torch that a list names: pickled as any object is, under the name it is given."""

    def __init__(self, name: str, **fields: object) -> None:
        self.name, self.fields = name, fields

    def __reduce__(self) -> object:
        return _NAMED[self.name], (), self.fields


def _named(name: str) -> type:
    module = "torch" if name in ("Size", "float32") else "torch.distributed.checkpoint.metadata"
    return type(name, (), {"__module__": module, "__qualname__": name})


_NAMED = {
    name: _named(name)
    for name in ("Metadata", "TensorStorageMetadata", "ChunkStorageMetadata", "MetadataIndex", "_StorageInfo")
}


def listed(path: Path, monkeypatch: pytest.MonkeyPatch, size: object, chunks: list, places: list) -> None:
    """Write a list of one tensor `w` of float32: chunks as (start, size), places as (start, file, offset, length)."""
    import sys
    from types import ModuleType

    module = ModuleType("torch.distributed.checkpoint.metadata")
    for name, kind in _NAMED.items():
        setattr(module, name, kind)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    parts = [Written("ChunkStorageMetadata", offsets=start, sizes=shape) for start, shape in chunks]
    float32 = b"ctorch\nfloat32\n"
    entry = Written("TensorStorageMetadata", properties={"dtype": "FLOAT32"}, size=size, chunks=parts)
    storage = {
        Written("MetadataIndex", fqn="w", offset=start): Written(
            "_StorageInfo", relative_path=file, offset=offset, length=length
        )
        for start, file, offset, length in places
    }
    raw = pickle.dumps(Written("Metadata", state_dict_metadata={"w": entry}, storage_data=storage), protocol=2)
    text = b"X" + (7).to_bytes(4, "little") + b"FLOAT32"
    assert raw.count(text) == 1
    path.write_bytes(raw.replace(text, float32))


def test_a_hostile_list_is_refused_by_one_message(fsdp: Path, monkeypatch: pytest.MonkeyPatch, assert_each) -> None:
    file = "__0_0.distcp"
    size = (fsdp / file).stat().st_size
    whole = [((0,), (4,))]
    examples = [
        ("beyond", (4,), whole, [((0,), file, size - 8, 16)], "ends at byte"),
        ("outside", (4,), whole, [((0,), "../secret", 0, 16)], "not a file in its folder"),
        ("no file", (4,), whole, [((0,), "__9_9.distcp", 0, 16)], "missing"),
        ("absurd shape", (1 << 50, 1 << 50), [((0, 0), (1, 1))], [((0, 0), file, 0, 16)], "claims the shape"),
        ("large chunk", (1 << 50,), [((0,), (1 << 50,))], [((0,), file, 0, 16)], "claims the shape"),
        ("gap", (4,), [((0,), (2,))], [((0,), file, 0, 16)], "do not fill"),
        ("overlap", (4,), [((0,), (3,)), ((1,), (3,))], [((0,), file, 0, 16), ((1,), file, 16, 16)], "overlap"),
        ("one place", (4,), [((0,), (2,)), ((2,), (2,))], [((0,), file, 0, 16), ((2,), file, 8, 16)], "places"),
        ("more chunks", (4,), [*whole, *whole], [((0,), file, 0, 16)], "more chunks"),
        ("no place", (4,), whole, [((2,), file, 0, 16)], "has no place"),
        ("negative", (4,), [((-1,), (4,))], [((-1,), file, 0, 16)], "malformed"),
        ("other axes", (4,), [((0, 0), (4, 1))], [((0, 0), file, 0, 16)], "malformed"),
        ("negative place", (4,), whole, [((0,), file, -4, 16)], "no file, offset and length"),
        ("no archive", (4,), whole, [((0,), file, 3, 160)], "zip"),
    ]

    def check(label: str, shape: object, chunks: list, places: list, words: str) -> None:
        listed(fsdp / ".metadata", monkeypatch, shape, chunks, places)
        with pytest.raises(AlignError, match=words) as error:
            open_checkpoint(fsdp).tensors["w"].load()
        assert isinstance(error.value, NotACheckpointError | HostileFileError), label

    assert_each(check, examples)


def test_chunks_in_the_form_of_a_wheel_are_refused_and_those_of_a_grid_are_not(
    fsdp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(chunks: list) -> None:
        places = [(start, "__0_0.distcp", 100 * number, 99) for number, (start, _) in enumerate(chunks)]
        listed(fsdp / ".metadata", monkeypatch, (3, 3), chunks, places)
        open_checkpoint(fsdp)

    lie([((0, 0), (2, 2)), ((0, 2), (2, 1)), ((2, 0), (1, 3))])
    with pytest.raises(NotACheckpointError, match="rows and columns"):
        lie([((0, 0), (1, 2)), ((0, 2), (2, 1)), ((2, 1), (1, 2)), ((1, 0), (2, 1)), ((1, 1), (1, 1))])
