"""Each rule of advice hits what it says that it hits, misses the rest, and names where its knowledge is from."""

from __future__ import annotations

import re
import sys

import pytest

from align.advice.readers.training_logs import values_of_line
from align.rules.advice_rules import AdviceRule, advice_rules, kind_of_operator
from align.rules.layer_rules import mappings_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ADDRESS = re.compile(
    r"https://(www\.)?(hiascend\.com|mindspore\.cn|gitcode\.com|gitee\.com|docs\.pytorch\.org)/\S+"
)  # fmt: skip


def hits(rule: AdviceRule, example: object) -> bool:
    if isinstance(example, str):
        return values_of_line(rule, example) is not None
    return isinstance(example, dict) and rule.holds(example)


def test_each_rule_hits_and_misses_its_examples(assert_each) -> None:
    def does(rule: AdviceRule) -> None:
        assert rule.examples["hits"]
        assert rule.examples["misses"]
        assert all(hits(rule, one) for one in rule.examples["hits"])
        assert not any(hits(rule, one) for one in rule.examples["misses"])

    assert_each(does, advice_rules())


def test_each_rule_is_whole(assert_each) -> None:
    ids = [rule.id for rule in advice_rules()]
    assert len(ids) == len(set(ids)) >= 25

    def is_whole(rule: AdviceRule) -> None:
        assert ADDRESS.fullmatch(rule.source)
        assert rule.change
        assert all(re.search(r"[=().:/]|export", line) and "\n" not in line for line in rule.change.values())
        assert rule.told <= rule.advised or rule.pattern is not None
        assert set(rule.covers) <= {*ids} - {rule.id}

    assert_each(is_whole, advice_rules())


def test_rules_speak_of_every_topic_and_a_note_is_no_advice() -> None:
    assert {rule.topic for rule in advice_rules()} == {"first step", "data", "compute", "tail", "memory"}
    rule = next(one for one in advice_rules() if one.id == "copies")
    assert [rule.level_of(share) for share in (0.1, 0.3, None)] == ["note", "warning", "warning"]


def test_operators_are_of_the_kind_that_the_table_says() -> None:
    table = tomllib.loads((mappings_folder() / "advice" / "operators.toml").read_text(encoding="utf-8"))
    for kind in table["kind"]:
        assert {kind_of_operator(name) for name in kind["examples"]["hits"]} == {kind["id"]}
        assert kind["id"] not in {kind_of_operator(name) for name in kind["examples"]["misses"]}


@pytest.mark.parametrize(("share", "told"), [(0.01, False), (0.15, True)])
def test_a_share_below_the_one_from_which_it_is_told_says_nothing(share: float, told: bool) -> None:
    rule = next(one for one in advice_rules() if one.id == "batches-in-main-process")
    assert rule.holds({"workers": 0.0, "source": "profile", "share": share}) is told
