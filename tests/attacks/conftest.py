"""Builders of torch files without torch, opcode by opcode and record by record; commands in copies of one process."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.checkpoints.protobuf import ProtobufScan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def whole(value: int) -> bytes:
    data = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def many(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def numbers(values) -> bytes:
    return many(*map(whole, values))


def tensor(shape, stride, count=4, *, offset=0, key="0", storage="FloatStorage", make="_rebuild_tensor_v2") -> bytes:
    reference = many(text("storage"), name("torch", storage), text(key), text("cpu"), whole(count)) + b"Q"
    hooks = name("collections", "OrderedDict") + b")R"
    geometry = (whole(offset), numbers(shape), numbers(stride))
    return name("torch._utils", make) + many(reference, *geometry, b"\x89", hooks) + b"R"


def table(**entries: bytes) -> bytes:
    return b"\x80\x02}(" + b"".join(text(key) + value for key, value in entries.items()) + b"u."


def write_torch(path: Path, pickle: bytes, records: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", pickle)
        for record, data in (records if records is not None else {"data/0": bytes(16)}).items():
            archive.writestr(f"model/{record}", data)
    return path


@pytest.fixture
def few_fields(monkeypatch: pytest.MonkeyPatch) -> int:
    """Fields that a file of protobuf may hold, in the place of four million: they are counted alike."""
    few = 50_000
    monkeypatch.setattr(ProtobufScan.__init__, "__defaults__", (few,))
    return few


@pytest.fixture
def build() -> SimpleNamespace:
    return SimpleNamespace(
        text=text, whole=whole, name=name, many=many, numbers=numbers, tensor=tensor, table=table, torch=write_torch
    )


SIDE = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

def build():
    weights = {"weight": np.ones((2, 3), np.float32)}
    return ArrayModel((ArrayLayer("fc", "torch.nn.Linear", lambda x, weight: x @ weight.T, weights),))
"""
PROJECT = """
[reference]
model = "original.py:build"
[candidate]
model = "port.py:build"
[forward]
inputs = "x.npz"
[run]
rungs = ["parameters", "weights", "forward"]
"""
# For each line of standard input, [folder, words, number, powerless]: runs the command in a copy of this process, which
# kills itself just before the file operation of that number in the folder. Prints how it ended, all the operations and
# what it said of errors. The superuser may do everything: a powerless copy has given up all such powers.
SERVER = r"""
import contextlib, ctypes, io, json, os, signal, sys
from align.cli.main import main

def listen(folder, last, seen):
    def hear(event, arguments):
        if event == "open":
            changes = isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE
        else:
            changes = event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove")
        if not changes or isinstance(arguments[0], int) or not os.path.abspath(arguments[0]).startswith(folder):
            return
        seen.append(f"{event} {os.path.basename(arguments[0])}")
        if len(seen) == last:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hear)

def give_up_powers(folder):
    version = (ctypes.c_uint32 * 2)(0x20080522, 0)  # of the structure below: effective, permitted, inherited, twice
    if ctypes.CDLL(None).capset(version, (ctypes.c_uint32 * 6)()):
        raise OSError("capset")
    os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "closed")

def run(folder, words, last, powerless):
    os.chdir(folder)
    if powerless:
        give_up_powers(folder)
    listen(os.getcwd(), last, seen := [])
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            code = main(words)
        except BaseException as error:
            code = repr(error)
    return [code, seen, said.getvalue()]

printed = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
os.chdir(sys.argv[1])
main(["run"])  # imports all that the copies need
for line in sys.stdin:
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.write(writing, json.dumps(run(*json.loads(line))).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as stream:
        told = stream.read()
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(printed, (told or json.dumps([ended, [], ""])).encode() + b"\n")
"""


def make_project(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name in ("original", "port"):
        (folder / f"{name}.py").write_text(SIDE)
    np.savez(folder / "x.npz", x=np.ones((4, 3), np.float32))
    (folder / "align.toml").write_text(PROJECT)
    return folder


@pytest.fixture(scope="session")
def project() -> Callable[[Path], Path]:
    """Make a folder with two sides that agree, of which `align run` needs no framework."""
    return make_project


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., SimpleNamespace]]:
    """Run a command in a copy of one process that has imported all: its `code`, changes `seen` and what it `said`."""
    command = [sys.executable, "-W", "ignore", "-c", SERVER, str(make_project(tmp_path_factory.mktemp("first") / "p"))]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True, **pipes)

    def run(folder: Path, words: str, *, kill_at: int = 0, powerless: bool = False) -> SimpleNamespace:
        print(json.dumps([str(folder), words.split(), kill_at, powerless]), file=server.stdin, flush=True)
        code, seen, said = json.loads(server.stdout.readline())
        return SimpleNamespace(code=code, seen=seen, said=said)

    yield run
    server.communicate(timeout=600)
