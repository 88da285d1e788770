"""Each layer rule read backwards, with the real layers as judges: a MindSpore layer's file becomes torch's."""

from __future__ import annotations

from typing import Any

import pytest

from align.names.infer_names import infer_names
from align.rules.layer_rules import layer_rules

pytestmark = pytest.mark.frameworks

RULES = {rule.id: rule for rule in layer_rules()}
HITS = [
    (rule.id, number, family)
    for rule in layer_rules()
    for number, hit in enumerate(rule.hits)
    for family in ("nn", "mint")
    if family in hit and "torch" in hit and rule.files
]
Shapes = dict[str, tuple[int, ...]]


@pytest.mark.parametrize(("rule_id", "number", "family"), HITS)
def test_a_mindspore_layer_becomes_torchs_once_it_is_known(rule_id: str, number: int, family: str) -> None:
    hit = RULES[rule_id].hits[number]
    told = {"layer": (rule_id,), "layer.bn2d": (rule_id,)}
    assert backwards(of_mindspore(hit[family]), told) == of_torch(hit["torch"])


@pytest.mark.parametrize(("rule_id", "number", "family"), HITS)
def test_what_a_file_alone_decides_is_what_torch_has(rule_id: str, number: int, family: str) -> None:
    hit = RULES[rule_id].hits[number]
    beside = {"other.weight": (1,) * 5} if "3d" in hit["torch"] else {}
    shapes = of_mindspore(hit[family])
    inferred = infer_names(shapes | beside, layer_rules(), "torch")
    assert not inferred.faults
    if not inferred.open:
        found = backwards(shapes | beside, {})
        assert {name: shape for name, shape in found.items() if name not in beside} == of_torch(hit["torch"])


def backwards(shapes: Shapes, told: dict[str, tuple[str, ...]]) -> Shapes:
    inferred = infer_names(shapes, layer_rules(), "torch", told=told)
    assert not inferred.open
    made = {p.target: p.transform.output_shape(shapes[p.source]) for p in inferred.name_map.pairings}
    return made | {fill.name: fill.value.shape for fill in inferred.fills}


def of_torch(expression: str) -> Shapes:
    import torch

    layer: Any = eval(expression, {"torch": torch})
    return {f"layer.{name}": tuple(value.shape) for name, value in layer.state_dict().items()}


def of_mindspore(expression: str) -> Shapes:
    import mindspore

    net = mindspore.nn.CellDict({"layer": eval(expression, {"mindspore": mindspore})})
    return {parameter.name: tuple(parameter.shape) for parameter in net.get_parameters()}
