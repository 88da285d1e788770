"""The commands of docs/generate.md print what the page quotes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    for name in ("tiny_llama", "tiny_llama_port"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        shutil.copy(EXAMPLES / f"{name}.py", ".")
    import tiny_llama

    torch.save(tiny_llama.build().state_dict(), "llama.pth")
    assert page.run_commands() == [0, 0, 1]


def test_the_page_names_every_option(page: Any) -> None:
    assert page.named_options() == page.known_options()
