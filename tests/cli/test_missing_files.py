"""A file that is not there is told before a framework is imported, whatever the command and the option."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

MODELS = """
import torch, mindspore
from torch import nn

def build():
    return nn.Linear(4, 4)

def inputs():
    return {"x": torch.ones(2, 4)}
"""
# Runs all command lines in one process, in which neither framework must have been imported after any of them.
RUN = """
import json, sys
from align.cli.main import main
for line in json.load(sys.stdin):
    code = main(line)
    frameworks = [name for name in ("torch", "mindspore") if name in sys.modules]
    print(json.dumps([code, frameworks]))
"""
PAIR = ["net.py:build", "net.py:build"]
GIVEN = ["--inputs", "net.py:inputs"]
PROJECTS = {
    "checkpoint": '[reference]\nmodel = "net.py:build"\ncheckpoint = "gone"\n[candidate]\nmodel = "net.py:build"\n',
    "model": '[reference]\nmodel = "net.py:build"\n[candidate]\nmodel = "gone.py:build"\n',
    "inputs": '[reference]\nmodel = "net.py:build"\n[candidate]\nmodel = "net.py:build"\n[forward]\ninputs = "gone"\n',
    "map": '[reference]\nmodel = "net.py:build"\n[candidate]\nmodel = "net.py:build"\n[forward]\nmap = "gone"\n',
}
LINES = [
    ["forward", *PAIR, *GIVEN, "--candidate-checkpoint", "gone"],
    ["forward", *PAIR, *GIVEN, "--map", "gone"],
    ["forward", *PAIR, *GIVEN, "--inputs", "gone"],
    ["forward", "net.py:build", "gone.py:build", *GIVEN],
    ["forward", *PAIR, "--inputs", "gone.py:inputs"],
    ["forward", *PAIR, *GIVEN, "--project", "gone"],
    *(["forward", "--project", f"{name}.toml", *([] if name == "inputs" else GIVEN)] for name in PROJECTS),
    ["check-determinism", "gone.py:side", "--batch", "net.py:inputs"],
    ["check-determinism", "net.py:build", "--batch", "gone.npz"],
    ["initial", "net.py:build", "gone.py:build"],
    ["initial", *PAIR, "--map", "gone"],
    ["params", "net.py:build", "--batch", "gone.py:batch"],
    ["diff", "--updates", "net.npz", "net.npz", "net.npz", "gone"],
    ["lint", "net.py:build", "gone.py:build"],
    ["lint", *PAIR, "--map", "gone"],
    ["map", "net.py:build", "gone.py:build"],
    ["map", *PAIR, "--rules", "gone"],
    ["map", *PAIR, "--check", "gone"],
    ["map", *PAIR, "--inputs", "gone"],
    ["map", "net.py:build", "gone"],
    ["map", "--target", "nn", "gone.py:build"],
    ["convert", "net.pth", "out.ckpt", "--source-model", "net.py:build", "--target-model", "gone.py:build"],
    ["convert", "net.pth", "out.ckpt", "--trust-pickle", "--map", "gone"],
    ["convert", "gone", "out.ckpt", "--trust-pickle"],
    ["diff", "net.npz", "gone", "--trust-pickle"],
    ["validate", *PAIR, "--data", "gone.py:data"],
    ["validate", *PAIR, "--data", "net.py:inputs", "--candidate-metric", "gone.py:metric"],
    ["generate", *PAIR, *GIVEN, "--reference-step", "gone.py:step"],
    ["bisect", *PAIR, *GIVEN, "--points", "gone"],
    ["bisect", "net.py:build", *GIVEN, "--precision", "float16", "--loss", "gone.py:loss"],
    ["capture", "net.py:build", "--out", "trace", *GIVEN, "--checkpoint", "gone"],
    ["repro", *PAIR, *GIVEN, "--out", "repro", "--reference-checkpoint", "gone"],
]


@pytest.mark.frameworks
def test_a_missing_file_is_told_before_a_framework_is_imported(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODELS, encoding="utf-8")
    np.savez(tmp_path / "net.npz", weight=np.ones((4, 4)))
    (tmp_path / "net.npz").rename(tmp_path / "net.pth")
    np.savez(tmp_path / "net.npz", weight=np.ones((4, 4)))
    for name, text in PROJECTS.items():
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", RUN]
    done = subprocess.run(command, cwd=tmp_path, input=json.dumps(LINES), capture_output=True, text=True, check=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert told == [[2, []]] * len(LINES)
    errors = [line for line in done.stderr.splitlines() if line.startswith("align: ")]
    assert len(errors) == len(LINES)
    assert [line for line in errors if "gone" not in line] == []
    for what in ("data file", "metric file", "step file", "loss file", "inputs file", "model file", "map file"):
        assert any(line.startswith(f"align: {what} not found: gone") for line in errors), what
    assert done.stderr.count("Hint: ") == len(LINES)


@pytest.mark.frameworks
def test_with_all_files_the_models_are_run(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODELS + "torch.manual_seed(0)\nnet = build()\n", encoding="utf-8")
    line = json.dumps([["lint", *PAIR]])
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, input=line, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [0, ["torch", "mindspore"]]
