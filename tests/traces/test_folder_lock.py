from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from align.core.operating_system import LOCK, folder_lock
from align.errors import DestinationError, FolderInUseError

if TYPE_CHECKING:
    from pathlib import Path

HOLD = """
import sys
from pathlib import Path
from align.core.operating_system import LOCK, folder_lock
with folder_lock(Path(sys.argv[1]), Path("folder"), "run"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_who_holds_a_lock_is_named_and_it_goes_with_a_process_that_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / LOCK
    command = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(FolderInUseError, match=f"process {other.pid} on {socket.gethostname()} since 20") as caught:
            folder_lock(lock, tmp_path, "run").__enter__()
        assert caught.value.holder is not None
        other.kill()
    assert lock.is_file()
    with folder_lock(lock, tmp_path, "run"):
        assert f'"pid": {os.getpid()},' in lock.read_text()
    assert not lock.exists()


def test_one_process_holds_a_lock_once(tmp_path: Path) -> None:
    with (
        folder_lock(tmp_path / LOCK, tmp_path, "run"),
        pytest.raises(FolderInUseError, match=f"the run folder .* is in use by process {os.getpid()} "),
    ):
        folder_lock(tmp_path / LOCK, tmp_path, "run").__enter__()


@pytest.mark.parametrize("left", ["", "[1]", '{"pid": 1}'])
def test_a_file_that_nobody_holds_is_taken_over_whatever_is_in_it(tmp_path: Path, left: str) -> None:
    (tmp_path / LOCK).write_text(left, encoding="utf-8")
    with folder_lock(tmp_path / LOCK, tmp_path, "run"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match=r"cannot write .*No such file"):
        folder_lock(tmp_path / "gone" / LOCK, tmp_path, "run").__enter__()
