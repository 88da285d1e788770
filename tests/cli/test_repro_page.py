"""docs/repro.md: its commands print what it quotes, and the script that it shows is the one that is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.frameworks
def test_the_page_shows_what_the_commands_print_and_write(page: Any) -> None:
    import torch

    torch.save(page.state_dict(), "net.pth")
    assert set(page.run_commands()) == {0}
    assert page.blocks("text") == [Path("pooling/candidate_layer.py").read_text(encoding="utf-8")]


def test_the_page_names_every_option(page: Any) -> None:
    assert page.named_options() == page.known_options()
