"""A real S3 server in this process, one for all tests of the folder."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "a-secret-that-is-nowhere"


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer(port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """An empty bucket; what is fetched goes to `fetched` in the folder of the test."""
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "fetched").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "fetched"))
    s3fs.S3FileSystem.clear_instance_cache()
    storage = s3fs.S3FileSystem()
    storage.mkdir("ranks")
    yield "s3://ranks"
    storage.rm("ranks", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()
    assert [*(tmp_path / "fetched").iterdir()] == []
