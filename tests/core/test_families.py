from __future__ import annotations

import pytest

from align.core import families
from align.core.families import ModelFamily, PathRule, read_family
from align.errors import MappingRuleError, UsageError


@pytest.mark.parametrize(
    ("rule", "torch", "mindspore"),
    [
        (PathRule("a.b", "c"), "x.a.b.weight", "x.c.weight"),
        (PathRule("^a", "^b"), "a.a.weight", "b.a.weight"),
        (PathRule("layers.#.fc", "blocks.#.dense.0"), "m.layers.12.fc.bias", "m.blocks.12.dense.0.bias"),
        (PathRule("#.a.#", "#.b.#"), "3.a.4.weight", "3.b.4.weight"),
    ],
)
def test_a_rule_moves_whole_parts_there_and_back(rule, torch, mindspore) -> None:
    assert rule.applied(torch, backwards=False) == mindspore
    assert rule.applied(mindspore, backwards=True) == torch


@pytest.mark.parametrize("name", ["aa.b.weight", "a.bb.weight", "x.a.b", "a"])
def test_a_rule_leaves_other_names_alone(name) -> None:
    assert PathRule("a.b", "c").applied(name, backwards=False) is None
    assert PathRule("^b", "c").applied(name, backwards=False) is None


def test_rules_follow_each_other_and_on_the_way_back_the_last_comes_first() -> None:
    family = ModelFamily("f", "", (PathRule("^encoder", "^enc"), PathRule("#.attention", "#.attn")))
    assert family.moved("encoder.0.attention.weight", backwards=False) == "enc.0.attn.weight"
    assert family.moved("enc.0.attn.weight", backwards=True) == "encoder.0.attention.weight"
    assert family.moved("head.weight", backwards=False) is None


def test_an_unknown_family_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as error:
        read_family("hf-resnets")
    assert "did you mean 'hf-resnet'? known: " in error.value.hint


@pytest.mark.parametrize("name", ["../layers/linear", "/etc/passwd", ""])
def test_a_family_is_a_name_and_no_path(name) -> None:
    with pytest.raises(UsageError, match="no model family is called"):
        read_family(name)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("paths = [['a', 'b']]", "about"),
        ("about = 'x'", "paths"),
        ("about = 'x'\npaths = [['a']]", "not enough values"),
        ("about = 'x'\npaths = [['a.#', 'b']]", "same number of #"),
        ("about = 'x'\npaths = []\ncolour = 'red'", "unknown keys"),
        ("about = ", "malformed"),
    ],
)
def test_a_faulty_family_is_refused_with_the_reason(tmp_path, monkeypatch, text, fault) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(families, "mappings_folder", lambda: tmp_path)
    with pytest.raises(MappingRuleError, match=fault):
        read_family("mine")
