from __future__ import annotations

import pytest

from align.errors import MappingRuleError, UsageError
from align.rules import model_families as families
from align.rules.model_families import ModelFamily, Place, PlaceRule, read_family


@pytest.mark.parametrize(
    ("rule", "torch", "mindspore"),
    [
        (("a.b", "c"), "a.b", "c"),
        (("layers.#.fc", "blocks.#.dense.0"), "layers.12.fc", "blocks.12.dense.0"),
        (("#.a.#", "#.b.#"), "3.a.0", "3.b.0"),
        (("s.#.layer_#", "s#+1.conv#-1"), "s.0.layer_10", "s1.conv9"),
        (("fc", "a+b"), "fc", "a+b"),
    ],
)
def test_a_rule_leads_there_and_back(rule, torch, mindspore) -> None:
    rule = PlaceRule((rule[0],), (rule[1],), "linear")
    assert rule.place(torch, backwards=False) == Place(rule, (mindspore,))
    assert rule.place(mindspore, backwards=True) == Place(rule, (torch,))


@pytest.mark.parametrize(
    "path", ["layers.1", "x.layers.1.fc", "layers.01.fc", "layers.one.fc", "layersX1.fc", "layers.0.fc"]
)
def test_a_rule_knows_whole_paths_and_numbers_from_zero(path) -> None:
    assert PlaceRule(("layers.#.fc",), ("l.#-1.fc",), "linear").place(path, backwards=False) is None


def test_a_fused_layer_has_a_place_for_each_piece() -> None:
    rule = PlaceRule(("#.qkv",), ("#.q", "#.k", "#.v"), "linear")
    assert rule.place("4.qkv", backwards=False) == Place(rule, ("4.q", "4.k", "4.v"))
    assert rule.place("4.k", backwards=True) == Place(rule, ("4.qkv",), (1, 3))


def test_the_first_rule_counts_and_must_lead_back() -> None:
    first, general = PlaceRule(("s.0",), ("a",), "conv"), PlaceRule(("s.#",), ("b.#",), "conv")
    family = ModelFamily("f", "", (), (first, general))
    assert family.place("s.0.weight", backwards=False) == Place(first, ("a",))
    assert family.place("s.1.weight", backwards=False) == Place(general, ("b.1",))
    assert family.place("b.1.weight", backwards=True) == Place(general, ("s.1",))
    assert family.place("b.0.weight", backwards=True) is None  # s.0 is a, not b.0
    assert family.place("head.weight", backwards=False) is None


def test_a_rule_without_a_kind_is_of_one_parameter_and_before_that_of_its_layer() -> None:
    table, layer = PlaceRule(("a.table",), ("b.t",)), PlaceRule(("a",), ("c",), "linear")
    family = ModelFamily("f", "", (), (layer, table))
    assert family.place("a.table", backwards=False) == Place(table, ("b.t",))
    assert family.place("a.weight", backwards=False) == Place(layer, ("c",))
    assert family.place("a.table.weight", backwards=False) is None


def test_an_unknown_family_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as error:
        read_family("hf-resnets")
    assert "did you mean 'hf-resnet'? known: " in error.value.hint


@pytest.mark.parametrize("name", ["../layers/linear", "/etc/passwd", ""])
def test_a_family_is_a_name_and_no_path(name) -> None:
    with pytest.raises(UsageError, match="no model family is called"):
        read_family(name)


def group(text: str) -> str:
    return f"about = 'x'\nneeds = ['a']\nexamples = {{ hits = [], misses = [] }}\n[[group]]\n{text}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (group("").replace("about = 'x'", ""), "about"),
        (group("").replace("needs = ['a']", ""), "needs"),
        (group("").replace("[[group]]", ""), "group"),
        ("about = 'x'\nneeds = ['a']\n[[group]]", "examples"),
        (group("layers = [['a', 'b']]"), "not enough values"),
        (group("layers = [['a.#', 'b', 'conv']]"), "same number of #"),
        (group("layers = [[['a', 'b'], ['c', 'd'], 'conv']]"), "one side must be one path"),
        (group("layers = [['a', 'b', 'convolve']]"), "no layer rule is of the kind 'convolve'"),
        (group("parameters = [['a', 'b', [-1, 1]]]"), "missing 1 required"),
        (group("colour = 'red'"), "unknown keys .'colour'. of ..group..; known: at"),
        ("colour = 'red'\n" + group(""), "unknown keys .'colour'"),
        (group("[dropped.source]\n'*.mask' = 'a mask'"), "unknown keys .'source'"),
        (group("").replace("misses", "mises"), "unknown keys .'mises'. of .examples."),
        ("about = ", "malformed"),
    ],
)
def test_a_faulty_family_is_refused_with_the_reason(tmp_path, monkeypatch, text, fault) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(families, "mappings_folder", lambda: tmp_path)
    with pytest.raises(MappingRuleError, match=fault):
        read_family("mine")


def test_the_layers_of_a_group_stand_at_each_of_its_places(tmp_path, monkeypatch) -> None:
    (tmp_path / "models").mkdir()
    text = group('at = [["s.0", "f"], ["t.#", "g.#"]]\nlayers = [["fc", "", "linear"]]\nparameters = [["p", "q"]]')
    (tmp_path / "models" / "mine.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(families, "mappings_folder", lambda: tmp_path)
    found = {(rule.torch, rule.mindspore) for rule in read_family("mine").rules}
    assert found == {(("s.0.fc",), ("f",)), (("t.#.fc",), ("g.#",)), (("s.0.p",), ("f.q",)), (("t.#.p",), ("g.#.q",))}
