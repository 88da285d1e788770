"""The commands of docs/emulate.md print what the page quotes, and every option stands there."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from align.cli.main import main
from align.forward.emulate_model import AppliedRule, EmulationResult, ExpectedError, GradientLayer, LossScales, Overflow
from align.forward.forward_result import Prediction
from align.rules.ascend_rules import MAKERS, Certainty, OperatorClass, ascend_chips, ascend_switches, operator_entries

DOCS = Path(__file__).parents[2] / "docs"
INPUT = ["--input", "x=float32[4,3,16,16]"]


@pytest.mark.parametrize(
    "value", [EmulationResult, AppliedRule, ExpectedError, Overflow, LossScales, GradientLayer, Prediction]
)
def test_the_page_of_the_run_folder_names_every_field(value: type) -> None:
    named = set(re.findall(r"`([^`\s]+)`", (DOCS / "run-folder.md").read_text("utf-8")))
    assert {field.name for field in dataclasses.fields(value)} <= named


def test_the_page_names_every_chip_switch_class_and_certainty() -> None:
    text = (DOCS / "emulate.md").read_text("utf-8")
    known = [chip.id for chip in ascend_chips()] + [switch.id for switch in ascend_switches()]
    known += [*get_args(Certainty), *get_args(OperatorClass)]
    assert [one for one in known if one not in text] == []


def test_classes_of_the_page_are_those_of_entries_or_kept_for_what_users_add() -> None:
    used = {entry.operator_class for maker in MAKERS for entry in operator_entries(maker)}
    assert {*get_args(OperatorClass)} - used == {"float32 by default in float16"}


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(page: Any) -> None:
    assert page.run_commands() == [0, 1, 0, 2, 1]


@pytest.mark.frameworks
def test_the_page_lists_every_option(page: Any) -> None:
    assert page.known_options() <= page.named_options()


@pytest.mark.frameworks
@pytest.mark.usefixtures("page")
def test_every_layer_can_be_shown_and_the_result_kept(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["emulate", "model.py:build", "--target", "ascend:910b", "--framework", "torch_npu", *INPUT]
    assert main([*line, "--all", "--run", "run"]) == 0
    printed = capsys.readouterr().out
    assert "All layers on ascend:910b" in printed
    assert "torch.npu.conv.allow_hf32 = False" in printed
    document = json.loads(Path("run/emulate.json").read_text(encoding="utf-8"))
    assert [rule["entry"] for rule in document["rules"]] == ["convolution-hf32"]
    assert [row["module"] for row in document["layers"] if row["operators"]] == ["conv"]
    assert main([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["at_risk"] == ["conv#0"]


@pytest.mark.frameworks
@pytest.mark.usefixtures("page")
def test_what_cannot_be_run_is_refused_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["emulate", "model.py:build", *INPUT, "--target"]
    for rest, said in [
        (["ascend:9"], "no chip is called 'ascend:9'"),
        (["ascend:910b", "--switch", "fast"], "a switch is set as NAME=VALUE, not 'fast'"),
        (["ascend:910b", "--framework", "jax"], "no framework that drives chips is called 'jax'"),
        (["ascend:910b", "--framework", "torch_npu", "--switch", "conv_allow_hf32=False"], "is rounded on"),
    ]:
        assert main([*line, *rest]) == 2
        assert said in capsys.readouterr().err
