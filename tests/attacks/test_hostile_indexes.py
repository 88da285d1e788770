from __future__ import annotations

import json
import os
import tracemalloc

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.errors import HostileFileError, MissingFileError, NotACheckpointError, ShardsError

VALUE = np.ones(2, np.float32)


@pytest.fixture
def good(tmp_path):
    """A folder with one sound shard, beside a secret that no index must reach."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in (folder / "a.safetensors", tmp_path / "secret.safetensors"):
        with path.open("wb") as stream:
            tensors = [StoredTensor("w", VALUE.shape, "float32", lambda: VALUE)]
            checkpoint_formats()["safetensors"].write(stream, tensors, {})
    return folder


def index_of(folder, *shards):
    path = folder / "model.safetensors.index.json"
    names = ["w", *(f"w{number}" for number in range(1, len(shards)))]
    path.write_text(json.dumps({"weight_map": dict(zip(names, shards, strict=True))}), encoding="utf-8")
    return path


def test_the_builders_make_a_readable_checkpoint(good):
    assert open_checkpoint(index_of(good, "a.safetensors")).tensors["w"].load().tolist() == [1, 1]


@pytest.mark.parametrize(
    "shard",
    ["../secret.safetensors", "x/../../secret.safetensors", "/etc/passwd", "..", ".", "", "sub/a.safetensors",
     "..\\secret.safetensors", "a.safetensors\0", "\0", "a\n.safetensors", "\x1b[31ma.safetensors", "a\udc80"],
)  # fmt: skip
def test_a_shard_that_would_not_lie_beside_its_index_is_refused(good, shard):
    with pytest.raises(HostileFileError, match="outside of its own folder") as error:
        open_checkpoint(index_of(good, shard))
    assert "\x1b" not in error.value.message
    assert "\0" not in error.value.message


def test_an_absolute_shard_is_refused_even_where_it_is_sound(good):
    with pytest.raises(HostileFileError, match="outside of its own folder"):
        open_checkpoint(index_of(good, str(good / "a.safetensors")))


def test_a_tensor_whose_name_cannot_be_shown_is_refused(good):
    (good / "index.json").write_text('{"weight_map": {"\\u001b[2J": "a.safetensors"}}', encoding="utf-8")
    with pytest.raises(HostileFileError, match="must not be shown") as error:
        open_checkpoint(good / "index.json")
    assert "\x1b" not in error.value.message


def make_fifo(path):
    os.mkfifo(path)


def make_link_to_fifo(path):
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def make_link_to_a_device(path):
    path.symlink_to("/dev/zero")


def make_link_to_itself(path):
    path.symlink_to(path.name)


def make_link_to_a_process(path):
    path.symlink_to("/proc/self/mem")


@pytest.mark.parametrize(
    "make", [make_fifo, make_link_to_fifo, make_link_to_a_device, make_link_to_itself, make_link_to_a_process,
             lambda path: path.mkdir()],
)  # fmt: skip
def test_a_shard_that_is_no_plain_file_is_never_opened_for_long(good, make):
    make(good / "b.safetensors")
    with pytest.raises(ShardsError, match=r"shard b\.safetensors"):
        open_checkpoint(index_of(good, "a.safetensors", "b.safetensors"))


@pytest.mark.parametrize("make", [make_fifo, make_link_to_fifo, make_link_to_a_device, make_link_to_itself])
def test_an_index_that_is_no_plain_file_is_not_opened(tmp_path, make):
    make(tmp_path / "model.safetensors.index.json")
    with pytest.raises(MissingFileError):
        open_checkpoint(tmp_path / "model.safetensors.index.json")
    with pytest.raises(NotACheckpointError):
        open_checkpoint(tmp_path)


def test_a_link_out_of_the_folder_is_not_followed(good):
    (good / "b.safetensors").symlink_to("../secret.safetensors")
    with pytest.raises(ShardsError, match=r"shard b\.safetensors: .*outside its folder"):
        open_checkpoint(index_of(good, "b.safetensors"))


@pytest.mark.parametrize("below", ["", "unet"])
def test_a_link_into_the_store_of_a_hubs_cache_is_followed(good, tmp_path, below):
    """Whether the index is such a link too or not."""
    folder, store = tmp_path / "snapshots" / "main" / below, tmp_path / "blobs"
    folder.mkdir(parents=True)
    store.mkdir()
    (good / "a.safetensors").rename(store / "0123")
    (folder / "a.safetensors").symlink_to(os.path.relpath(store / "0123", folder))
    index = index_of(folder, "a.safetensors")
    assert open_checkpoint(index).tensors["w"].load().tolist() == [1, 1]
    index.rename(store / "4567")
    index.symlink_to(os.path.relpath(store / "4567", folder))
    assert open_checkpoint(index).tensors["w"].load().tolist() == [1, 1]


def test_a_folder_called_blobs_is_no_store_of_any_folder_beside_it(good, tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "secret.safetensors").rename(tmp_path / "blobs" / "secret")
    (good / "b.safetensors").symlink_to("../blobs/secret")
    with pytest.raises(ShardsError, match="outside its folder"):
        open_checkpoint(index_of(good, "b.safetensors"))


def test_an_index_as_a_shard_is_not_followed(good):
    index = index_of(good, "model.safetensors.index.json")
    with pytest.raises(ShardsError, match="no known format"):
        open_checkpoint(index)
    (good / "other.index.json").write_bytes(index.read_bytes())
    with pytest.raises(ShardsError, match="no known format"):
        open_checkpoint(index_of(good, "other.index.json"))


def test_an_index_of_four_gigabytes_is_not_read(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    with path.open("wb") as stream:
        stream.write(b'{"weight_map": {"')
        stream.truncate(4 << 30)
    tracemalloc.start()
    with pytest.raises(NotACheckpointError):
        open_checkpoint(path)
    assert tracemalloc.get_traced_memory()[1] < 80 << 20
    tracemalloc.stop()


def test_a_large_index_of_text_is_not_read(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(b'{"weight_map": {"' + b"a" * (40 << 20) + b'": "a.safetensors"}}')
    with pytest.raises(HostileFileError, match="more than 33554432 bytes"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"weight_map": ' * 100_000,
        b'{"weight_map": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"weight_map": {"w": "a.safetensors", "w": "a.safetensors"}}',
        b'{"weight_map": {"w": "a.safetensors"}, "weight_map": {"w": "b.safetensors"}}',
        b'{"weight_map": {"w": ["a.safetensors"]}}',
        b'{"weight_map": {"w": {"file": "a.safetensors", "offset": 0}}}',
        b'{"weight_map": {"w": null}}',
        b'{"weight_map": ["a.safetensors"]}',
        b'{"weight_map": "a.safetensors"}',
        b'{"weight_map": {}}',
        b'{"weight_map": ' + b"9" * 10_000 + b"}",
        b'{"weight_map": {"w": "a.safe',
        b'{"weight_map": {"w": "\xff"}}',
        b'{"w": 1}',
        b"{}",
        b"{",
    ],
)
def test_an_index_that_is_none_is_refused(good, raw):
    (good / "model.safetensors.index.json").write_bytes(raw)
    with pytest.raises(NotACheckpointError):
        open_checkpoint(good / "model.safetensors.index.json")


def test_more_shards_than_names_have_digits_for_are_refused_at_once(good):
    with pytest.raises(HostileFileError, match="200000 shards"):
        open_checkpoint(index_of(good, *(f"{number}" for number in range(200_000))))


def test_thousands_of_missing_shards_do_not_flood_the_message(good):
    with pytest.raises(ShardsError, match=r"and 4,?801 more") as error:
        open_checkpoint(index_of(good, *(f"{number}" for number in range(5000)), "a.safetensors"))
    assert len(error.value.problems) == 5001
    assert error.value.message.count("\n") == 201


def test_a_name_longer_than_any_file_system_allows_is_a_problem_of_the_shard(good):
    with pytest.raises(ShardsError, match="shard aaa"):
        open_checkpoint(index_of(good, "a" * 5000))


def test_one_file_under_two_names_gives_no_tensor_twice(good):
    (good / "b.safetensors").symlink_to("a.safetensors")
    with pytest.raises(ShardsError, match="w is in 2 shards"):
        open_checkpoint(index_of(good, "a.safetensors", "b.safetensors"))
