"""Killed at any change of its files, a command leaves what the same command, given again, makes whole of."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.runs.run_folder import KINDS, RunFolder

if TYPE_CHECKING:
    from pathlib import Path

# For each line of standard input, [folder, number, words]: runs the command in a copy of this process, which kills
# itself just before the file operation of that number in the folder; prints how it ended, and all the operations.
SERVER = r"""
import json, os, signal, sys
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

printed = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
os.chdir(sys.argv[1])
main(json.loads(sys.argv[2]))  # imports all that the copies need
for line in sys.stdin:
    folder, last, words = json.loads(line)
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.chdir(folder)
        listen(os.getcwd(), last, seen := [])
        code = main(words)
        os.write(writing, json.dumps(seen).encode())
        os._exit(code)
    os.close(writing)
    with open(reading) as stream:
        seen = stream.read()
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(printed, (json.dumps([ended, json.loads(seen or "[]")]) + "\n").encode())
"""
SIDE = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

def build():
    weights = {"weight": np.ones((2, 3), np.float32)}
    return ArrayModel((ArrayLayer("fc", "torch.nn.Linear", lambda x, weight: x @ weight.T, weights),))
"""
RUN = ["run", "--keep-going"]
# The last step of each part: what comes in between is one of the same kind.
MOMENTS = ["map.json", "model.json", "candidate.ckpt", "forward.json"]


class Server:
    """Commands in copies of one process that has imported all that they need."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-W", "ignore", "-c", SERVER, str(folder), json.dumps(RUN)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def run(self, folder: Path, words: list[str], last: int = 0) -> tuple[int, list[str]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([str(folder), last, words]), file=self.process.stdin, flush=True)
        ended, seen = json.loads(self.process.stdout.readline())
        return ended, seen


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = Server(project(tmp_path_factory.mktemp("first") / "project"))
    with made.process:
        yield made


def project(folder: Path) -> Path:
    folder.mkdir()
    for name in ("original", "port"):
        (folder / f"{name}.py").write_text(SIDE)
    np.savez(folder / "x.npz", x=np.ones((4, 3), np.float32))
    (folder / "align.toml").write_text(
        '[reference]\nmodel = "original.py:build"\n[candidate]\nmodel = "port.py:build"\n'
        '[forward]\ninputs = "x.npz"\n[run]\nrungs = ["parameters", "weights", "forward"]\n'
    )
    return folder


def left(folder: Path) -> tuple[dict[str, str], list[str]]:
    """The states of all rungs, and what lies in the run folder."""
    document = RunFolder(folder / "align-run").read("ladder") or {"rungs": []}
    names = sorted(str(path.relative_to(folder)) for path in (folder / "align-run").rglob("*"))
    return {one["name"]: one["state"] for one in document["rungs"]}, names


def test_a_run_that_is_killed_at_any_moment_is_made_whole_by_the_next(server: Server, tmp_path: Path) -> None:
    code, seen = server.run(project(tmp_path / "whole"), RUN)
    assert code == 0
    whole = left(tmp_path / "whole")
    for name in MOMENTS:
        place = 1 + next(n for n, one in enumerate(seen) if one == f"os.rename {name}")
        folder = project(tmp_path / re.sub(r"\W", "_", name))
        ended, _ = server.run(folder, RUN, place)
        assert ended == -signal.SIGKILL, name
        for kind in (*KINDS, "ladder"):
            RunFolder(folder / "align-run").read(kind)
        assert server.run(folder, RUN)[0] == 0, name
        assert left(folder) == whole, name


def test_a_capture_that_is_killed_before_its_manifest_is_made_whole_by_the_next(server: Server, tmp_path: Path) -> None:
    words = ["capture", "port.py:build", "--inputs", "x.npz", "-o", "trace"]
    code, seen = server.run(project(tmp_path / "whole"), words)
    assert code == 0
    begun = next(n for n, one in enumerate(seen) if one == "open manifest.jsonl")
    for last in range(2, begun + 2, 2):
        folder = project(tmp_path / str(last))
        assert server.run(folder, words, last)[0] == -signal.SIGKILL
        assert server.run(folder, words)[0] == 0, seen[last - 1]
        assert {path.name for path in (folder / "trace").iterdir()} == {
            path.name for path in (tmp_path / "whole" / "trace").iterdir()
        }
