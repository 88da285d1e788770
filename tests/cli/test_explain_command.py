"""`align explain CODE`: every code that a result may name has a meaning, in both languages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from align.cli.main import main
from align.rules.advice_rules import advice_rules
from align.rules.codes import TABLES, explain_code, explanations
from align.rules.pitfalls import pitfalls
from align.words.catalogue import catalogue, speaking

if TYPE_CHECKING:
    import pytest


def test_every_rule_and_every_cause_in_words_is_explained() -> None:
    known = explanations()
    rules = {rule.id for rule in (*pitfalls(), *advice_rules())}
    causes = {code for table in TABLES for code, text in catalogue()[table].items() if "{" not in text}
    assert rules | causes <= known.keys()
    assert all(one.meaning for several in known.values() for one in several)


def test_a_setting_is_shown_with_the_argument_of_each_class(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "leaky-relu-slope"]) == 0
    printed = capsys.readouterr().out
    assert "negative_slope" in printed
    assert "mindspore.nn.LeakyReLU" in printed
    assert main(["explain", "slow drift", "--json"]) == 0
    (trouble,) = json.loads(capsys.readouterr().out)
    assert (trouble["code"], trouble["kind"], trouble["page"]) == ("slow_drift", "trouble", "loss")


def test_meanings_are_told_in_chinese() -> None:
    with speaking("zh"):
        for code in ("leaky-relu-slope", "residual-missing", "values-read-one-by-one", "in-place-on-view"):
            assert any("\u4e00" <= letter <= "\u9fff" for letter in explain_code(code)[0].meaning), code


def test_an_unknown_code_ends_in_one_message_with_those_that_are_close(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "residual-mising"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no finding has the code 'residual-mising'" in printed.err
    assert "residual-missing" in printed.err
