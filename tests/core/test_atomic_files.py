from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from align.core.atomic_files import (
    atomic_folder,
    atomic_path,
    atomic_writer,
    check_space,
    existing_file,
    sha256_of,
    write_text,
)
from align.core.thresholds import BLOCK_BYTES
from align.errors import DestinationError, MissingFileError, NoSpaceError

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "weights.ckpt"
    target.write_bytes(b"old")

    def interrupted_write() -> None:
        with atomic_writer(target) as stream:
            stream.write(b"half of the ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_write()
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["weights.ckpt"]


def test_nothing_appears_under_the_name_before_the_end(tmp_path: Path) -> None:
    target = tmp_path / "weights.ckpt"
    with atomic_writer(target) as stream:
        stream.write(b"new")
        stream.flush()
        assert not target.exists()
    assert target.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["weights.ckpt"]


def test_the_written_file_gets_the_mode_of_the_users_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "map.toml", "")
    finally:
        os.umask(old)
    assert (tmp_path / "map.toml").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["missing/weights.ckpt", "a-file/weights.ckpt", "x" * 400])
def test_a_destination_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(DestinationError, match="cannot write") as caught:
        write_text(tmp_path / name, "text")
    assert str(tmp_path / name) in caught.value.message


def test_a_block_that_writes_nothing_is_an_error_not_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(DestinationError), atomic_path(tmp_path / "weights.ckpt"):
        pass
    assert not list(tmp_path.iterdir())


def test_what_stands_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "plain.pth").touch()
    os.mkfifo(tmp_path / "fifo")
    for name, said in {
        ".": "it is a folder",
        "fifo": "it is not a regular file",
        "/dev/zero": "it is not a regular file",
        "loop": "it is a link that leads to no file",
        "plain.pth/x.ckpt": "plain.pth is not a folder",
        "gone/x.ckpt": "checkpoint not found",
    }.items():
        with pytest.raises(MissingFileError, match=said):
            existing_file(tmp_path / name, "checkpoint")
    present = tmp_path / "weights.pth"
    present.touch()
    assert existing_file(present, "checkpoint") == present


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1])
def test_the_hash_covers_every_block(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    path = tmp_path / "file"
    path.write_bytes(content[:size])
    assert sha256_of(path) == hashlib.sha256(content[:size]).hexdigest()


def test_a_leftover_of_a_killed_process_is_removed_by_the_next_write(tmp_path: Path) -> None:
    target = tmp_path / "weights.ckpt"
    killed = f"""
import os, signal
from pathlib import Path
from align.core.atomic_files import atomic_path
with atomic_path(Path({str(target)!r})) as path:
    path.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == -signal.SIGKILL
    (leftover,) = tmp_path.iterdir()
    assert (leftover / "weights.ckpt").read_bytes() == b"half"

    write_text(tmp_path / "another.ckpt", "")
    assert leftover.is_dir()
    write_text(target, "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another.ckpt", "weights.ckpt"]


def test_the_work_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "weights.ckpt"
    writing = f"""
from pathlib import Path
from align.core.atomic_files import atomic_path
with atomic_path(Path({str(target)!r})) as path:
    path.write_bytes(b"the slow one")
    print("writing", flush=True)
    input()
"""
    with subprocess.Popen([sys.executable, "-c", writing], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as slow:
        assert slow.stdout is not None
        assert slow.stdout.readline() == b"writing\n"
        write_text(target, "the quick one")
        assert target.read_bytes() == b"the quick one"
        slow.communicate(b"\n")
    assert slow.returncode == 0
    assert target.read_bytes() == b"the slow one"
    assert [path.name for path in tmp_path.iterdir()] == ["weights.ckpt"]


def test_a_folder_that_only_looks_like_a_leftover_keeps_what_is_not_ours(tmp_path: Path) -> None:
    alike = tmp_path / ".weights.ckpt.abcdefgh.part"
    alike.mkdir()
    (alike / "thesis.tex").touch()
    (tmp_path / ".weights.ckpt.ijklmnop.part").symlink_to(alike)
    write_text(tmp_path / "weights.ckpt", "")
    assert (alike / "thesis.tex").is_file()
    assert (tmp_path / ".weights.ckpt.ijklmnop.part").is_symlink()


def test_many_processes_may_write_one_destination_at_once(tmp_path: Path) -> None:
    """Each of them takes the others' folders for leftovers if it can."""
    target = tmp_path / "weights.ckpt"
    code = (
        "import sys; from pathlib import Path; from align.core.atomic_files import write_text; "
        f"[write_text(Path({str(target)!r}), sys.argv[1] * 1000) for _ in range(200)]"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, letter]) for letter in "abcd"]
    assert [process.wait(600) for process in processes] == [0, 0, 0, 0]
    assert target.read_text() in [letter * 1000 for letter in "abcd"]
    assert [path.name for path in tmp_path.iterdir()] == ["weights.ckpt"]


def test_a_link_stays_a_link_and_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "v1.ckpt").write_text("old")
    link = tmp_path / "latest.ckpt"
    link.symlink_to("disk/v1.ckpt")
    write_text(link, "new")
    assert link.readlink().as_posix() == "disk/v1.ckpt"
    assert (tmp_path / "disk" / "v1.ckpt").read_text() == "new"
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["v1.ckpt"]


@pytest.mark.parametrize(
    ("target", "said"), [("nowhere", "link to nothing"), ("link", "link to nothing"), ("/dev/full", "no regular file")]
)
def test_a_link_to_no_file_is_refused(tmp_path: Path, target: str, said: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(DestinationError, match=said):
        write_text(link, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_folder_or_a_device_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for destination in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(DestinationError, match="no regular file"):
            write_text(destination, "new")


def test_a_folder_that_may_not_be_written_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    with tempfile.TemporaryDirectory() as name, _as_nobody(Path(name)):
        with pytest.raises(DestinationError, match=r"cannot write .*weights\.ckpt: Permission denied"):
            write_text(Path(name, "weights.ckpt"), "new")
        assert not list(Path(name).iterdir())


@contextlib.contextmanager
def _as_nobody(folder: Path) -> Iterator[None]:
    """Let the folder be read only, also for the superuser, who may write everywhere."""
    folder.chmod(0o555)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o755)


def test_a_folder_that_vanishes_meanwhile_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()

    def write() -> None:
        with atomic_path(folder / "weights.ckpt") as temporary:
            temporary.write_text("new")
            shutil.rmtree(folder)

    with pytest.raises(DestinationError, match="cannot write"):
        write()
    assert not folder.exists()


def test_too_little_space_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    check_space(tmp_path, free // 2)
    with pytest.raises(NoSpaceError, match=r"1,000,000,000,000,000,000 bytes are needed, [\d,]+ bytes are free"):
        check_space(tmp_path, 10**18)
    with pytest.raises(NoSpaceError, match="needed"), atomic_path(tmp_path / "weights.ckpt", 10**18):
        pytest.fail("the block must not run")
    assert not list(tmp_path.iterdir())


def test_space_that_runs_out_meanwhile_leaves_the_old_file_and_is_told(tmp_path: Path) -> None:
    """A limit on the size of files stands for a quota; the system tells of both only when a write fails."""
    target = tmp_path / "weights.ckpt"
    target.write_bytes(b"old")

    def write() -> None:
        with atomic_path(target, 2 << 20) as temporary:
            temporary.write_bytes(bytes(2 << 20))

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with (
            pytest.raises(NoSpaceError, match=r"bytes are free \(File too large\)"),
            atomic_folder(tmp_path / "ranks", ()) as folder,
        ):
            (folder / "a").write_bytes(bytes(1 << 21))
        assert not any("ranks" in path.name for path in tmp_path.iterdir())
        with pytest.raises(NoSpaceError, match=r"2,097,152 bytes are needed, .* bytes are free \(File too large\)"):
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["weights.ckpt"]


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_folder_that_is_replaced_is_there_at_every_moment(
    exchanges: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from align.core import atomic_files

    if not exchanges:
        monkeypatch.setattr(atomic_files, "_exchange", lambda *_: False)
    folder = tmp_path / "made"
    removed = shutil.rmtree
    seen = []

    def watched(path, **options):
        seen.append((folder / "a").read_text())
        removed(path, **options)

    monkeypatch.setattr(shutil, "rmtree", watched)
    for text in ("old", "new"):
        with atomic_files.atomic_folder(folder, ("a",)) as part:
            (part / "a").write_text(text)
    assert (folder / "a").read_text() == "new"
    assert seen.count("new") == len(seen) - 1  # while the old one is removed the new one is in its place
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
