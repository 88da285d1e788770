"""The exit code says what was found, whatever became of the standard streams: closed, left by their reader, full."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

# Python starts with the streams that the shell leaves open. Each command, "stream|words", runs to its end in a copy in
# which that stream is a full disk, or standard output a pipe whose reader has left.
PROGRAM = """
import contextlib, gc, io, json, os, sys
from align.cli import main

aside = io.StringIO()
with contextlib.redirect_stdout(aside), contextlib.redirect_stderr(aside):
    main.main(["diff", "a.npz", "b.npz"])  # imports what the copies need; the streams are as they were
gc.freeze()
codes = []
for line in sys.argv[1:]:
    if not (child := os.fork()):
        stream, _, words = line.partition("|")
        if stream == "reader":
            reading, writing = os.pipe()
            os.close(reading)
            os.dup2(writing, 1)
        elif stream:
            os.dup2(os.open("/dev/full", os.O_WRONLY), int(stream))
        sys.argv = ["align", *words.split()]
        main.run()
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with open("codes", "w") as stream:
    json.dump(codes, stream)
"""
COMMANDS = {"diff a.npz b.npz": 0, "diff a.npz c.npz --json": 1, "diff a.npz none.npz": 2}
WRITING = {"convert a.npz out.npz --target torch": 0, "diff a.npz out.npz": 0}
CLOSED = {
    ">&-": COMMANDS | {"--version": 0},
    "2>&-": COMMANDS,
    "<&- >&- 2>&-": COMMANDS | WRITING,
    "": {f"{stream}|{words}": code for stream in ("reader", "2") for words, code in COMMANDS.items()}
    | {"reader|loss --help": 0, "|map net.py:net net.py:net": 0, "1|diff a.npz b.npz": 2},
}
CLOSING = """
import os, sys
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

sys.stdout.close(), sys.stderr.close(), os.close(2)

def net():
    weight = np.eye(3, dtype=np.float32)
    return ArrayModel((ArrayLayer("fc", "torch.nn.Linear", lambda x, w: x @ w.T, {"w": weight}),))
"""


@pytest.mark.parametrize("closed", CLOSED)
def test_the_code_is_that_of_the_verdict(tmp_path: Path, closed: str) -> None:
    """A file that is written never takes the place of a closed stream; code of a side closes none."""
    (tmp_path / "net.py").write_text(CLOSING, encoding="utf-8")
    for name, bias in (("a", 0), ("b", 0), ("c", 1)):
        np.savez(tmp_path / f"{name}.npz", **{"fc.weight": np.ones((2, 3)), "fc.bias": np.full(2, bias)})
    commands = {line if "|" in line else f"|{line}": code for line, code in CLOSED[closed].items()}
    program = shlex.join([sys.executable, "-W", "ignore", "-c", PROGRAM, *commands])
    ended = subprocess.run(f"{program} {closed}", shell=True, cwd=tmp_path, capture_output=True, check=False)
    assert dict(zip(commands, json.loads((tmp_path / "codes").read_text()), strict=True)) == commands
    said = (ended.stdout + ended.stderr).decode()
    assert "internal error" not in said
    if "1|diff a.npz b.npz" in commands:
        assert f"align: standard output: {os.strerror(errno.ENOSPC)}\nHint: " in said
    if CLOSED[closed].keys() > WRITING.keys():
        with np.load(tmp_path / "out.npz") as written:
            assert sorted(written) == ["fc.bias", "fc.weight"]
