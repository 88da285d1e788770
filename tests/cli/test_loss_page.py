"""The page on `align loss` shows what the command prints, and names all its options and formats."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.cli.main import main
from align.core.registry import log_formats

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_quotes_what_the_commands_print(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert page.run_commands() == [0, 2, 0, 1]


def test_every_option_is_told_of(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main(["loss", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help", "--project"}
    of_a_side = {name for name in known if name.startswith(("--reference-", "--candidate-"))} - {"--reference-runs"}
    said = set(re.findall(r"--[a-z-]+", page.text))
    assert known - of_a_side <= said
    assert {name.replace("--reference-", "--") for name in of_a_side if "--reference-" in name} <= said


def test_every_format_that_is_quoted_says_so(page: Any) -> None:
    quoted = {name for name, plugin in log_formats().items() if plugin.quoted}
    assert quoted == {"megatron"}
    assert "Megatron-LM, MindSpeed (quoted)" in page.text
