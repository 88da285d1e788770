"""The commands of docs/batch.md print what the page quotes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.cli.main import main

if TYPE_CHECKING:
    import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "batch.md").read_text(encoding="utf-8")


def test_the_page_quotes_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for rank in range(4):
        for step in range(6):
            values = np.random.default_rng(step)
            tensors = {"norm.weight": values.normal(size=8), "head.weight": values.normal(size=(8, 4))}
            for side in ("ref", "port"):
                if (side, rank) == ("port", 2) and step >= 3:
                    tensors["norm.weight"] = tensors["norm.weight"] * 1.5
                place = tmp_path / side / f"rank{rank}" / f"step{step}.npz"
                place.parent.mkdir(parents=True, exist_ok=True)
                np.savez(place, **tensors)
    job = '[[diff]]\nreference = "ref/rank{rank}/step{step}.npz"\ncandidate = "port/rank{rank}/step{step}.npz"\n'
    (tmp_path / "job.toml").write_text(job, encoding="utf-8")
    (command, *quoted), *others = (
        part.splitlines() for part in "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)).split("$ ")[1:]
    )
    assert not others
    assert main(shlex.split(command)[1:]) == 1
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert quoted
    assert [line for line in quoted if " ".join(line.split()) not in printed] == []
