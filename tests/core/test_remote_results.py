"""What is fetched and what is said of files of object storage: no more than needed, and no local copy by name."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import numpy as np
import pytest
import s3fs
from safetensors.numpy import save_file

from align.cli.given import local_paths
from align.cli.main import main
from align.core.atomic_files import local_copy, local_destination, with_urls
from align.errors import CannotRunError, FrameworkMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def storage(bucket: str) -> s3fs.S3FileSystem:
    return s3fs.S3FileSystem()


def put_tensors(storage: s3fs.S3FileSystem, folder: Path, name: str, size: int = 6) -> bytes:
    save_file({"fc.weight": np.ones(size, np.float32)}, folder / "put.safetensors")
    content = (folder / "put.safetensors").read_bytes()
    storage.pipe_file(f"ranks/{name}", content)
    return content


def test_results_name_the_address_on_the_screen_in_json_and_in_run_folders(
    storage: s3fs.S3FileSystem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_tensors(storage, tmp_path, "a.safetensors")
    address = "s3://ranks/a.safetensors"
    assert main(["diff", address, address]) == 0
    assert f"{address} (safetensors)" in capsys.readouterr().out
    assert main(["diff", address, address, "--json", "--run", str(tmp_path / "run")]) == 0
    for text in (capsys.readouterr().out, (tmp_path / "run" / "diff.json").read_text(encoding="utf-8")):
        document = json.loads(text)
        assert (document["reference"], document["candidate"]) == (address, address)
        assert document["made_from"]["reference"]["path"] == address
        assert "align-remote" not in text


def test_a_fault_in_a_file_names_its_address(storage: s3fs.S3FileSystem, capsys: pytest.CaptureFixture[str]) -> None:
    storage.pipe_file("ranks/cut.safetensors", b"x" * 5)
    assert main(["inspect", "s3://ranks/cut.safetensors"]) == 2
    said = capsys.readouterr().err
    assert "s3://ranks/cut.safetensors is not a readable checkpoint" in said
    assert "align-remote" not in said


def test_headers_are_fetched_alone_where_they_are_enough(storage: s3fs.S3FileSystem, tmp_path: Path) -> None:
    content = put_tensors(storage, tmp_path, "large.safetensors", 1000)
    header = 8 + int.from_bytes(content[:8], "little")
    with local_copy("s3://ranks/large.safetensors", headers=True) as path:
        assert path.read_bytes() == content[:header] + bytes(len(content) - header)
    with local_copy("s3://ranks/large.safetensors") as path:
        assert path.read_bytes() == content
    assert main(["inspect", "s3://ranks/large.safetensors"]) == 0


def test_an_index_brings_the_files_that_it_names(
    storage: s3fs.S3FileSystem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_tensors(storage, tmp_path, "model/one.safetensors")
    index = {"metadata": {}, "weight_map": {"fc.weight": "one.safetensors"}}
    storage.pipe_file("ranks/model/model.safetensors.index.json", json.dumps(index).encode())
    address = "s3://ranks/model/model.safetensors.index.json"
    assert main(["diff", address, "s3://ranks/model/one.safetensors"]) == 0
    assert main(["inspect", address]) == 0
    assert "fc.weight" in capsys.readouterr().out


def test_two_dumps_are_compared(storage: s3fs.S3FileSystem, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, value in (("torch", 1.0), ("mindspore", 1.5)):
        np.save(tmp_path / "layer.npy", np.full((2, 3), value, np.float32))
        storage.put_file(str(tmp_path / "layer.npy"), f"ranks/{side}/layer.npy")
    assert main(["forward", "s3://ranks/torch", "s3://ranks/mindspore", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["made_from"]["reference"]["path"] == "s3://ranks/torch"


def test_a_signature_in_an_address_is_not_said(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "s3://ranks/a.safetensors?X-Amz-Signature=abc123"]) == 2
    said = capsys.readouterr().err
    assert "s3://ranks/a.safetensors" in said
    assert "abc123" not in said


def test_a_large_upload_that_breaks_leaves_no_object_and_no_parts(
    storage: s3fs.S3FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3fs.core, "calculate_chunksize", lambda size, chunksize=None: 5 * 2**20)
    with pytest.raises(CannotRunError, match=r"s3://ranks/big\.npz"), local_destination("s3://ranks/big.npz") as path:  # noqa: PT012
        path.write_bytes(bytes(16 * 2**20))
        call = storage._call_s3

        async def broken(method: str, *given: object, **options: object) -> object:
            if method == "upload_part" and options["PartNumber"] == 2:
                raise OSError("the line is dead")
            return await call(method, *given, **options)

        monkeypatch.setattr(storage, "_call_s3", broken)
    assert not storage.exists("ranks/big.npz")
    assert storage.list_multipart_uploads("ranks") == []


def test_a_server_that_is_not_there_is_one_message(
    bucket: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    s3fs.S3FileSystem.clear_instance_cache()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert main(["inspect", "s3://ranks/a.safetensors"]) == 2
    said = capsys.readouterr().err
    assert "s3://ranks/a.safetensors cannot be reached" in said
    monkeypatch.undo()


def test_data_is_the_same_object_where_nothing_is_remote() -> None:
    data = {"path": "/a", "list": ["b"]}
    assert with_urls(data) is data


def test_inputs_are_fetched_and_what_is_no_path_stays(storage: s3fs.S3FileSystem) -> None:
    storage.pipe_file("ranks/in.npz", b"arrays")
    given = {"inputs": ["s3://ranks/in.npz"], "reference": "ref.py:make", "dask": "tcp://node1:8786", "seed": 1}
    before = dict(given)
    with local_paths("forward", given):
        assert isinstance(given["inputs"], list)
        assert Path(given["inputs"][0]).read_bytes() == b"arrays"
        assert {name: value for name, value in given.items() if name != "inputs"} == {
            name: value for name, value in before.items() if name != "inputs"
        }


def test_a_job_of_many_tasks_keeps_its_addresses() -> None:
    given = {"reference": Path("s3://ranks/a"), "as_batch": True}
    with local_paths("diff", given):
        assert given == {"reference": Path("s3://ranks/a"), "as_batch": True}


def test_what_may_not_be_read_is_one_message(
    server: str, storage: s3fs.S3FileSystem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_tensors(storage, tmp_path, "a.safetensors")
    with refusing(server):
        assert main(["inspect", "s3://ranks/a.safetensors"]) == 2
    said = capsys.readouterr().err
    assert "s3://ranks/a.safetensors may not be read or written with these credentials" in said
    assert main(["inspect", "s3://ranks/a.safetensors"]) == 0


@contextmanager
def refusing(server: str) -> Iterator[None]:
    """The server takes requests of known users alone, and it knows none."""
    for count in (b"0", b"inf"):  # of further requests that anybody may make
        with urlopen(
            Request(f"{server}/moto-api/reset-auth", data=count, headers={"Content-Type": "text/plain"}, method="POST")
        ):
            pass
        if count == b"0":
            yield


@pytest.mark.parametrize(
    ("package", "address", "said"),
    [
        ("fsspec", "s3://ranks/a", "fsspec is not installed"),
        ("gcsfs", "gs://ranks/a", r"fsspec\[gs\] is not installed"),
    ],
)
def test_a_package_that_is_missing_is_named_with_the_command_that_brings_it(
    package: str, address: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3fs.S3FileSystem.clear_instance_cache()
    monkeypatch.setitem(sys.modules, package, None)  # so that Python finds no such package
    with pytest.raises(FrameworkMissingError, match=said) as caught, local_copy(address):
        pass
    assert "pip install '" in caught.value.hint
