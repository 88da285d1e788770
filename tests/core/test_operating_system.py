"""What runs where the system has no `fcntl`, no `resource` and few calls of POSIX; imports: test_imports.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core import operating_system

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
# A Windows as far as Linux can play it: modules and calls that Python has not there.
WINDOWS = """
import contextlib, io, json, mmap, os, signal, subprocess, sys, tempfile, warnings
import filelock, numpy

POSIX_MODULES = {"fcntl", "resource", "pwd", "grp", "termios"}

class Blocked:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in POSIX_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in POSIX_MODULES:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Blocked)
for name in ("pread", "preadv", "pwrite", "pwritev", "sysconf", "getuid", "geteuid", "sched_getaffinity", "fork",
             "O_NOFOLLOW", "O_DIRECTORY", "O_ACCMODE"):
    delattr(os, name)
del signal.SIGHUP, mmap.MADV_RANDOM
"""
EACH_COMMAND = f"""{WINDOWS}
from align.cli.main import main
outcomes = []
for line in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as failed:
        code = main(line)
    outcomes.append([code, failed.getvalue() if code else ""])
print(json.dumps(outcomes))
"""
LOCK_TWICE = f"""{WINDOWS}
from pathlib import Path
from align.errors import FolderInUseError
from align.core.operating_system import folder_lock
warnings.simplefilter("ignore")  # filelock says that it can but write a file here
folder = Path(sys.argv[1])
for _ in range(2):
    with folder_lock(folder / "lock", folder, "run"):
        try:
            with folder_lock(folder / "lock", folder, "run"):
                print("twice")
        except FolderInUseError:
            print("refused")
print([path.name for path in folder.iterdir()])
"""
# What a module may use through align/core/operating_system.py only.
POSIX_ONLY = re.compile(
    r"\bimport (?:fcntl|resource|pwd|grp|termios)\b|\bmmap\.MADV_|\bsignal\.SIGKILL\b|\bos\.(?:preadv?|pwritev?|getuid"
    r"|geteuid|fork|sched_getaffinity|O_NOFOLLOW|O_DIRECTORY|O_ACCMODE|sendfile|copy_file_range)\b"
)


def python(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_commands_without_a_framework_run_without_the_calls_of_posix(tmp_path: Path) -> None:
    weights = {"conv.weight": np.ones((2, 3, 3, 3), np.float32), "conv.bias": np.ones(2, np.float32)}
    np.savez(tmp_path / "a.npz", **weights)
    source, copy, ported, name_map = (str(tmp_path / name) for name in ("a.npz", "b.npz", "c.safetensors", "map.json"))
    lines = [
        ["--version"],
        ["--help"],
        ["convert", source, ported],
        ["convert", source, copy],
        ["inspect", ported],
        ["diff", source, copy],
        ["map", source, ported, "--out", name_map],
    ]
    assert json.loads(python(EACH_COMMAND, json.dumps(lines))) == [[0, ""]] * len(lines)
    assert {*open_checkpoint(Path(ported)).tensors} == {"conv.weight", "conv.bias"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz", "c.safetensors", "map.json"]


def test_a_folder_is_locked_once_without_flock(tmp_path: Path) -> None:
    assert python(LOCK_TWICE, str(tmp_path)).splitlines() == ["refused", "refused", "[]"]


def test_calls_of_posix_stand_in_one_module() -> None:
    places = [path for path in (ROOT / "align").rglob("*.py") if POSIX_ONLY.search(path.read_text(encoding="utf-8"))]
    assert [path.name for path in places] == ["operating_system.py"]


def test_a_file_is_read_and_written_at_places_with_and_without_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def contents() -> tuple[bytes, int, bytes, int]:
        descriptor = operating_system.file_without_name()
        operating_system.write_at(descriptor, memoryview(b"0123456789"), 0)
        written = operating_system.write_at(descriptor, memoryview(b"ab"), 4)
        buffer = bytearray(8)
        count = operating_system.read_into(descriptor, memoryview(buffer), 3)
        read = operating_system.read_at(descriptor, 4, 2)
        os.close(descriptor)
        return read, count, bytes(buffer), written

    expected = (b"23ab", 7, b"3ab6789\0", 2)
    assert contents() == expected
    for name in ("pread", "preadv", "pwrite"):
        monkeypatch.delattr(os, name)
    assert contents() == expected
