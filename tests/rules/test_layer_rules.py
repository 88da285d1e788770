"""The loader of layer rules: every fault is refused with the file and the rule named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.errors import MappingRuleError
from align.rules.layer_rules import layer_rules, read_layer_rules, role_of, rule_for, rules_by_class

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOUND = """
[[layer]]
id = "swish"
kind = "silu"
reason = "made up for a test"
torch.classes = ["torch.nn.Swish"]
nn.classes = ["mindspore.nn.Swish"]
nn.parameters = { weight = "beta", "row_l*" = "line_l*" }

[layer.examples]
hits = [{ torch = "torch.nn.Swish()" }]
misses = ["torch.nn.ReLU()"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty mappings folder that is used instead of the real one."""
    (tmp_path / "layers").mkdir()
    monkeypatch.setattr("align.rules.layer_rules.mappings_folder", lambda: tmp_path)
    layer_rules.cache_clear()
    rules_by_class.cache_clear()
    yield tmp_path / "layers"
    layer_rules.cache_clear()
    rules_by_class.cache_clear()


def write(folder: Path, text: str, name: str = "swish.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_sound_rule_is_found_by_its_class_and_by_its_bases(folder: Path) -> None:
    write(folder, SOUND)
    claim = rule_for(("users.OwnSwish", "mindspore.nn.Swish"))
    assert claim is not None
    assert (claim[0].id, claim[1]) == ("swish", "nn")
    assert rule_for(("users.OwnSwish",)) is None
    assert rule_for(()) is None


def test_the_most_derived_known_class_decides(folder: Path) -> None:
    write(folder, SOUND)
    write(folder, SOUND.replace("Swish", "Base").replace('"swish"', '"base"'), "base.toml")
    claim = rule_for(("mindspore.nn.Swish", "mindspore.nn.Base"))
    assert claim is not None
    assert claim[0].id == "swish"


def test_a_star_is_written_out_as_numbers(folder: Path) -> None:
    write(folder, SOUND)
    classes = ("mindspore.nn.Swish",)
    assert role_of(classes, "beta") == "weight"
    assert role_of(classes, "line_l0") == "row_l0"
    assert role_of(classes, "line_l17") == "row_l17"
    assert role_of(classes, "line_l*") is None
    assert role_of(classes, "row_l0") is None


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('kind = "silu"', "", r"malformed: KeyError\('kind'\)"),
        ('kind = "silu"', "kind = 7", "expected a text, got 7"),
        ('reason = "made up for a test"', 'reason = " "', "expected a text"),
        ('kind = "silu"', 'kind = "silu"\ncolour = "red"', r"unknown keys \['colour'\]"),
        ('torch.classes = ["torch.nn.Swish"]', 'torch.classes = "torch.nn.Swish"', "expected a list of texts"),
        ('torch.classes = ["torch.nn.Swish"]', 'torch.names = ["torch.nn.Swish"]', "malformed"),
        ('torch.classes = ["torch.nn.Swish"]', 'torch = { classes = [], size = "big" }', "unexpected keyword"),
        ('weight = "beta"', "weight = 1", "expected a text, got 1"),
        ('"row_l*" = "line_l*"', '"row_l*" = "line"', "malformed"),
        ('hits = [{ torch = "torch.nn.Swish()" }]', "hits = []", "needs examples that hit and examples that miss"),
        ('misses = ["torch.nn.ReLU()"]', "", "needs examples that hit and examples that miss"),
        ('misses = ["torch.nn.ReLU()"]', 'misses = ["x"]\nnear = ["y"]', r"unknown keys \['near'\]"),
        ('hits = [{ torch = "torch.nn.Swish()" }]', 'hits = [{ mint = "x" }]', r"examples for \['mint'\]"),
        ("nn.parameters", 'nn.dropped = { nothing = "?" }\nnn.parameters', r"mentions the roles \['nothing'\]"),
        ("nn.parameters", "nn.insert_axis = { nothing = 2 }\nnn.parameters", r"mentions the roles \['nothing'\]"),
        ("nn.parameters", 'nn.always = ["nothing"]\nnn.parameters', r"mentions the roles \['nothing'\]"),
        ("nn.parameters", 'torch.always = ["weight"]\nnn.parameters', r"mentions the roles \['weight'\]"),
        ("nn.parameters", 'nn.always = "weight"\nnn.parameters', "expected a list of texts"),
        ("nn.parameters", 'nn.alone = { nothing = "x" }\nnn.parameters', r"mentions the roles \['nothing'\]"),
        ("[layer.examples]", '[[layer.file]]\nndim = { weight = "2" }\n[layer.examples]', "number of axes"),
        ("[layer.examples]", "[[layer.file]]\nndim = { weight = [] }\n[layer.examples]", "number of axes"),
        ("[layer.examples]", "[[layer.file]]\nndim = { weight = [1, true] }\n[layer.examples]", "number of axes"),
        ("[layer.examples]", "[[layer.file]]\nattributes = []\nndim = { x = 2 }\n[layer.examples]", r"of \['x'\], "),
        ("[layer.examples]", "[[layer.file]]\nsize = 3\n[layer.examples]", "malformed"),
        ("[layer.examples]", '[[layer.file]]\nattributes = ["beta"]\n[layer.examples]', r"file form with \['beta'\]"),
    ],
)  # fmt: skip
def test_a_faulty_rule_is_refused_with_file_and_rule_named(tmp_path: Path, old: str, new: str, fault: str) -> None:
    assert old in SOUND
    path = write(tmp_path, SOUND.replace(old, new))
    with pytest.raises(MappingRuleError, match=fault) as caught:
        read_layer_rules(path)
    assert str(path) in caught.value.message
    assert "'swish'" in caught.value.message


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"[[layer]\n", "not TOML"),
        (b"\xff\xfe", "not TOML"),
        (b"", r"expected \[\[layer\]\]"),
        (b"layer = 3", r"expected \[\[layer\]\]"),
        (b"layer = []", r"expected \[\[layer\]\]"),
        (b"layer = [3]", r"expected \[\[layer\]\]"),
        (SOUND.encode() + b"\n[models]\nx = 1\n", r"found also \['models'\]"),
    ],
)
def test_a_file_that_holds_no_rules_is_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_bytes(content)
    with pytest.raises(MappingRuleError, match=fault) as caught:
        read_layer_rules(path)
    assert str(path) in caught.value.message


def test_a_rule_without_classes_is_refused(tmp_path: Path) -> None:
    lines = [line for line in SOUND.splitlines() if not line.startswith(("torch.", "nn."))]
    path = write(tmp_path, "\n".join(lines))
    with pytest.raises(MappingRuleError, match="names no class"):
        read_layer_rules(path)


def test_two_rules_of_one_id_are_refused_with_both_files_named(folder: Path) -> None:
    first = write(folder, SOUND)
    second = write(folder, SOUND.replace("Swish", "Other"), "twin.toml")
    with pytest.raises(MappingRuleError, match="two rules are called 'swish'") as caught:
        layer_rules()
    assert str(first) in caught.value.message
    assert str(second) in caught.value.message


@pytest.mark.parametrize("other", ['id = "other"', 'id = "swish-again"'])
def test_a_class_that_two_rules_claim_is_refused(folder: Path, other: str) -> None:
    write(folder, SOUND)
    write(folder, SOUND.replace('id = "swish"', other), "twin.toml")
    with pytest.raises(MappingRuleError, match=r"torch\.nn\.Swish is claimed twice, by rules .*'swish'"):
        rules_by_class()


def test_a_class_in_two_families_of_one_rule_is_refused(folder: Path) -> None:
    write(folder, SOUND.replace("mindspore.nn.Swish", "torch.nn.Swish"))
    with pytest.raises(MappingRuleError, match="claimed twice"):
        rules_by_class()


def test_the_rules_that_ship_are_sound_and_sorted() -> None:
    ids = [rule.id for rule in layer_rules()]
    assert ids == sorted(set(ids))
    assert len(rules_by_class()) > len(ids)
