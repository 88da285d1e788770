"""What a class of trouble says to run next can be run: commands and options exist, and the report has a word for it."""

from __future__ import annotations

import re

import pytest
import typer

from align.cli.main import build_app
from align.curves.troubles.loss_troubles import TROUBLES, Trouble
from align.curves.troubles.metric_troubles import COMES_FROM, METRIC_TROUBLES, OTHERS_COME_FROM, comes_from
from align.words.catalogue import catalogue

COMMANDS = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]


ALL = dict.fromkeys((*TROUBLES, *METRIC_TROUBLES))
COMMANDS_SAID = [*(one.next_command for one in ALL), *COMES_FROM.values(), OTHERS_COME_FROM]


@pytest.mark.parametrize("said", [said for said in COMMANDS_SAID if said])
def test_the_next_command_exists_with_its_options(said: str) -> None:
    found = re.findall(r"\balign (\w+)((?:(?!\balign ).)*)", said)
    assert found or "{comes_from}" in said
    for command, rest in found:
        options = {name for parameter in COMMANDS[command].params for name in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= options


@pytest.mark.parametrize("metric", ["lr", "grad_norm", "loss_scale", "accuracy", "mIoU"])
def test_a_metric_never_leads_back_to_itself(metric: str) -> None:
    said = [*(one.next_command for one in METRIC_TROUBLES), comes_from(metric)]
    assert all(said)
    assert not any("--metric" in one for one in said)


@pytest.mark.parametrize("trouble", ALL, ids=lambda one: one.name)
def test_the_report_has_a_text_for_the_class(trouble: Trouble) -> None:
    assert trouble.name.replace(" ", "_") in catalogue()["trouble"]
