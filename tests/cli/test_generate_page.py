"""The commands of docs/generate.md print what the page quotes."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from align.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "generate.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("tiny_llama", "tiny_llama_port"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        shutil.copy(ROOT / "examples" / f"{name}.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one_off.py").write_text(blocks("python")[0], encoding="utf-8")
    import tiny_llama

    torch.save(tiny_llama.build().state_dict(), "llama.pth")
    codes = []
    for part in "".join(blocks("console")).split("$ ")[1:]:
        command, *quoted = part.splitlines()
        codes.append(main(shlex.split(command)[1:]))
        printed = [" ".join(line.split()) for line in "".join(capsys.readouterr()).splitlines()]
        assert quoted
        assert [line for line in quoted if " ".join(line.split()) not in printed] == []
    assert codes == [0, 0, 1]


def test_the_page_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    main(["generate", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help", "--project"}
    assert set(re.findall(r"--[a-z-]+", PAGE.split("## Example")[0])) == known
