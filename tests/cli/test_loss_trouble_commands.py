"""What a class of trouble says to run next can be run: commands and options exist, and the report has a word for it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import typer

from align.cli.command_tree import build_app
from align.curves.classify_trouble import METRIC_TROUBLES, TROUBLES, Trouble
from align.curves.event_rules import CurveEvidence
from align.curves.loss_log import PairedCurves
from align.words.catalogue import catalogue

COMMANDS = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]
STEPS = np.arange(1, 4)
EVIDENCE = CurveEvidence(
    metric="loss",
    pairs=PairedCurves(STEPS, STEPS * 1.0, STEPS * 2.0, STEPS * 0.0, 0, 0),
    outside=STEPS[:0],
    failed=frozenset(),
    divergent=2,
    first_compared=True,
    first_agrees=True,
    shift_option="--candidate-base 0",
    update_behind="candidate",
    last_common=3,
    steps_per="--steps-per 2:1",
    window="--candidate-window 'mean of last 10'",
)
METRICS = ("lr", "grad_norm", "loss_scale", "accuracy", "mIoU")


def said(trouble: Trouble, metric: str = "loss") -> str:
    return "; ".join(trouble.next_commands(replace(EVIDENCE, metric=metric), 2))


ALL = dict.fromkeys((*TROUBLES, *METRIC_TROUBLES))
COMMANDS_SAID = dict.fromkeys(
    [
        *map(said, TROUBLES),
        *(said(one, metric) for one in METRIC_TROUBLES for metric in METRICS),
        *catalogue()["loss_next"].values(),
    ]
)


@pytest.mark.parametrize("commands", [one for one in COMMANDS_SAID if "align " in one])
def test_the_next_command_exists_with_its_options(commands: str) -> None:
    found = re.findall(r"\balign (\w+)((?:(?!\balign ).)*)", commands)
    assert found
    for command, rest in found:
        options = {name for parameter in COMMANDS[command].params for name in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= options


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_never_leads_back_to_itself(metric: str) -> None:
    commands = [said(one, metric) for one in METRIC_TROUBLES]
    assert all(commands)
    assert not any("--metric" in one for one in commands)


@pytest.mark.parametrize("trouble", ALL, ids=lambda one: one.name)
def test_the_report_has_a_text_for_the_class(trouble: Trouble) -> None:
    assert trouble.name.replace(" ", "_") in catalogue()["trouble"]
