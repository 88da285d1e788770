"""Files around a checkpoint: each is named with the line that unpacks it, and after that line it is read."""

from __future__ import annotations

import bz2
import gzip
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
from align.errors import NotACheckpointError, UnsupportedCheckpointError

if TYPE_CHECKING:
    from pathlib import Path


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
