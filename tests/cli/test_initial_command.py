"""`align initial` from the command line: the page's example, exit codes, JSON, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[2] / "docs" / "initial.md").read_text(encoding="utf-8")
MORE = """

def clean():
    model = original()
    model[0].weight.data *= 1.0
    return model


def cached(kept=[]):
    kept or kept.append(original())
    return kept[0]


def mended():
    from mindspore.common.initializer import HeUniform

    return nn.SequentialCell(
        nn.Embedding(100, 32, embedding_table=Normal(1)), nn.Dense(32, 64), nn.ReLU(), nn.Dense(64, 10)
    )
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import mindspore
    import torch

    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(# nets.py.*?)```", PAGE, re.DOTALL)
    (tmp_path / "nets.py").write_text(block + MORE, encoding="utf-8")
    seed = mindspore.dataset.config.get_seed()
    yield
    torch.use_deterministic_algorithms(mode=False)
    mindspore.dataset.config.set_seed(seed)
    mindspore.set_context(deterministic="OFF")


@pytest.mark.frameworks
@pytest.mark.usefixtures("nets")
def test_the_page_quotes_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    (console,) = re.findall(r"```console\n\$ (.*?)```", PAGE, re.DOTALL)
    command, *quoted = console.splitlines()
    assert main(shlex.split(command)[1:]) == 1
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert len(quoted) > 8
    assert [line for line in quoted if " ".join(line.split()) not in printed] == []


@pytest.mark.frameworks
@pytest.mark.usefixtures("nets")
def test_clean_sides_end_with_0_and_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["initial", "nets.py:original", "nets.py:mended", "--run", "run", "--all", "--seeds", "5"]) == 0
    shown = capsys.readouterr().out
    assert "1.weight" in shown
    assert "5 parameters are drawn alike" in shown
    document = json.loads((tmp_path / "run" / "initial.json").read_text(encoding="utf-8"))
    assert (document["schema"], document["seeds"], document["tests"]) == ("mindalign.initial/2", 5, 5)
    assert main(["initial", "nets.py:original", "nets.py:port", "--json"]) == 1
    rows = {one["candidate"]: one for one in json.loads(capsys.readouterr().out)["parameters"]}
    assert rows["3.weight"]["write"] == "initializer(HeUniform(5**0.5), (10, 64))"


@pytest.mark.frameworks
@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nets.py:original", "nets.py:cached"], "one model each time"),
        (["nets.py:original", "nets.py:clean", "--seeds", "1"], "too few"),
        (["nets.py:original", "nets.py:nothing"], "does not exist"),
    ],
)
def test_a_wrong_line_ends_in_one_message(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["initial", *arguments]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "Hint:" in said


def test_the_page_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    main(["initial", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert set(re.findall(r"--[a-z-]+", PAGE.split("## Example")[0])) == known
