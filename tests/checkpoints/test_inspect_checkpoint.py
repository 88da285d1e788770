from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

import align
from align.checkpoints.inspect_checkpoint import inspect_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.errors import NotACheckpointError

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = checkpoint_formats()
VALUES = {"fc.weight": np.ones((4, 3), np.float32), "fc.bias": np.arange(4, dtype=np.float32), "ids": np.arange(6)}
TENSORS = [StoredTensor(name, v.shape, v.dtype.name, lambda v=v: v) for name, v in VALUES.items()]
WRITERS = [name for name, plugin in FORMATS.items() if not plugin.problems(TENSORS, {"format": "ms"})]


def written(folder: Path, name: str, flavour: str = "ms") -> Path:
    path = folder / f"m{FORMATS[name].suffixes[0]}"
    with path.open("wb") as stream:
        FORMATS[name].write(stream, TENSORS, {"format": flavour})
    return path


@pytest.mark.parametrize("name", WRITERS)
def test_shapes_dtypes_and_sizes_are_told_of_every_format(tmp_path, name):
    path = written(tmp_path, name)
    found = inspect_checkpoint(path)
    assert (found.format, found.path, found.files) == (name, str(path), {str(path): path.stat().st_size})
    facts = {tensor.name: (tensor.shape, tensor.dtype, tensor.nbytes, tensor.contiguous) for tensor in found.tensors}
    assert facts == {n: (v.shape, v.dtype.name, v.nbytes, True) for n, v in VALUES.items()}
    assert (found.key, found.ties, found.overlaps, found.crc_checked) == ("", (), (), False)
    assert found.crc_unchecked == (path.read_bytes()[:2] == b"PK")  # zip files have one of each record


@pytest.mark.parametrize(
    ("name", "flavour", "naming"),
    [
        ("safetensors", "pt", "torch"),
        ("safetensors", "ms", "mindspore"),
        ("ckpt", "ms", "mindspore"),
        ("npz", "", None),
    ],
)
def test_whose_names_a_file_has_is_what_the_file_says(tmp_path, name, flavour, naming):
    assert inspect_checkpoint(written(tmp_path, name, flavour)).naming == naming


def test_what_is_no_tensor_is_named_and_what_is_compressed_is_not_contiguous(tmp_path):
    np.savez_compressed(tmp_path / "m.npz", w=np.zeros((2, 2)), note=np.array("made by hand"))
    found = inspect_checkpoint(tmp_path / "m.npz")
    assert found.other == {"note": "text array of shape ()"}
    assert [(tensor.name, tensor.contiguous) for tensor in found.tensors] == [("w", False)]


def test_a_crc_is_named_and_not_checked(tmp_path):
    path = written(tmp_path, "ckpt")
    data = path.read_bytes()
    path.write_bytes(data + b"crc_num" + (zlib.crc32(data) ^ 1).to_bytes(10, "big"))
    assert inspect_checkpoint(path).crc_unchecked


def test_a_damaged_file_ends_in_the_error_of_its_reader(tmp_path):
    path = written(tmp_path, "safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(NotACheckpointError, match="end at byte"):
        inspect_checkpoint(path)


@pytest.mark.parametrize("name", WRITERS)
def test_only_headers_are_read(tmp_path, name, bytes_read):
    """The system counts what a process asks it to read."""
    value = np.zeros(16 << 20, np.uint8)
    path = tmp_path / "big"
    with path.open("wb") as stream:
        FORMATS[name].write(stream, [StoredTensor("w", value.shape, "uint8", lambda: value)], {"format": "ms"})
    inspect_checkpoint(path)
    before = bytes_read()
    assert inspect_checkpoint(path).tensors[0].nbytes == 16 << 20
    assert bytes_read() - before < 256 << 10


@pytest.mark.frameworks
def test_ties_strides_overlaps_and_the_entry_of_a_torch_file_are_told(tmp_path):
    import torch

    word, flat = torch.zeros(5, 3), torch.zeros(12)
    weights = {"word": word, "decoder": word, "turned": word.t(), "flat": flat, "head": flat[:6]}
    torch.save({"model": weights, "epoch": 3}, tmp_path / "m.pth")
    found = inspect_checkpoint(tmp_path / "m.pth")
    assert found.key == "model"
    assert found.ties == (("word", "decoder"),)
    assert [tensor.name for tensor in found.tensors if not tensor.contiguous] == ["turned"]
    assert found.overlaps == (("flat", "head"),)
    assert found.other == {"epoch": "3"}


@pytest.mark.frameworks
def test_of_a_file_with_several_state_dicts_the_entries_are_told_until_one_is_chosen(tmp_path):
    import torch

    weights = {"fc.weight": torch.zeros(4, 3)}
    torch.save({"model": weights, "ema": {"fc.weight": torch.ones(4, 3)}, "epoch": 3}, tmp_path / "m.pth")
    found = align.inspect_checkpoint(tmp_path / "m.pth")
    assert [(entry.key, entry.tensors, entry.nbytes) for entry in found.entries] == [("model", 1, 48), ("ema", 1, 48)]
    assert (found.key, found.tensors, found.format, found.naming) == (None, (), "torch", "torch")
    assert found.other == {"epoch": "3"}
    chosen = align.inspect_checkpoint(tmp_path / "m.pth", "ema")
    assert (chosen.key, [tensor.name for tensor in chosen.tensors]) == ("ema", ["fc.weight"])


def test_a_file_without_tensors_is_told_as_such(tmp_path):
    stream = io.BytesIO()
    FORMATS["safetensors"].write(stream, [], {"format": "pt"})
    (tmp_path / "empty.safetensors").write_bytes(stream.getvalue())
    assert inspect_checkpoint(tmp_path / "empty.safetensors").tensors == ()


def test_shards_are_told_as_one_with_all_their_files(tmp_path):
    from align.convert.convert_checkpoint import convert_checkpoint

    source = written(tmp_path, "safetensors")
    folder = tmp_path / "shards"
    folder.mkdir()
    convert_checkpoint(source, folder / "model.safetensors", max_shard_size="64")
    found = inspect_checkpoint(folder)
    assert {tensor.name for tensor in found.tensors} == VALUES.keys()
    assert found.files == {str(path): path.stat().st_size for path in folder.iterdir()}
    assert (len(found.files), found.naming, found.crc_unchecked) == (3, "mindspore", False)


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_one_odd_tensor_does_not_hide_the_others(tmp_path):
    import torch

    from align.checkpoints.open_checkpoint import open_checkpoint
    from align.errors import UnsupportedTensorsError

    odd = {
        "conjugated": torch.ones(2, dtype=torch.complex64).conj(),
        "sparse": torch.eye(3).to_sparse(),
        "meta": torch.empty(2, device="meta"),
    }
    torch.save({"fc.weight": torch.ones(2), **odd, "epoch": 3}, tmp_path / "m.pth")
    found = inspect_checkpoint(tmp_path / "m.pth")
    assert [tensor.name for tensor in found.tensors] == ["fc.weight"]
    assert list(found.other) == [*odd, "epoch"]
    assert "conjugated" in found.other["conjugated"]
    with pytest.raises(UnsupportedTensorsError) as error:
        open_checkpoint(tmp_path / "m.pth")
    assert all(name in error.value.message for name in odd)


@pytest.mark.frameworks
def test_odd_tensors_in_shards_do_not_hide_the_others(tmp_path):
    import json

    import torch

    torch.save({"a": torch.ones(2), "s": torch.eye(3).to_sparse()}, tmp_path / "p-00001-of-00002.bin")
    torch.save({"b": torch.ones(2)}, tmp_path / "p-00002-of-00002.bin")
    places = {"a": "p-00001-of-00002.bin", "s": "p-00001-of-00002.bin", "b": "p-00002-of-00002.bin"}
    (tmp_path / "p.bin.index.json").write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    found = inspect_checkpoint(tmp_path)
    assert ([tensor.name for tensor in found.tensors], list(found.other)) == (["a", "b"], ["s"])


@pytest.mark.frameworks
def test_a_module_is_inspected_if_its_code_is_trusted(tmp_path):
    import torch

    torch.save(torch.nn.Linear(2, 3), tmp_path / "m.pth")
    found = inspect_checkpoint(tmp_path / "m.pth", trust_pickle=True)
    assert [tensor.name for tensor in found.tensors] == ["weight", "bias"]
    assert "ran the code" in found.notes[0]


def test_the_state_of_an_optimizer_is_set_apart(tmp_path):
    weights = {f"fc{n}.weight": np.ones((2, 3), np.float32) for n in range(2)}
    state = {f"{kind}.{name}": value for kind in ("moment1", "moment2") for name, value in weights.items()}
    path = tmp_path / "m.ckpt"
    tensors = [StoredTensor(n, v.shape, v.dtype.name, lambda v=v: v) for n, v in (weights | state).items()]
    with path.open("wb") as stream:
        FORMATS["ckpt"].write(stream, tensors, {})
    assert inspect_checkpoint(path).notes == (
        "no weights but optimizer state: 4 tensors (moment1.fc0.weight, moment1.fc1.weight, moment2.fc0.weight, ...)",
    )


def test_no_words_of_a_file_can_steer_a_terminal(tmp_path, capsys):
    from align.cli.main import main

    steer = "\x9b2J\x1b[2J\u202e"
    stream = io.BytesIO()
    FORMATS["safetensors"].write(stream, TENSORS, {"format": "pt", steer: steer})
    (tmp_path / "m.safetensors").write_bytes(stream.getvalue())
    np.savez(tmp_path / "m.npz", **VALUES, **{steer: np.array("text")})
    for name in ("m.safetensors", "m.npz"):
        for options in ([], ["--json"]):
            assert main(["inspect", str(tmp_path / name), *options]) == 0
            printed = capsys.readouterr().out
            assert "x9b2J" in printed
            assert not set(steer[:1] + "\x1b\u202e") & set(printed)
