"""`align diff --updates` from the command line: exit codes, JSON, the run folder, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

FILES = ["a0.npz", "a1.npz", "b0.npz", "b1.npz"]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix that moves in the reference; the candidate, which names and lays it out otherwise, moves it twice."""
    monkeypatch.chdir(tmp_path)
    weight, step = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)
    np.savez("a0.npz", w=weight)
    np.savez("a1.npz", w=weight - step)
    np.savez("b0.npz", weight=weight.T)
    np.savez("b1.npz", weight=(weight - 2 * step).T)
    np.savez("b_clean.npz", weight=(weight - step).T)
    (tmp_path / "map.toml").write_text('[names]\nw = { to = "weight", op = "permute", axes = [1, 0] }\n')


def test_updates_are_compared_through_the_map_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "--updates", *FILES, "--map", "map.toml", "--run", "run", "--all"]) == 1
    assert "w -> weight" in capsys.readouterr().out
    document = json.loads((tmp_path / "run" / "updates.json").read_text(encoding="utf-8"))
    assert (document["schema"], document["tensors"][0]["outcome"]) == ("mindalign.updates/2", "one factor apart")
    assert document["factor"] == pytest.approx(2)
    assert len(document["made_from"]["candidate after"]["sha256"]) == 64
    assert main(["diff", "--updates", *FILES[:3], "b_clean.npz", "--map", "map.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tensors"][0]["outcome"] == "same"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--updates", *FILES[:3], "gone.npz"], "gone.npz"),
        (["--updates", *FILES], "--map"),
        (["--updates", "a0.npz", "b0.npz", "a0.npz", "a1.npz"], "not of one model"),
        (["a0.npz", "--updates", *FILES], "four checkpoints"),
        (["--updates", *FILES, "--unchanged"], "does not go with"),
        (["a0.npz"], "two checkpoints are needed"),
        (["--updates", *FILES, "--map", "gone.toml"], "gone.toml"),
    ],
)
def test_a_wrong_line_ends_in_one_message(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", *arguments]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("align: ") == said.count("Hint: ") == 1
