"""What the options of a conversion do: precision, shards, entries, dry runs, runs without verification."""

from __future__ import annotations

import json
import shutil

import ml_dtypes
import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.verdicts import Outcome
from align.errors import DestinationError, MissingEntryError, NotACheckpointError, UsageError


@pytest.fixture
def source(tmp_path):
    """A linear layer, one of integers and one of bools."""
    path = tmp_path / "source.npz"
    values = {
        "fc.weight": np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3),
        "fc.bias": np.array([1.0, 1e-9], np.float32),
        "steps": np.array([3, 2**40], np.int64),
        "mask": np.array([True, False]),
    }
    np.savez(path, **values)
    return path


def listing(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16", ml_dtypes.bfloat16), ("fp16", np.float16), ("fp32", np.float32)]
)
def test_a_precision_casts_floating_tensors_only(source, tmp_path, precision, dtype) -> None:
    record = convert_checkpoint(source, tmp_path / "out.ckpt", dtype=precision)
    found = open_checkpoint(tmp_path / "out.ckpt").tensors
    with np.load(source) as values:
        for name in ("fc.weight", "fc.bias"):
            assert found[name].load().tobytes() == values[name].astype(dtype).tobytes()
        for name in ("steps", "mask"):
            assert found[name].load().tobytes() == values[name].tobytes()
            assert found[name].dtype == values[name].dtype.name
    rounded = any("rounds" in warning for warning in record.warnings)
    assert rounded is (precision != "fp32")
    assert ("rounded" in record.verdict.reason) is rounded


def test_what_a_precision_cannot_hold_is_counted(tmp_path) -> None:
    np.savez(tmp_path / "big.npz", **{"fc.weight": np.array([[1e30, 2.0]], np.float32), "fc.bias": np.ones(1, "f4")})
    record = convert_checkpoint(tmp_path / "big.npz", tmp_path / "out.ckpt", dtype="fp16")
    assert "fc.weight: the cast float32 -> float16 cannot hold 1 of 2 values" in record.warnings


def test_a_cast_and_a_new_shape_go_together(tmp_path) -> None:
    np.savez(tmp_path / "conv.npz", **{"c.weight": np.ones((4, 3, 3), np.float32), "c.bias": np.ones(4, np.float32)})
    record = convert_checkpoint(tmp_path / "conv.npz", tmp_path / "out.ckpt", layers=["c=conv-1d"], dtype="bf16")
    weight = open_checkpoint(tmp_path / "out.ckpt").tensors["c.weight"]
    assert (weight.shape, weight.dtype) == ((4, 3, 1, 3), "bfloat16")
    assert (record.tensors[0].source_shape, record.tensors[0].source_dtype) == ((4, 3, 3), "float32")


def test_a_dry_run_writes_nothing_and_says_what_would_be(source, tmp_path) -> None:
    record = convert_checkpoint(source, tmp_path / "out.ckpt", dry_run=True)
    assert listing(tmp_path) == ["source.npz"]
    assert [tensor.target for tensor in record.tensors] == ["fc.weight", "fc.bias", "steps", "mask"]
    assert (record.files, record.verified, record.content_hash) == ((), False, None)
    assert record.verdict.outcome is Outcome.NOT_COMPARED
    assert record.verdict.reason == "nothing was written; 4 tensors could be"


def test_a_dry_run_finds_what_stands_against_a_conversion(tmp_path) -> None:
    np.savez(tmp_path / "odd.npz", z=np.ones(2, np.complex64))
    with pytest.raises(DestinationError, match="z: MindSpore cannot load complex64"):
        convert_checkpoint(tmp_path / "odd.npz", tmp_path / "out.ckpt", dry_run=True)


def test_without_verification_hashes_are_absent_and_the_verdict_says_so(source, tmp_path) -> None:
    record = convert_checkpoint(source, tmp_path / "out.ckpt", verify=False)
    assert {tensor.hash for tensor in record.tensors} == {None}
    assert (record.verified, record.content_hash) == (False, None)
    assert record.verdict.outcome is Outcome.NOT_COMPARED
    assert "NOT READ BACK" in record.verdict.reason
    assert len(open_checkpoint(tmp_path / "out.ckpt").tensors) == 4


def test_the_content_hash_is_of_the_tensors_not_of_the_file(source, tmp_path) -> None:
    hashes = {convert_checkpoint(source, tmp_path / f"out{kind}").content_hash for kind in (".ckpt", ".npz")}
    assert len(hashes) == 1
    other = convert_checkpoint(source, tmp_path / "half.npz", dtype="fp16").content_hash
    assert other not in hashes


@pytest.fixture
def blocks(tmp_path):
    """Ten tensors of 4000 bytes."""
    path = tmp_path / "blocks.npz"
    np.savez(path, **{f"layers.{n}.w": np.full(1000, n, np.float32) for n in range(10)})
    return path


def test_shards_and_their_index_read_as_one(blocks, tmp_path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    record = convert_checkpoint(blocks, out / "model.safetensors", max_shard_size="9kB")
    shards = [f"model-{n:05d}-of-00005.safetensors" for n in range(1, 6)]
    assert listing(out) == [*shards, "model.safetensors.index.json"]
    assert [path.rpartition("/")[2] for path in record.files] == ["model.safetensors.index.json", *shards]
    assert record.destination == record.files[0]
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 40_000}
    for place in (out, out / "model.safetensors.index.json"):
        found = open_checkpoint(place).tensors
        assert [found[f"layers.{n}.w"].load()[0] for n in range(10)] == list(range(10))


def test_what_fits_into_one_shard_is_a_plain_file(blocks, tmp_path) -> None:
    convert_checkpoint(blocks, tmp_path / "model.safetensors", max_shard_size="1MB")
    assert listing(tmp_path) == ["blocks.npz", "model.safetensors"]


def test_shards_replace_only_on_request_and_then_wholly(blocks, tmp_path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    convert_checkpoint(blocks, out / "model.safetensors")
    with pytest.raises(DestinationError, match=r"model\.safetensors exists"):
        convert_checkpoint(blocks, out / "model.safetensors", max_shard_size="9kB")
    assert listing(out) == ["model.safetensors"]
    convert_checkpoint(blocks, out / "model.safetensors", max_shard_size="9kB", overwrite=True)
    assert "model.safetensors" not in listing(out)  # loaders would take it before the index
    assert len(open_checkpoint(out).tensors) == 10


def test_a_single_file_replaces_shards_and_their_index(blocks, source, tmp_path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    convert_checkpoint(blocks, out / "model.safetensors", max_shard_size="9kB")
    (out / "other-00001-of-00002.safetensors").write_bytes(b"of another")
    with pytest.raises(DestinationError, match=r"model\.safetensors\.index\.json exists"):
        convert_checkpoint(source, out / "model.safetensors")
    assert len(listing(out)) == 7
    convert_checkpoint(source, out / "model.safetensors", overwrite=True)
    assert listing(out) == ["model.safetensors", "other-00001-of-00002.safetensors"]


def test_fewer_shards_leave_none_of_the_old_ones(blocks, tmp_path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for size in ("5kB", "30kB"):
        convert_checkpoint(blocks, out / "model.safetensors", max_shard_size=size, overwrite=True)
    assert len(listing(out)) == 3
    assert len(open_checkpoint(out).tensors) == 10


@pytest.mark.parametrize("choice", [{"dtype": "int8"}, {"target": "keras"}])
def test_words_that_the_command_line_would_refuse_are_refused(source, tmp_path, choice) -> None:
    with pytest.raises(UsageError, match="is not known"):
        convert_checkpoint(source, tmp_path / "out.ckpt", **choice)


def test_a_text_alone_is_one_choice_not_its_letters(tmp_path) -> None:
    np.savez(tmp_path / "p.npz", **{"module.fc.weight": np.ones((2, 3), "f4"), "module.fc.bias": np.ones(2, "f4")})
    record = convert_checkpoint(tmp_path / "p.npz", tmp_path / "p.ckpt", strip="module.")
    assert [tensor.target for tensor in record.tensors] == ["fc.weight", "fc.bias"]


@pytest.mark.parametrize("name", ["model.ckpt", "model.pth", "model.npz"])
def test_only_safetensors_come_in_shards(blocks, tmp_path, name) -> None:
    with pytest.raises(UsageError, match="--max-shard-size does not go with"):
        convert_checkpoint(blocks, tmp_path / name, max_shard_size="9kB")


def test_a_shard_that_reads_back_otherwise_leaves_no_shard(blocks, tmp_path, monkeypatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    plugin = type(checkpoint_formats()["safetensors"])
    real, calls = plugin.write, []

    def spoiled(self, stream, tensors, metadata) -> None:
        real(self, stream, tensors, metadata)
        calls.append(tensors)
        if len(calls) == 3:
            stream.seek(-1, 1)
            stream.write(b"\xff")

    monkeypatch.setattr(plugin, "write", spoiled)
    with pytest.raises(Exception, match="the bytes differ"):
        convert_checkpoint(blocks, out / "model.safetensors", max_shard_size="9kB")
    assert listing(out) == []


def test_a_key_of_a_file_without_entries_is_refused(source, tmp_path) -> None:
    with pytest.raises(MissingEntryError, match="no tensors under the key 'ema'"):
        convert_checkpoint(source, tmp_path / "out.ckpt", key="ema")


def test_a_crc_that_does_not_fit_is_found_before_anything_is_written(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", **{"fc.weight": np.ones((2, 3), "f4"), "fc.bias": np.ones(2, "f4")})
    convert_checkpoint(tmp_path / "a.npz", tmp_path / "a.ckpt")
    whole = (tmp_path / "a.ckpt").read_bytes()
    (tmp_path / "crc.ckpt").write_bytes(whole + b"crc_num" + (12345).to_bytes(10, "big"))
    assert len(open_checkpoint(tmp_path / "crc.ckpt").tensors) == 2  # headers alone cannot tell
    with pytest.raises(NotACheckpointError, match="crc"):
        convert_checkpoint(tmp_path / "crc.ckpt", tmp_path / "b.ckpt")
    assert not (tmp_path / "b.ckpt").exists()


def test_the_record_leads_back_with_what_was_dropped_and_tied(tmp_path) -> None:
    from align.cli.main import main

    shared = np.arange(4, dtype=np.float32)
    values = {f"bn.{name}": shared + n for n, name in enumerate(("weight", "bias", "running_mean", "running_var"))}
    np.savez(tmp_path / "a.npz", **values, **{"bn.num_batches_tracked": np.int64(7)})
    assert main(["convert", str(tmp_path / "a.npz"), str(tmp_path / "a.ckpt"), "--run", str(tmp_path / "run")]) == 0
    kept = json.loads((tmp_path / "run" / "convert.json").read_text())
    assert kept["dropped_values"]["bn.num_batches_tracked"]["shape"] == []
    shutil.move(tmp_path / "a.npz", tmp_path / "gone.npz")
    record = tmp_path / "run" / "convert.json"
    convert_checkpoint(tmp_path / "a.ckpt", tmp_path / "b.pth", name_map=record)
    found = open_checkpoint(tmp_path / "b.pth").tensors
    assert {name: tensor.load().tolist() for name, tensor in found.items()} == {
        **{name: value.tolist() for name, value in values.items()},
        "bn.num_batches_tracked": 7,
    }


def test_shards_that_are_links_to_one_file_are_refused(blocks, tmp_path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "real").write_bytes(b"mine")
    for number in (1, 2):
        (out / f"model-{number:05d}-of-00002.safetensors").symlink_to(out / "real")
    with pytest.raises(DestinationError, match="links to the same file"):
        convert_checkpoint(blocks, out / "model.safetensors", max_shard_size="20kB", overwrite=True)
    assert (out / "real").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["a\nb.ckpt", "\x1b[31m.ckpt", "\udcff.ckpt", "\0.ckpt"])
def test_a_destination_that_cannot_be_shown_is_refused(blocks, tmp_path, name) -> None:
    with pytest.raises(DestinationError, match="characters that cannot be shown"):
        convert_checkpoint(blocks, tmp_path / name)


def test_a_long_name_is_no_longer_while_it_is_written(blocks, tmp_path) -> None:
    name = "ö" * 120 + ".ckpt"  # 245 bytes; 255 are the most
    convert_checkpoint(blocks, tmp_path / name)
    assert name in listing(tmp_path)
