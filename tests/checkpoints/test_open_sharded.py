"""Checkpoints of several files: Hugging Face's index, MindSpore's map, and folders that hold one of them."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import plan_shards
from align.convert.write_checkpoint import index_bytes, shard_names
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.errors import MissingEntryError, NotACheckpointError, ShardsError, UsageError

VALUES = {f"layer.{number}": np.arange(number, number + 4, dtype=np.float32) for number in (3, 1, 2)}
INDEX = "model.safetensors.index.json"


def stored(name, value, storage=None):
    return StoredTensor(name, value.shape, value.dtype.name, lambda: value, storage=storage)


def write(path, values, plugin="safetensors", metadata=None):
    with path.open("wb") as stream:
        tensors = [stored(name, value) for name, value in values.items()]
        checkpoint_formats()[plugin].write(stream, tensors, metadata or {"format": "pt"})


def write_index(path, weight_map, **metadata):
    path.write_text(json.dumps({"metadata": metadata, "weight_map": weight_map}), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path):
    """Two shards and their index: `layer.3` and `layer.1` in the first."""
    names = list(VALUES)
    write(tmp_path / "a.safetensors", {name: VALUES[name] for name in names[:2]}, metadata={"format": "pt", "by": "a"})
    write(tmp_path / "b.safetensors", {name: VALUES[name] for name in names[2:]}, metadata={"format": "pt", "b": "b"})
    places = dict.fromkeys(names[:2], "a.safetensors") | dict.fromkeys(names[2:], "b.safetensors")
    write_index(tmp_path / INDEX, places, total_size=48)
    return tmp_path


def assert_holds_the_values(checkpoint) -> None:
    assert list(checkpoint.tensors) == list(VALUES)
    for name, tensor in checkpoint.tensors.items():
        assert tensor.load().tobytes() == VALUES[name].tobytes()


def test_an_index_opens_as_one_checkpoint_in_its_order(folder) -> None:
    checkpoint = open_checkpoint(folder / INDEX)
    assert_holds_the_values(checkpoint)
    assert checkpoint.format == "safetensors (2 shards)"
    assert checkpoint.all_files == (folder / INDEX, folder / "a.safetensors", folder / "b.safetensors")
    assert checkpoint.metadata == {"format": "pt", "by": "a", "b": "b"}


@pytest.mark.parametrize("name", ["model.safetensors.index.json", "pytorch_model.bin.index.json", "whatever"])
def test_an_index_is_told_by_its_content(folder, name) -> None:
    (folder / INDEX).rename(folder / name)
    assert_holds_the_values(open_checkpoint(folder / name))


def test_the_flat_map_of_mindspore_is_an_index(folder) -> None:
    weight_map = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
    (folder / INDEX).unlink()
    (folder / "param_name_map.json").write_text(json.dumps(weight_map, indent=4), encoding="utf-8")
    assert_holds_the_values(open_checkpoint(folder / "param_name_map.json"))
    assert_holds_the_values(open_checkpoint(folder))


def test_a_folder_with_one_index_is_a_checkpoint(folder) -> None:
    (folder / "config.json").write_text("{}", encoding="utf-8")
    assert_holds_the_values(open_checkpoint(folder))


def test_a_checkpoint_beside_an_index_that_does_not_list_it_is_named(folder) -> None:
    write(folder / "model.safetensors", VALUES)
    with pytest.raises(UsageError, match=r"holds 2 checkpoints\n  model.safetensors\n  model.safetensors.index.json"):
        open_checkpoint(folder)
    assert_holds_the_values(open_checkpoint(folder / INDEX))
    assert open_checkpoint(folder / "model.safetensors").notes == ()


def test_an_index_whose_shards_are_not_there_is_named_so_beside_a_whole_file(tmp_path) -> None:
    write(tmp_path / "model.safetensors", VALUES)
    write_index(tmp_path / INDEX, dict(zip(VALUES, ("a.safetensors", "b.safetensors"), strict=False)))
    words = f"{INDEX}, whose a.safetensors, b.safetensors are not there"
    with pytest.raises(UsageError, match=words):
        open_checkpoint(tmp_path)


def test_the_only_shard_of_an_index_is_no_second_checkpoint(tmp_path) -> None:
    write(tmp_path / "model.safetensors", VALUES)
    write_index(tmp_path / INDEX, dict.fromkeys(VALUES, "model.safetensors"))
    assert_holds_the_values(open_checkpoint(tmp_path))
    assert open_checkpoint(tmp_path / "model.safetensors").notes == ()


def test_an_unsound_index_is_what_is_wrong_with_its_folder(folder) -> None:
    (folder / INDEX).write_text("{", encoding="utf-8")
    with pytest.raises(NotACheckpointError, match="not valid JSON"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("a.safetensors", f"a.safetensors is one of 2 shards: open {INDEX} for all of them"),
        ("model-00001-of-00003.safetensors", "is one of 3 shards, by its name: open their index for all of them"),
        ("model-00001-of-00001.safetensors", None),
        ("other.safetensors", None),
    ],
)
def test_one_shard_alone_says_that_there_are_others(folder, name, note) -> None:
    if name != "a.safetensors":
        write(folder / name, VALUES)
    notes = open_checkpoint(folder / name).notes
    assert [note in said for said in notes] == ([True] if note else [])
    assert open_checkpoint(folder / INDEX).notes == ()


def test_a_folder_with_one_checkpoint_file_is_that_checkpoint(tmp_path) -> None:
    write(tmp_path / "model.safetensors", VALUES)
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    write(tmp_path / ".model.safetensors.0.part.safetensors", VALUES)
    assert open_checkpoint(tmp_path).path == tmp_path / "model.safetensors"


def test_a_folder_with_several_lists_them(folder) -> None:
    write_index(folder / "pytorch_model.bin.index.json", {})
    with pytest.raises(UsageError) as error:
        open_checkpoint(folder)
    assert INDEX in error.value.message
    assert "pytorch_model.bin.index.json" in error.value.message
    for path in folder.glob("*.json"):
        path.unlink()
    with pytest.raises(UsageError, match="holds 2 checkpoints") as error:
        open_checkpoint(folder)
    assert "a.safetensors" in error.value.message
    assert "b.safetensors" in error.value.message


def test_a_folder_without_a_checkpoint_says_what_was_looked_for(tmp_path) -> None:
    with pytest.raises(NotACheckpointError, match=r"no checkpoint and no index.*\.safetensors"):
        open_checkpoint(tmp_path)


def test_shards_may_be_links_as_in_hugging_faces_cache(folder) -> None:
    (folder / "blobs").mkdir()
    for name in ("a.safetensors", "b.safetensors"):
        blob = folder / "blobs" / f"{zlib.crc32(name.encode()):x}"
        (folder / name).rename(blob)
        (folder / name).symlink_to(blob)
    assert_holds_the_values(open_checkpoint(folder))


def test_all_that_is_wrong_is_said_at_once(folder) -> None:
    write(folder / "b.safetensors", {"layer.1": VALUES["layer.1"], "more": VALUES["layer.2"]})
    (folder / "d.safetensors").write_bytes(b"\x01")
    weight_map = {"layer.3": "b.safetensors", "layer.1": "a.safetensors", "x": "c.safetensors", "y": "e.safetensors"}
    write_index(folder / INDEX, weight_map | {"z": "d.safetensors", "nowhere": "a.safetensors"})
    with pytest.raises(ShardsError) as error:
        open_checkpoint(folder)
    shards, tensors = error.value.problems[:3], error.value.problems[3:]
    assert [line.split(": ")[:2] for line in shards[:2]] == [
        ["shard c.safetensors", "it is missing"], ["shard e.safetensors", "it is missing"]
    ]  # fmt: skip
    assert shards[2].startswith("shard d.safetensors: ")
    assert tensors == (
        "tensor layer.3 is not in b.safetensors, where the index has it; it is in a.safetensors",
        "tensor nowhere is not in a.safetensors, where the index has it",
        "tensor layer.1 is in 2 shards: b.safetensors, a.safetensors",
        "tensor more of b.safetensors is not in the index",
    )


def test_a_key_that_no_shard_has_is_said(folder) -> None:
    with pytest.raises((ShardsError, MissingEntryError), match="ema"):
        open_checkpoint(folder, "ema")


def test_json_that_is_no_index_is_refused(tmp_path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 768}', encoding="utf-8")
    with pytest.raises(NotACheckpointError, match="no index"):
        open_checkpoint(tmp_path / "config.json")


def test_a_crc_of_a_shard_is_checked_with_the_whole(tmp_path) -> None:
    for name, values in (("a.ckpt", {"v": np.ones(2)}), ("b.ckpt", {"w": np.ones(2)})):
        write(tmp_path / name, values, "ckpt")
        data = (tmp_path / name).read_bytes()
        crc = zlib.crc32(data) ^ (name == "b.ckpt")
        (tmp_path / name).write_bytes(data + b"crc_num" + crc.to_bytes(10, "big"))
    index = write_index(tmp_path / "model.ckpt.index.json", {"v": "a.ckpt", "w": "b.ckpt"})
    checkpoint = open_checkpoint(index)
    assert checkpoint.check is not None
    with pytest.raises(NotACheckpointError, match=r"b\.ckpt.*crc"):
        checkpoint.check()


def test_ties_hold_inside_a_shard_and_never_across_shards(tmp_path) -> None:
    torch_format, one = checkpoint_formats()["torch"], np.ones(2)
    for name, tensors in {
        "a.bin": [stored("a", one, "s"), stored("tied", one, "s")], "b.bin": [stored("b", one)]
    }.items():  # fmt: skip
        with (tmp_path / name).open("wb") as stream:
            torch_format.write(stream, tensors, {})
    index = write_index(tmp_path / "pytorch_model.bin.index.json", {"a": "a.bin", "tied": "a.bin", "b": "b.bin"})
    tensors = open_checkpoint(index).tensors
    assert tensors["a"].storage == tensors["tied"].storage
    assert tensors["a"].storage != tensors["b"].storage


@pytest.mark.parametrize(("plugin", "name"), [("safetensors", "model.safetensors"), ("torch", "pytorch_model.bin")])
def test_what_is_planned_and_indexed_opens_again(tmp_path, plugin, name) -> None:
    shards = plan_shards([stored(name, value) for name, value in VALUES.items()], 32)
    names = shard_names(name, len(shards))
    for shard, file in zip(shards, names, strict=True):
        write(tmp_path / file, {tensor.name: tensor.load() for tensor in shard}, plugin)
    (tmp_path / f"{name}.index.json").write_bytes(index_bytes(shards, names))
    assert len(names) == 2
    assert_holds_the_values(open_checkpoint(tmp_path))


@pytest.mark.frameworks
def test_hugging_faces_own_shards_are_read(tmp_path) -> None:
    import torch
    from huggingface_hub import save_torch_state_dict

    values = {name: torch.from_numpy(value.copy()) for name, value in VALUES.items()}
    save_torch_state_dict(values, tmp_path, max_shard_size=32)
    assert len(list(tmp_path.iterdir())) == 3
    checkpoint = open_checkpoint(tmp_path)
    assert {n: t.load().tobytes() for n, t in checkpoint.tensors.items()} == {n: v.tobytes() for n, v in VALUES.items()}
