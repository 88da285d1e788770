"""The commands of docs/data.md and docs/ranks.md: what they end with, and that the pages name every option."""

from __future__ import annotations

from typing import Any

import pytest

from align.cli.main import main


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(page: Any) -> None:
    captured = ["--data", "pipelines.py:torch_loader", "--batches", "20", "--out", "reference-data"]
    assert main(["capture", *captured]) == 0
    assert page.run_commands() == [1]
    assert main(["data", "reference-data", "pipelines.py:mindspore_dataset"]) == 1


def test_the_page_names_every_option(page: Any) -> None:
    assert page.known_options() <= page.named_options()
