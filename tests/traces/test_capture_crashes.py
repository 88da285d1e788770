"""Whatever ends a capture, the trace is readable and ends at the call that was running: real processes, real ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import align
from align.traces.manifest import MANIFEST

if TYPE_CHECKING:
    from pathlib import Path

ARRAYS = """
import os, signal, resource
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

def first(x):
    return x + 1

def kill(x):
    os.kill(os.getpid(), signal.SIGKILL)

def grow(x):
    return np.tile(x, 1000)

def chain(*functions):
    return ArrayModel(tuple(ArrayLayer(f.__name__, "torch.nn.ReLU", f, {}) for f in functions))

def killed():
    return chain(first, kill)

def full():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((1 << 22) + 5000, (1 << 22) + 5000))
    return chain(first, grow, first)

def whole():
    return chain(first)
"""
TORCH = """
import os, signal
import torch
from torch import nn

class Last(nn.Module):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGKILL)

def killed():
    return nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), Last())
"""
MINDSPORE = """
from mindspore import nn, mint, ops, Tensor

class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(3, 3)
        self.pool = mint.nn.MaxPool2d(2)
        self.after = nn.ReLU()

    def construct(self, x):
        return self.after(self.pool(self.fc(x)[None, None]))

def failing():
    return nn.SequentialCell(nn.Dense(3, 3), Block())
"""


def run(folder: Path, text: str, factory: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "net.py").write_text(text)
    words = ["capture", f"net.py:{factory}", "--input", "x=float32[2,3]", "-o", "trace", "--no-noise", *options]
    return subprocess.run(
        [sys.executable, "-m", "align.cli.main", *words], cwd=folder, capture_output=True, text=True, check=False
    )


def shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    from align.cli.main import main

    assert main(["trace", "show", str(folder / "trace")]) == 0
    return capsys.readouterr().out, align.show_trace(folder / "trace")


def test_a_process_killed_in_a_layer_leaves_a_trace_that_ends_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, ARRAYS, "killed").returncode == -signal.SIGKILL
    text, trace = shown(tmp_path, capsys)
    assert (trace.complete, trace.running, trace.failure) == (False, ("", "kill"), "")
    assert [call.module for call in trace.calls if call.returned] == ["first"]
    assert "Cut short: it ends in kill, which did not return." in text


@pytest.mark.frameworks
def test_a_torch_model_killed_deep_inside_shows_all_that_was_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, TORCH, "killed").returncode == -signal.SIGKILL
    text, trace = shown(tmp_path, capsys)
    assert trace.running == ("", "1")
    assert [call.module for call in trace.calls if call.returned] == ["0", "0.0", "0.1"]
    assert trace.calls[2].outputs[0].statistics is not None
    assert "(model output) > 1" in text


@pytest.mark.frameworks
def test_a_kernel_that_mindspore_lacks_ends_the_trace_at_its_layer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(tmp_path, MINDSPORE, "failing")
    assert done.returncode == 2
    assert "in layer '1.pool'" in done.stderr
    _, trace = shown(tmp_path, capsys)
    assert trace.running == ("", "1", "1.pool")
    assert [call.module for call in trace.calls if call.returned] == ["0", "1.fc"]
    assert "1.pool" in trace.failure


def test_a_full_disk_ends_the_trace_at_the_tensor_that_had_no_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(tmp_path, ARRAYS, "full")
    assert done.returncode == 2
    assert done.stderr.startswith("align: cannot write the trace trace: File too large\nHint: ")
    _, trace = shown(tmp_path, capsys)
    assert trace.running == ("", "grow")
    assert [call.module for call in trace.calls if call.outputs] == ["first"]


def test_a_last_line_cut_anywhere_leaves_the_lines_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, ARRAYS, "whole").returncode == 0
    manifest = tmp_path / "trace" / MANIFEST
    whole = manifest.read_bytes()
    ends = [place for place, byte in enumerate(whole) if byte == ord("\n")]
    for line in range(1, len(ends)):
        manifest.write_bytes(whole[: (ends[line - 1] + ends[line]) // 2])
        _, trace = shown(tmp_path, capsys)
        assert not trace.complete
        assert len(trace.calls) == min(line - 1, 2)
