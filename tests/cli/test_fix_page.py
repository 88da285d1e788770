"""docs/fix.md: its commands print what it quotes, change the port and put it back; every option stands there."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from align.fixes import fix_result

DOCS = Path(__file__).parents[2] / "docs"
VALUES = [
    value
    for name, value in vars(fix_result).items()
    if dataclasses.is_dataclass(value)
    and getattr(value, "__module__", "") == fix_result.__name__
    and value is not fix_result.FixJob  # what was asked for is no part of the document
]


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print_and_the_port_is_as_it_was_at_the_end(page: Any) -> None:
    import torch

    torch.save(page.state_dict(), "net.pth")
    before = Path("port.py").read_bytes()
    assert page.run_commands() == [0, 1, 0, 0]
    assert Path("port.py").read_bytes() == before
    assert json.loads(Path("align-run/fix.json").read_text(encoding="utf-8"))["state"] == "undone"
    for program in (["git", "apply", "--check", "port.patch"], ["patch", "-p1", "--dry-run", "-i", "port.patch"]):
        subprocess.run(program, check=True, capture_output=True)


def test_the_page_lists_every_option(page: Any) -> None:
    assert page.known_options() <= page.named_options()


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.__name__)
def test_the_page_of_the_run_folder_names_every_field(value: type) -> None:
    named = set(re.findall(r"`([^`\s]+)`", (DOCS / "run-folder.md").read_text("utf-8")))
    assert {field.name for field in dataclasses.fields(value)} <= named
