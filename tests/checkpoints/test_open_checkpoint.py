"""What is no checkpoint is named for what it is, and a file around one with the line that unpacks it."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shlex
import subprocess
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.checkpoints.sound_records import names_in_tar
from align.cli.main import main
from align.convert.convert_checkpoint import convert_checkpoint
from align.errors import AlignError, HostileFileError, NotACheckpointError, UnsupportedCheckpointError

if TYPE_CHECKING:
    from pathlib import Path

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 133508\n"


@pytest.mark.parametrize(
    ("content", "said", "hint"),
    [
        (LFS, "pointer of Git LFS", "git lfs pull"),
        ("<!DOCTYPE html>\n<html>", "web page", "download failed"),
        ("\ufeff\n <HTML lang='en'>", "web page", "download failed"),
        (json.dumps({"hidden_size": 768}), "JSON, but no index", "holds the weights"),
        ("", "it is empty", "cut short"),
    ],
)
def test_what_was_not_fetched_is_recognized(tmp_path, content, said, hint) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(NotACheckpointError, match=said) as error:
        open_checkpoint(path)
    assert hint in error.value.hint
    if content:
        return
    with pytest.raises(AlignError, match=r"model\.safetensors is not a folder"):
        open_checkpoint(path / "x.ckpt")


def test_a_pointer_among_shards_is_named(tmp_path) -> None:
    (tmp_path / "a.safetensors").write_text(LFS, encoding="utf-8")
    (tmp_path / "m.index.json").write_text(json.dumps({"weight_map": {"w": "a.safetensors"}}), encoding="utf-8")
    with pytest.raises(NotACheckpointError, match=r"shard a\.safetensors: .*pointer of Git LFS"):
        open_checkpoint(tmp_path)


def test_what_numpy_writes_and_cannot_be_converted_is_no_attack(tmp_path) -> None:
    for value, said in ((np.array([{}]), "Python objects"), (np.zeros(2, [("x", "<f4"), ("y", "<i8")]), "structured")):
        np.savez(tmp_path / "m.npz", w=value)
        with pytest.raises(UnsupportedCheckpointError, match=said) as error:
            open_checkpoint(tmp_path / "m.npz")
        assert not isinstance(error.value, HostileFileError)


@pytest.mark.frameworks
@pytest.mark.parametrize("protocol", [2, 4])
def test_arrays_that_numpy_pickled_are_named(tmp_path, protocol) -> None:
    import torch

    arrays = {"w": np.ones(2), "b": np.ones(3)}
    for value, said in (
        (arrays, r"w \(NumPy array, pickled by NumPy\)"),
        ({"model": arrays}, "2 entries, NumPy arrays"),
    ):
        torch.save(value, tmp_path / "m.pth", pickle_protocol=protocol)
        with pytest.raises(UnsupportedCheckpointError, match=said) as error:
            open_checkpoint(tmp_path / "m.pth")
        assert "numpy.savez" in error.value.hint


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    np.savez(tmp_path / "a.npz", **{"fc.weight": np.ones((2, 3)), "fc.bias": np.ones(2)})
    convert_checkpoint(tmp_path / "a.npz", tmp_path / "net.pth", target="torch")
    return tmp_path / "net.pth"


def wrapped(weights: Path, suffix: str) -> Path:
    path = weights.with_name(f"net.pth{suffix}" if suffix in (".gz", ".bz2", ".xz") else f"net{suffix}")
    data = weights.read_bytes()
    packers: dict[str, Any] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    if suffix in packers:
        path.write_bytes(packers[suffix](data))
    elif suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("deep/net.pth", data)
    else:
        with tarfile.open(path, {"": "w", ".gz": "w:gz"}[path.suffix if path.suffix == ".gz" else ""]) as archive:
            archive.add(weights, "net.pth")
    return path


@pytest.mark.parametrize(
    ("suffix", "said"),
    [
        (".gz", "compressed with gzip"),
        (".bz2", "compressed with bzip2"),
        (".xz", "compressed with xz"),
        (".tar", r"an archive of other files \(tar: net.pth\)"),
        (".tar.gz", "compressed with gzip"),
        (".zip", r"an archive of other files \(zip: deep/net.pth\)"),
    ],
)
def test_what_is_around_a_checkpoint_is_named_with_the_line_to_run(weights: Path, suffix: str, said: str) -> None:
    path = wrapped(weights, suffix)
    with pytest.raises(UnsupportedCheckpointError, match=said) as refused:
        open_checkpoint(path)
    line = shlex.split(refused.value.hint.split("`")[1])
    weights.unlink()
    if line[0] != "unzip":
        subprocess.run(line, check=True, cwd=path.parent)
        assert [*open_checkpoint(weights).tensors] == ["fc.weight", "fc.bias"]
    else:
        assert line == ["unzip", str(path)]


def test_an_archive_of_nemo_is_named_with_where_its_weights_lie(weights: Path) -> None:
    path = weights.with_name("net.nemo")
    with tarfile.open(path, "w") as archive:
        archive.add(weights, "./model_config.yaml")
        archive.add(weights, "./model_weights.ckpt")
    with pytest.raises(
        UnsupportedCheckpointError, match=r"archive of NeMo, with the weights in model_weights.ckpt"
    ) as said:
        open_checkpoint(path)
    subprocess.run(shlex.split(said.value.hint.split("`")[1]), check=True, cwd=path.parent)
    assert [*open_checkpoint(path.with_name("model_weights.ckpt")).tensors] == ["fc.weight", "fc.bias"]


def test_a_compressed_file_ends_with_exit_code_2_and_one_message(
    weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = wrapped(weights, ".gz")
    for command in (["inspect", str(path)], ["convert", str(path), str(weights.with_name("o.ckpt"))]):
        assert main(command) == 2
        assert "unpack it first" in capsys.readouterr().err


def test_sizes_that_a_tar_file_claims_lead_nowhere(weights: Path, tmp_path: Path) -> None:
    data = bytearray(wrapped(weights, ".tar").read_bytes())
    for size in (b"77777777777\0", b"-1         \0", b"99999999999\0", b"           \0"):
        data[124:136] = size
        (tmp_path / "b.tar").write_bytes(data)
        assert names_in_tar(tmp_path / "b.tar", bytes(data[:512])) <= {"net.pth"}
        with pytest.raises((UnsupportedCheckpointError, NotACheckpointError)):
            open_checkpoint(tmp_path / "b.tar")


def test_bytes_of_no_known_kind_stay_unknown(tmp_path: Path) -> None:
    (tmp_path / "a.pth").write_bytes(b"\x1f\x8a" + bytes(600))
    with pytest.raises(NotACheckpointError, match="no known format"):
        open_checkpoint(tmp_path / "a.pth")
