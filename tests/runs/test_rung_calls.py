"""A rung calls a capability, and shows a command: what is typed means what was called, and leaves the same result."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest
import typer

from align.cli.command_tree import build_app
from align.cli.main import main
from align.runs.project_file import read_project
from align.runs.rung import Call, Missing, rungs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMANDS: dict[str, Any] = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]
SIDE = 'model = "a b.py:{0}"\ntraining = "nets.py:{0}_training"\ndata = "nets.py:{0}_data"\nlog = "{0}.log"\n'
REFERENCE, CANDIDATE = f"[reference]\n{SIDE.format('old')}", f"[candidate]\n{SIDE.format('new')}"
PLACED = 'device = "cpu"\ndtype = "float32"\n'
REST = """
[forward]
inputs = "inputs.npz"
[metric]
data = "nets.py:rows"
metric = "top5"
candidate_data = "nets.py:other_rows"
samples = 7
[training]
batch = ["one.npz", "nets.py:batch"]
steps = 2
"""
PROJECTS = {
    "all that can be asked for": f'{REFERENCE}{PLACED}mode = "pynative"\n{CANDIDATE}{PLACED}mode = "graph"\n{REST}',
    "a checkpoint of one side": f'{REFERENCE}checkpoint = "net.pth"\n{CANDIDATE}{REST}',
    "checkpoints and a map": f'{REFERENCE}checkpoint = "a.pth"\n{CANDIDATE}checkpoint = "b.ckpt"\n'
    '[forward]\ninputs = "nets.py:inputs"\nmap = "own.toml"\n[limits]\n"head" = 3.0\n',
    "a trace and a model": f'[reference]\ntrace = "old"\n{CANDIDATE}{PLACED}mode = "graph"\ncheckpoint = "b.ckpt"\n',
}

NETS = """
import numpy as np

def inputs():
    return {"x": np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)}

def batch():
    return {**inputs(), "label": np.arange(4) % 2}

def torch_net():
    import torch
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))

def mindspore_net():
    from mindspore import nn
    return nn.SequentialCell(nn.Dense(3, 5), nn.ReLU(), nn.Dense(5, 2))

def torch_net_training():
    import torch
    model = torch_net()
    return model, torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1)

def mindspore_net_training():
    from mindspore import nn
    model = mindspore_net()
    return model, nn.CrossEntropyLoss(), nn.SGD(model.trainable_params(), 0.1)
"""


def calls(folder: Path, text: str) -> Iterator[Call]:
    (folder / "align.toml").write_text(text)
    project = read_project(folder / "align.toml")
    for rung in rungs():
        plan = rung.plan(project, folder / "run")
        if not isinstance(plan, Missing):
            yield from (*plan.calls, *([plan.explaining] if plan.explaining else []))


@pytest.mark.parametrize("text", PROJECTS.values(), ids=PROJECTS)
def test_what_is_typed_is_read_as_the_arguments_of_the_call(tmp_path: Path, monkeypatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.pth", "b.ckpt", "net.pth", "inputs.npz", "one.npz", "old.log", "new.log", "own.toml"):
        (tmp_path / name).write_bytes(b"")
    made = [*calls(tmp_path, text)]
    assert len({call.command for call in made}) >= 3
    for call in made:
        command, typed = COMMANDS[call.command], shlex.split(shlex.join(call.line))[1:]
        read = command.make_context(call.command, typed).params
        asked = {**call.given, **({"run": call.run} if call.run else {})}
        assert {name: as_text(read[name]) for name in asked} == {name: as_text(asked[name]) for name in asked}, typed


def as_text(value: object) -> str:
    """An argument as text; of several values versions of typer make a list or a tuple."""
    return str([str(one) for one in value] if isinstance(value, (list, tuple)) else value)


@pytest.mark.frameworks
def test_a_line_that_is_pasted_leaves_the_document_that_the_rung_left(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    sides = "".join(
        f'[{name}]\nmodel = "nets.py:{kind}"\ntraining = "nets.py:{kind}_training"\n'
        for name, kind in (("reference", "torch_net"), ("candidate", "mindspore_net"))
    )
    rest = '[forward]\ninputs = "nets.py:inputs"\n[training]\nbatch = "nets.py:batch"\nsteps = 1\n'
    (tmp_path / "align.toml").write_text(sides + rest)
    assert main(["run", "--keep-going"]) in (0, 1)
    ladder = json.loads((tmp_path / "align-run" / "ladder.json").read_text())
    passed = [rung for rung in ladder["rungs"] if rung["state"] == "passed" and rung["kind"] != "doctor"]
    assert {rung["kind"] for rung in passed} == {"map", "lint", "convert", "forward", "step"}
    for rung in passed:
        file = tmp_path / "align-run" / f"{rung['kind']}.json"
        before = json.loads(file.read_text())
        assert [main(shlex.split(line)[1:]) for line in rung["commands"]] == [0] * len(rung["commands"])
        after = json.loads(file.read_text())
        assert (before["made_from"], before["verdict"], [*before]) == (after["made_from"], after["verdict"], [*after])
