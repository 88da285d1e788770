"""The commands of docs/memory.md print what the page quotes, and every option and field stands in the pages."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from align.memory.measure_memory import GrowingObject, Growth, GrowthSeries, MemoryResult, SideMemory
from align.memory.read_trace import BatchMemory, Checkpointing, LargestBatch, LayerMemory, PhaseMemory

DOCS = Path(__file__).parents[2] / "docs"
VALUES = (
    MemoryResult, SideMemory, Growth, GrowthSeries, GrowingObject, BatchMemory, Checkpointing, LargestBatch,
    LayerMemory, PhaseMemory,
)  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_the_page_of_the_run_folder_names_every_field(value: type) -> None:
    named = set(re.findall(r"`([^`\s]+)`", (DOCS / "run-folder.md").read_text("utf-8")))
    assert {field.name for field in dataclasses.fields(value)} <= named


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(page: Any) -> None:
    assert page.run_commands() == [0, 1]


def test_the_page_lists_every_option(page: Any) -> None:
    assert page.known_options() <= page.named_options()
