"""The commands of docs/hyperparameters.md print what the page quotes; every option, trainer and form stands there."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from align.cli.main import main
from align.hyperparameters.compare_hyperparameters import (
    ComparedHyperparameter,
    HyperparameterComparison,
    OneSidedHyperparameter,
    SettingsSide,
    SideValue,
)
from align.rules.hyperparameter_rules import hyperparameter_rules

DOCS = Path(__file__).parents[2] / "docs"
VALUES = [ComparedHyperparameter, HyperparameterComparison, OneSidedHyperparameter, SettingsSide, SideValue]


@pytest.mark.parametrize("value", VALUES)
def test_the_page_of_the_run_folder_names_every_field(value: type) -> None:
    named = set(re.findall(r"`([^`\s]+)`", (DOCS / "run-folder.md").read_text("utf-8")))
    assert {field.name for field in dataclasses.fields(value)} <= named


def test_the_page_quotes_what_the_command_prints(page: Any) -> None:
    assert page.run_commands() == [1]


def test_the_page_lists_every_option_trainer_group_and_the_number_of_parameters(page: Any) -> None:
    assert page.known_options() <= page.named_options()
    rules = hyperparameter_rules()
    names = [name for one in rules.trainers for name in one.title.split(" or ")]
    assert [name for name in names if name not in page.text] == []
    assert [group for group in rules.groups if group not in page.text] == []
    assert f"has {len(rules.parameters)} parameters" in page.text


@pytest.mark.usefixtures("page")
def test_all_can_be_shown_and_the_result_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hyperparameters", "train.sh", "finetune.yaml", "--all", "--run", "run"]) == 1
    printed = capsys.readouterr().out
    assert "Equal" in printed
    assert "Differ without an effect on the loss" in printed
    document = json.loads(Path("run/hyperparameters.json").read_text(encoding="utf-8"))
    assert [one["parameter"] for one in document["differences"]] == ["warmup_steps", "global_batch", "epsilon"]
    assert document["made_from"]["reference"]["path"].endswith("train.sh")
    assert main(["hyperparameters", "train.sh", "train.sh", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == []


@pytest.mark.usefixtures("page")
def test_what_cannot_be_read_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hyperparameters", "train.sh", "none.yaml"]) == 2
    assert "settings file not found: none.yaml" in capsys.readouterr().err
