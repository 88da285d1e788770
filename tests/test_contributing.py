"""The rule files that CONTRIBUTING.md shows are complete: they are read, and do what is said there."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest

from align.core.name_map import LayerChoice
from align.core.parameters import Parameter
from align.names.infer_names import infer_names
from align.names.map_from_family import map_from_family
from align.names.recognise_family import recognise_families
from align.rules import model_families as families
from align.rules.layer_rules import LayerFamily, mappings_folder, read_layer_rules
from align.rules.model_families import model_families

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"### ([^\n]+)\n(?:(?!###).)*?```toml\n(.*?)```", re.DOTALL)
EXAMPLES = dict(SHOWN.findall(TEXT))


@pytest.fixture
def family(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "somebody.toml").write_text(EXAMPLES["A model family"], encoding="utf-8")
    monkeypatch.setattr(families, "mappings_folder", lambda: tmp_path)
    (found,) = model_families()
    return found


NAMES = {
    "encoder.embed.weight": ((9, 6), {"tokens.embedding_table": (9, 6)}),
    "encoder.cls": ((1, 6), {"cls_token": (1, 6)}),
    "encoder.scale": ((6, 1, 1), {"gamma_": (6,)}),
    "encoder.stages.1.down.weight": ((6, 6, 3, 3), {"down2.weight": (6, 6, 3, 3)}),
    "encoder.blocks.0.norm1.weight": ((6,), {"layers.0.ln1.gamma": (6,)}),
    "encoder.blocks.0.norm1.bias": ((6,), {"layers.0.ln1.beta": (6,)}),
    "encoder.blocks.0.attn.qkv.weight": ((18, 6), {f"layers.0.attn.{one}.weight": (6, 6) for one in "qkv"}),
    "encoder.blocks.0.mlp.fc2.weight": ((6, 6), {"layers.0.mlp.fc2.weight": (6, 6)}),
    "encoder.position_ids": ((4,), {}),
}


def test_the_family_leads_there_and_back(family) -> None:
    there = map_from_family(family, parameters({name: shape for name, (shape, _) in NAMES.items()}), "nn")
    expected = {name: shape for _, targets in NAMES.values() for name, shape in targets.items()}
    assert shapes_made(there, {name: shape for name, (shape, _) in NAMES.items()}) == expected
    back = map_from_family(family, parameters(expected | {"layers.0.mask": (4, 4)}), "torch")
    assert shapes_made(back, expected) == {name: shape for name, (shape, targets) in NAMES.items() if targets}


def test_the_family_is_recognised(family) -> None:
    found = recognise_families(parameters({name: shape for name, (shape, _) in NAMES.items()}), "torch")
    assert [one.name for one in found] == [family.name] == ["somebody"]


def test_the_layer_rule_is_the_one_that_the_conformance_tests_hold_against_the_frameworks(tmp_path) -> None:
    (tmp_path / "prelu.toml").write_text(EXAMPLES["A layer rule"], encoding="utf-8")
    assert read_layer_rules(tmp_path / "prelu.toml") == read_layer_rules(mappings_folder() / "layers" / "prelu.toml")


def test_every_key_of_a_layer_rule_is_explained() -> None:
    keys = [field.name for field in dataclasses.fields(LayerFamily)]
    assert [key for key in keys if not re.search(rf"\b{key}\b( =|`)", TEXT)] == []


def test_every_key_of_a_family_is_shown() -> None:
    shown = set(re.findall(r"^(?:\[\[?)?(\w+)", EXAMPLES["A model family"], re.MULTILINE))
    assert {"about", "needs", "optional", "group", "dropped", "examples", "at", "layers", "same", "parameters"} <= shown


@pytest.mark.parametrize(("target", "name"), [("nn", "act.w"), ("mint", "act.weight")])
def test_the_layer_rule_names_parameters(tmp_path, target, name) -> None:
    (tmp_path / "prelu.toml").write_text(EXAMPLES["A layer rule"], encoding="utf-8")
    rules = read_layer_rules(tmp_path / "prelu.toml")
    inferred = infer_names({"act.weight": (3,)}, rules, target, [LayerChoice("act", "prelu")])
    assert [pair.target for pair in inferred.name_map.pairings] == [name]


def test_the_log_format_is_python() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert "PLUGIN = FooLog()" in code
    compile(code, "foo.py", "exec")
    assert sys.modules.get("foo") is None


def parameters(shapes):
    return {name: Parameter(name, shape, "float32", *name.rpartition(".")[::2]) for name, shape in shapes.items()}


def shapes_made(inferred, shapes):
    return {p.target: p.transform.output_shape(shapes[p.source]) for p in inferred.name_map.pairings}
