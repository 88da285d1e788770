"""The commands of docs/params.md and docs/step.md print what the pages quote, and the pages name every option."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from align.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"


def page(command: str) -> str:
    return (DOCS / f"{command}.md").read_text(encoding="utf-8")


def write_block(command: str, file: str) -> None:
    (block,) = re.findall(rf"```python\n(# {file}.*?)```", page(command), re.DOTALL)
    Path(file).write_text(block, encoding="utf-8")


@pytest.mark.frameworks
@pytest.mark.parametrize(("command", "file"), [("params", "port.py"), ("step", "sides.py")])
def test_the_page_quotes_what_the_command_prints(
    command: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    write_block(command, file)
    console = re.findall(r"```console\n\$ (.*?)```", page(command), re.DOTALL)[0]
    typed, *quoted = console.splitlines()
    assert main(shlex.split(typed)[1:]) == 1
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert len(quoted) > 8
    assert [line for line in quoted if " ".join(line.split()) not in printed] == []


@pytest.mark.frameworks
def test_the_page_quotes_what_is_printed_of_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    write_block("step", "sides.py")
    write_block("step", "samples.py")
    section = page("step").split("## Sample by sample")[1].split("\n## ")[0]
    typed, *quoted = re.findall(r"```console\n\$ (.*?)```", section, re.DOTALL)[0].splitlines()
    assert main(shlex.split(typed)[1:]) == 1
    printed = capsys.readouterr().out.splitlines()
    # How many limits, and which of gradients that are about as far off: they are the rounding of a machine.
    figures = re.compile(r"([\d.,]+(e\+\d+)? +)?\b(norm|stem|head)\.\w+")
    assert [figures.sub("WORST", line).split() for line in quoted] == [
        figures.sub("WORST", line).split() for line in printed
    ]


@pytest.mark.frameworks
def test_the_steps_of_the_page_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    write_block("step", "sides.py")
    write_block("step", "loops.py")
    loops = re.findall(r"^def (with_\w+)", Path("loops.py").read_text("utf-8"), re.MULTILINE)
    assert len(loops) == 3
    for one in loops:  # the port of the example cuts the way back, and has another momentum of its statistics
        command = f"step loops.py:torch_loop loops.py:{one} --batch sides.py:batch --steps 1 --json"
        assert main(command.split()) == 1
        causes = [culprit["cause"] for culprit in json.loads(capsys.readouterr().out)["culprits"]]
        assert causes == ["no-gradient", "statistics-momentum-swapped"]


@pytest.mark.frameworks
def test_the_commands_for_two_machines_do_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_block("step", "sides.py")
    section = page("step").split("## Two machines")[1].split("\n## ")[0]
    typed = re.findall(r"^\$ align (.*)$", section, re.MULTILINE)
    assert [main(shlex.split(one)) for one in typed] == [0, 1, 0, 2]  # the example's port is not filled
    assert "3 places are wrong by themselves" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["params", "step"])
def test_the_page_names_every_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([command, "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert set(re.findall(r"--[a-z-]+", page(command).split("## Example")[0])) == known
