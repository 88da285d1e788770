"""The port of examples/first_port, from a folder without a project file to a green ladder, as a new user would go."""

from __future__ import annotations

import json
import linecache
import re
import sys
from pathlib import Path
from shutil import copytree

import pytest

from align.cli.main import main

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "first_port"
IMPORTS = "from mindspore import nn, ops"
ADAM = "nn.Adam(net.trainable_params(), learning_rate=1e-3"
ADAM_W = "experimental.optim.AdamW(net.trainable_params(), lr=1e-3"
# What each failing rung must name, and the correction of the port that it asks for; {} where `align fix` makes it.
FAULTS = (
    ("parameters", "port.py:28", {"[Residual(16) for _ in range(3)]": "nn.CellList([Residual(16) for _ in range(3)])"}),
    ("settings", "port.py:12", {}),
    ("optimizer", "port.py:47", {ADAM: ADAM_W, IMPORTS: "from mindspore import experimental, nn, ops"}),
)
MOST_COMMANDS = 10


@pytest.mark.frameworks
@pytest.mark.slow
def test_three_faults_are_known_with_their_lines_and_each_correction_turns_its_rung_green(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def typed(*arguments: str) -> int:
        """Run one command in the folder, with the code that lies there now, and keep what it prints."""
        forget_code(folder)
        code = main(arguments)
        printed.append(lines_of(capsys.readouterr().out))
        return code

    folder = copytree(EXAMPLE, tmp_path / "port")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    printed: list[list[str]] = []
    assert typed("init") == 0
    for rung, line, correction in FAULTS:
        assert typed("run") == 1
        failed = next(one for one in ladder(folder) if one["state"] == "failed")
        assert failed["name"] == rung
        assert failed["culprits"][0]["line"] == line
        assert any(line in one for one in printed[-1])
        if correction:
            correct(folder / "port.py", correction)
        else:
            assert typed("fix", "--apply") == 1
            assert (folder / "port.py").read_text().count("BatchNorm2d(width, eps=") == 2
    assert typed("run") == 0
    states = {one["name"]: one["state"] for one in ladder(folder)}
    assert {states[rung] for rung, *_ in FAULTS} == {"passed"}
    assert "failed" not in states.values()
    assert len(printed) <= MOST_COMMANDS
    shown = readme_commands()
    assert [command for command, _ in shown] == ["init", "run", "run", "fix --apply", "run", "run"]
    assert [line for (_, lines), own in zip(shown, printed, strict=True) for line in lines if line not in own] == []


def readme_commands() -> list[tuple[str, list[str]]]:
    """What the README tells a new user to type, with the lines that it quotes of each; its comments are left out."""
    block = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    parts = [part.partition("\n") for part in block.split("$ align ")[1:]]
    return [(command, [line for line in lines_of(output) if not line.startswith("#")]) for command, _, output in parts]


def lines_of(output: str) -> list[str]:
    """The lines of an output, without the spaces that lay them out."""
    return [" ".join(line.split()) for line in output.splitlines() if line.strip()]


def forget_code(folder: Path) -> None:
    """Let the next command load the code of a folder anew, as a new process does, without the frameworks' imports."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
    linecache.clearcache()


def correct(port: Path, correction: dict[str, str]) -> None:
    """Write the right code in the place of the wrong."""
    source = port.read_text()
    for wrong, right in correction.items():
        assert wrong in source
        source = source.replace(wrong, right)
    port.write_text(source)


def ladder(folder: Path) -> list[dict]:
    """The rungs as the last climb left them."""
    return json.loads((folder / "align-run" / "ladder.json").read_text())["rungs"]
