"""A conversion that is killed, interrupted or runs out of room leaves the destination old, absent or complete."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEGABYTES = 40
KILLS = 12  # of each kind of destination
SHARDS = ("--max-shard-size", "12MB")
# Runs the command for each line of a moment and arguments, in a copy of a process that has done it once, and kills it
# at that moment; prints how many moments there were, and how it ended.
SERVER = """
import json
from align.cli.main import main
printed = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
code = main(sys.argv[1:])
os.write(printed, f"0 {code}\\n".encode())
for line in sys.stdin:
    moment, arguments = json.loads(line)
    if not (child := os.fork()):
        at_moment(moment, signal.SIGKILL)
        code = main(arguments)
        sys.setprofile(None)
        os.write(printed, f"{len(moments)} ".encode())
        os._exit(code)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(printed, f"{moment if ended < 0 else ''} {ended}\\n".encode())
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of MindSpore, whose names a conversion keeps."""
    return write(tmp_path_factory.mktemp("source") / "new.safetensors", 1, MEGABYTES)


def write(path: Path, seed: int, megabytes: int) -> Path:
    """Write tensors of 4 MB each."""
    random_bytes = np.random.default_rng(seed)
    tensors = []
    for number in range(megabytes // 4):
        value = np.frombuffer(random_bytes.bytes(4_000_000), np.float32).reshape(1000, 1000)
        tensors.append(StoredTensor(f"layers.{number}.weight", value.shape, "float32", lambda value=value: value))
    plugin = next(plugin for plugin in checkpoint_formats().values() if path.suffix in plugin.suffixes)
    with path.open("wb") as stream:
        plugin.write(stream, tensors, {"format": "ms"})
    return path


@dataclass
class Case:
    """A conversion as a command; `opened` is the file by which its result is read, `old` all that was there before."""

    source: Path
    arguments: list[str]
    opened: Path
    old: dict[str, bytes] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.opened.parent

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "align.cli.main", "convert", str(self.source), *self.arguments]

    def start(self, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)

    def run(self) -> None:
        subprocess.run(self.command, capture_output=True, check=True)

    def is_writing(self) -> bool:
        return any(path.suffix == ".part" for path in self.folder.iterdir())

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def keep_as_old(self) -> None:
        self.old = {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def put_back_old(self) -> None:
        """What killed processes left behind stays."""
        for path in self.folder.iterdir():
            if path.is_file():
                path.unlink()
        for name, content in self.old.items():
            (self.folder / name).write_bytes(content)

    def state(self) -> str:
        """Say what is there; fails if it is anything but nothing, the old checkpoint, or the whole new one."""
        if not self.opened.exists():
            return "absent"
        if self.old and all((self.folder / name).read_bytes() == content for name, content in self.old.items()):
            return "old"
        expected, found = open_checkpoint(self.source).tensors, open_checkpoint(self.opened).tensors
        assert found.keys() == expected.keys()
        assert all(found[name].load().tobytes() == expected[name].load().tobytes() for name in expected)
        return "complete"


class Server:
    """Converts in milliseconds, each time in a process of its own."""

    def __init__(self, code: str, *first: str) -> None:
        command, pipe = [sys.executable, "-c", code + SERVER, *first], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        assert self.ended() == (0, 0)

    def run(self, case: Case, moment: int = 0) -> tuple[int, int]:
        """Run to that moment (0: to the end); return how many there were, and the exit code, -9 where it was killed."""
        assert self.process.stdin
        line = [moment, ["convert", str(case.source), *case.arguments]]
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        return self.ended()

    def ended(self) -> tuple[int, int]:
        assert self.process.stdout
        moments, code = map(int, self.process.stdout.readline().split())
        return moments, code


@pytest.fixture(scope="module")
def server(source: Path, moments: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(moments, "convert", str(source), str(tmp_path_factory.mktemp("first") / "first.ckpt"))
    yield server
    server.process.communicate()


@pytest.fixture(params=["absent", "existing", "sharded", "existing shards"])
def case(request: pytest.FixtureRequest, source: Path, tmp_path: Path) -> Case:
    folder = tmp_path / "destination"
    folder.mkdir()
    if "shard" in request.param:
        made = Case(source, [str(folder / "m.safetensors"), *SHARDS], folder / "m.safetensors.index.json")
    else:
        made = Case(source, [str(folder / "m.ckpt")], folder / "m.ckpt")
    if "existing" in request.param:
        older = write(tmp_path / "old.safetensors", 2, MEGABYTES)
        replace(made, source=older).run()
        made.keep_as_old()
        made.arguments.append("--overwrite")
    return made


def test_a_killed_conversion_leaves_the_old_file_none_or_the_whole_and_the_next_one_cleans_up(
    case: Case, server: Server
) -> None:
    last, code = server.run(case)
    assert (code, case.state()) == (0, "complete")
    complete = case.names()
    seen: list[str] = []
    for kill in range(KILLS):
        case.put_back_old()
        moment = 1 + kill * (last - 1) // (KILLS - 1)
        assert server.run(case, moment) == (moment, -signal.SIGKILL)
        seen += [case.state()] + (["half written"] if case.is_writing() else [])
    assert seen.count("half written") >= KILLS // 2
    if case.old and len(case.old) == 1:
        assert "absent" not in seen, "a single file is replaced in one step"
    case.put_back_old()
    case.run()
    assert case.state() == "complete"
    assert case.names() == complete


@pytest.mark.parametrize(("number", "code", "said"), [(2, 130, "interrupted"), (15, 143, "terminated")])
@pytest.mark.parametrize("moment", ["after mkdir 1", "before write 5", "before replace 1", "after replace 1"])
def test_an_interrupted_conversion_leaves_nothing_and_says_so_in_one_line(
    number: int, code: int, said: str, moment: str, source: Path, tmp_path: Path, run_until: Any
) -> None:
    destination = tmp_path / "m.ckpt"
    destination.write_bytes(b"old")
    case = Case(source, [str(destination), "--overwrite"], destination)
    case.keep_as_old()
    ended = run_until(moment, number, "convert", str(source), *case.arguments)
    assert case.state() == ("complete" if moment.startswith("after replace") else "old")
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", f"align: {said}\n")
    assert case.names() == ["m.ckpt"]


@pytest.mark.parametrize("more", [(), SHARDS])
def test_room_that_runs_out_is_told_and_leaves_the_old_file(
    source: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """A limit on the size of files stands for a quota: the system tells of both only when a write fails."""
    destination = tmp_path / "m.safetensors"
    destination.write_bytes(b"old")
    case = Case(source, [str(destination), "--overwrite", *more], destination)
    case.keep_as_old()
    limit = 10_000_000
    process = case.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    printed, said = process.communicate()
    assert (process.returncode, printed) == (2, "")
    assert said.startswith(f"align: no room at {tmp_path}")
    assert "bytes are needed" in said
    assert "bytes are free (File too large)" in said
    assert len(said.splitlines()) == 2
    assert case.names() == ["m.safetensors"]
    assert case.state() == "old"
