"""Commands and tasks on files of a real S3 server, which runs in this process."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from align.checkpoints.open_checkpoint import open_checkpoint
from align.cli.main import main
from align.core.atomic_files import local_copy, local_destination, remote_url
from align.errors import CannotRunError, MissingFileError, UsageError


def put(folder: Path, url: str, value: float) -> Path:
    path = folder / f"{value}.safetensors"
    save_file({"fc.weight": np.full((2, 3), value, np.float32)}, path)
    with local_destination(url) as written:
        written.write_bytes(path.read_bytes())
    return path


def test_a_url_is_known_though_a_path_joins_its_slashes() -> None:
    assert remote_url(Path("s3://bucket/a/b.npz")) == "s3://bucket/a/b.npz"
    assert remote_url("gs://bucket/a") == "gs://bucket/a"
    assert [remote_url(path) for path in ("a/b.npz", "/a/b", "c:/a", "module:function", "file.py:f")] == [None] * 5


def test_commands_read_and_write_object_storage(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = put(tmp_path, f"{bucket}/a.safetensors", 1.0)
    put(tmp_path, f"{bucket}/b.safetensors", 1.5)
    assert main(["inspect", f"{bucket}/a.safetensors", "--json"]) == 0
    assert "fc.weight" in capsys.readouterr().out
    assert main(["diff", f"{bucket}/a.safetensors", str(plain)]) == 0
    run = tmp_path / "run"
    assert main(["diff", f"{bucket}/a.safetensors", f"{bucket}/b.safetensors", "--run", str(run)]) == 1
    assert main(["convert", f"{bucket}/a.safetensors", f"{bucket}/out/c.ckpt", "--layer", "fc=linear"]) == 0
    with local_copy(f"{bucket}/out/c.ckpt") as found:
        assert [tensor.shape for tensor in open_checkpoint(found).tensors.values()] == [(2, 3)]
    assert main(["diff", f"{bucket}/a.safetensors", f"{bucket}/out/c.ckpt"]) == 0
    capsys.readouterr()
    assert main(["convert", f"{bucket}/b.safetensors", f"{bucket}/out/c.ckpt", "--layer", "fc=linear"]) == 2
    assert "s3://ranks/out/c.ckpt is there already" in capsys.readouterr().err
    written = [path.read_bytes() for path in run.rglob("*") if path.is_file()]
    assert written
    assert not any(os.environ["AWS_SECRET_ACCESS_KEY"].encode() in content for content in written)


def test_a_folder_is_fetched_whole_and_removed(bucket: str, tmp_path: Path) -> None:
    for name in ("one", "deep/two"):
        put(tmp_path, f"{bucket}/step/{name}.safetensors", 2.0)
    with local_copy(f"{bucket}/step") as folder:
        names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.safetensors"))
        assert load_file(folder / "one.safetensors")["fc.weight"][0, 0] == 2.0
    assert names == ["deep/two.safetensors", "one.safetensors"]
    assert not folder.exists()


def test_what_fails_is_one_message_and_leaves_nothing(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["inspect", f"{bucket}/none.safetensors"]) == 2
    assert "remote file not found: s3://ranks/none.safetensors" in capsys.readouterr().err
    with (
        pytest.raises(CannotRunError, match=r"s3://no-such-bucket/a\.npz or its bucket does not exist"),
        local_destination("s3://no-such-bucket/a.npz") as path,
    ):
        path.write_bytes(b"1")
    with pytest.raises(ZeroDivisionError), local_destination(f"{bucket}/half.npz") as path:  # noqa: PT012
        path.write_bytes(b"1")
        raise ZeroDivisionError
    with pytest.raises(MissingFileError), local_copy(f"{bucket}/half.npz"):
        pass
    with pytest.raises(UsageError, match="holds credentials") as caught, local_copy("s3://someone:word@ranks/a"):
        pass
    assert "word" not in str(caught.value)
    with pytest.raises(UsageError, match=r"addresses of xyz:// are not supported"), local_copy("xyz://ranks/a"):
        pass


def test_a_run_folder_is_of_this_machine(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(put(tmp_path, f"{bucket}/a.safetensors", 1.0))
    assert main(["diff", path, path, "--run", f"{bucket}/run"]) == 2
    assert "cannot be a run folder" in capsys.readouterr().err
