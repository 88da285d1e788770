"""The commands of docs/inspect.md print what the page quotes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from align.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "inspect.md").read_text(encoding="utf-8")


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    word = torch.zeros(1000, 128)
    state = {"embeddings.word.weight": word, "embeddings.position_ids": torch.arange(512).reshape(1, 512)}
    for number in range(12):
        state[f"layers.{number}.attn.qkv.weight"] = torch.zeros(96, 32)
        state[f"layers.{number}.attn.qkv.bias"] = torch.zeros(96)
    torch.save(state | {"decoder.weight": word}, tmp_path / "bert.pth")
    weights = {"fc.weight": torch.zeros(40, 30)}
    torch.save({"model": weights, "ema": {"fc.weight": torch.ones(40, 30)}, "epoch": 3}, tmp_path / "train.pth")
    monkeypatch.chdir(tmp_path)

    for part in "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)).split("$ ")[1:]:
        command, *quoted = part.splitlines()
        assert main(shlex.split(command)[1:]) == 0
        printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
        assert quoted
        assert [line for line in quoted if " ".join(line.split()) not in printed] == []
