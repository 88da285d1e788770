"""What a class of trouble says to run next can be run: commands and options exist, and the report has a word for it."""

from __future__ import annotations

import re

import pytest
import typer

from align.cli.main import build_app
from align.report.texts import catalogue
from align.steps.loss_troubles import TROUBLES, Trouble

COMMANDS = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("trouble", [one for one in TROUBLES if one.next_command], ids=lambda one: one.name)
def test_the_next_command_exists_with_its_options(trouble: Trouble) -> None:
    found = re.findall(r"\balign (\w+)((?:(?!\balign ).)*)", trouble.next_command)
    assert found
    for command, rest in found:
        options = {name for parameter in COMMANDS[command].params for name in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= options


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: one.name)
def test_the_report_has_a_text_for_the_class(trouble: Trouble) -> None:
    assert trouble.name.replace(" ", "_") in catalogue()["trouble"]
