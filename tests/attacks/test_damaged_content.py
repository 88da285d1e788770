"""Bytes that changed on a disk while every header stayed sound: the checksum that the format carries tells of them."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.checkpoints.inspect_checkpoint import inspect_checkpoint
from align.checkpoints.open_checkpoint import open_checkpoint
from align.cli.main import main
from align.convert.convert_checkpoint import convert_checkpoint
from align.convert.diff_checkpoints import diff_checkpoints
from align.core.load_code import checkpoint_formats
from align.errors import NotACheckpointError
from align.names.map_parameters import map_parameters

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MARK = np.float32(0.7853982)
LAYERS = ["fc=linear"]
ROWS = {"fc.bias": (40,), "fc.weight": (40, 30), "conv.weight": (4, 3, 3, 3), "conv.bias": (4,)}


def arrays() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    made = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in ROWS.items()}
    for value in made.values():
        value.flat[value.size // 2] = MARK  # what is damaged: in the middle of each array
    return made


def write_npz(path: Path) -> Path:
    np.savez(path, **arrays())
    return path


def write_packed(path: Path) -> Path:
    np.savez_compressed(path, **arrays())
    return path


def write_torch(path: Path) -> Path:
    from align.core.parameters import StoredTensor

    tensors = [StoredTensor(n, v.shape, "float32", lambda v=v: v) for n, v in arrays().items()]
    with path.open("wb") as stream:
        checkpoint_formats()["torch"].write(stream, tensors, {})
    return path


WRITERS: dict[str, Callable[[Path], Path]] = {"a.npz": write_npz, "a.pth": write_torch}


def damaged(path: Path, which: int) -> Path:
    data = bytearray(path.read_bytes())
    place = -1
    for _ in range(which + 1):
        place = data.index(MARK.tobytes(), place + 1)
    data[place] ^= 1  # the last bit of a number
    other = path.with_name(f"damaged{which}{path.suffix}")
    other.write_bytes(data)
    return other


@pytest.fixture(params=WRITERS)
def sound(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return WRITERS[request.param](tmp_path / request.param)


@pytest.mark.parametrize("which", range(len(ROWS)))
def test_a_bit_that_turned_is_never_converted(sound: Path, which: int, tmp_path: Path) -> None:
    for verify in (True, False):
        for name in ("out.ckpt", "out.npz"):
            with pytest.raises(NotACheckpointError, match="crc differs"):
                convert_checkpoint(damaged(sound, which), tmp_path / name, layers=LAYERS, verify=verify)
            assert not (tmp_path / name).exists()


@pytest.mark.parametrize("which", range(len(ROWS)))
def test_a_bit_that_turned_is_never_compared(sound: Path, which: int) -> None:
    for pair in ((sound, damaged(sound, which)), (damaged(sound, which), sound)):
        with pytest.raises(NotACheckpointError, match="crc differs"):
            diff_checkpoints(*pair)


def test_a_bit_that_turned_is_found_when_a_cast_or_a_transpose_reads_it(sound: Path, tmp_path: Path) -> None:
    for which in range(len(ROWS)):
        with pytest.raises(NotACheckpointError, match="crc differs"):
            convert_checkpoint(damaged(sound, which), tmp_path / "out.ckpt", layers=LAYERS, dtype="fp16")


def test_values_that_decide_names_are_checked(tmp_path: Path) -> None:
    ours, theirs = {}, {}
    for name, (left, right) in {"a": ("q", "y"), "b": ("k", "x")}.items():
        value = arrays()["conv.weight"].copy()
        value.flat[0] = name == "a"
        ours[f"{left}.weight"] = theirs[f"{right}.weight"] = value
    np.savez(tmp_path / "ours.npz", **ours)
    np.savez(tmp_path / "theirs.npz", **theirs)
    found = map_parameters(tmp_path / "ours.npz", tmp_path / "theirs.npz").name_map
    assert {(p.source, p.target) for p in found.pairings} == {("q.weight", "y.weight"), ("k.weight", "x.weight")}
    with pytest.raises(NotACheckpointError, match="crc differs"):
        map_parameters(damaged(tmp_path / "ours.npz", 1), tmp_path / "theirs.npz")


def test_an_inspection_checks_on_request(sound: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect_checkpoint(sound).crc_unchecked
    checked = inspect_checkpoint(sound, check=True)
    assert (checked.crc_unchecked, checked.crc_checked) == (False, True)
    for which in range(len(ROWS)):
        bad = damaged(sound, which)
        assert len(inspect_checkpoint(bad).tensors) == len(ROWS)
        assert main(["inspect", "--check", str(bad)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert "crc differs" in said.err
    assert main(["inspect", "--check", "--json", str(sound)]) == 0
    assert json.loads(capsys.readouterr().out)["crc_checked"]


def test_what_is_compressed_is_checked_too(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.npz")
    assert inspect_checkpoint(path, check=True).crc_checked
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        crc = archive.getinfo("fc.weight.npy").CRC.to_bytes(4, "little")
    place = data.rindex(crc)  # the directory comes last
    data[place] ^= 1
    path.write_bytes(data)
    for read in (
        lambda: inspect_checkpoint(path, check=True),
        lambda: convert_checkpoint(path, tmp_path / "o.npz", layers=LAYERS),
    ):
        with pytest.raises(NotACheckpointError, match="crc differs"):
            read()


def test_the_pickle_of_a_damaged_file_is_not_believed(tmp_path: Path) -> None:
    path = write_torch(tmp_path / "a.pth")
    path.write_bytes(path.read_bytes().replace(b"fc.bias", b"fx.bias"))
    with pytest.raises(NotACheckpointError, match=r"data\.pkl' is damaged: the crc differs"):
        open_checkpoint(path)


def test_checksums_that_torch_left_out_are_not_missed(tmp_path: Path) -> None:
    path = write_torch(tmp_path / "a.pth")
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start, infos = archive.start_dir, archive.infolist()
    for info in infos:  # as torch.serialization.set_crc32_options(False) leaves them
        start = data.index(b"PK\1\2", start)
        data[start + 16 : start + 20] = bytes(4)
        start += 46 + len(info.filename)
    path.write_bytes(data)
    assert not inspect_checkpoint(path).crc_unchecked
    assert convert_checkpoint(path, tmp_path / "b.npz", layers=LAYERS).verified
