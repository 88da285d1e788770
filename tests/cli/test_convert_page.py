"""The commands of docs/convert.md print what the page quotes."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from align.cli.main import main

TESTS = Path(__file__).parents[1]
PAGE = (Path(__file__).parents[2] / "docs" / "convert.md").read_text(encoding="utf-8")


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch
    from safetensors.torch import save_file
    from torch import nn

    layers = {"norm": nn.LayerNorm(16), "word": nn.Embedding(100, 16)}
    model = nn.ModuleDict({"embeddings": nn.ModuleDict({"word": layers["word"], "norm": layers["norm"]})})
    model.update({"head": nn.Linear(16, 100, bias=False), "act": nn.PReLU(), "conv": nn.Conv1d(3, 4, 3)})
    torch.save(model.state_dict(), tmp_path / "small.pth")
    shutil.copy(TESTS / "convert" / "data" / "adapters_base.safetensors", tmp_path / "base.safetensors")
    shutil.copytree(TESTS / "convert" / "data" / "adapter_lora", tmp_path / "adapter")
    layer = {"weight": torch.ones(8, 4).to(torch.float8_e4m3fn), "bias": torch.ones(8), "weight_scale": torch.ones(1)}
    save_file(
        {f"{name}.{key}": one.clone() for name in "ab" for key, one in layer.items()}, tmp_path / "model.safetensors"
    )
    monkeypatch.chdir(tmp_path)

    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    for part in "".join(blocks).split("$ ")[1:]:
        command, *quoted = part.splitlines()
        main(shlex.split(command)[1:])
        printed = "".join(capsys.readouterr()).splitlines()
        assert quoted
        assert [line for line in quoted if line.strip() not in [line.strip() for line in printed]] == []
    assert (tmp_path / "small.ckpt").is_file()
