"""Each layer rule read backwards, with the real layers as judges: a MindSpore layer's file becomes torch's."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from align.names.infer_names import infer_names
from align.rules.layer_rules import layer_rules

pytestmark = pytest.mark.frameworks

HITS = {
    rule.id: hits
    for rule in layer_rules()
    if (
        hits := [
            (hit["torch"], hit[family])
            for hit in rule.hits
            for family in ("nn", "mint")
            if family in hit and "torch" in hit and rule.files
        ]
    )
}
Shapes = dict[str, tuple[int, ...]]
AssertEach = Callable[[Callable[..., None], Collection[Any]], None]


@pytest.mark.parametrize("rule_id", HITS)
def test_a_mindspore_layer_becomes_torchs_once_it_is_known(rule_id: str, assert_each: AssertEach) -> None:
    def becomes(torch: str, mindspore: str) -> None:
        told = {"layer": (rule_id,), "layer.bn2d": (rule_id,)}
        assert backwards(of_mindspore(mindspore), told) == of_torch(torch)

    assert_each(becomes, HITS[rule_id])


@pytest.mark.parametrize("rule_id", HITS)
def test_what_a_file_alone_decides_is_what_torch_has(rule_id: str, assert_each: AssertEach) -> None:
    def decides(torch: str, mindspore: str) -> None:
        beside = {"other.weight": (1,) * 5} if "3d" in torch else {}
        shapes = of_mindspore(mindspore)
        inferred = infer_names(shapes | beside, layer_rules(), "torch")
        assert not inferred.faults
        if not inferred.open:
            found = backwards(shapes | beside, {})
            assert {name: shape for name, shape in found.items() if name not in beside} == of_torch(torch)

    assert_each(decides, HITS[rule_id])


def backwards(shapes: Shapes, told: dict[str, tuple[str, ...]]) -> Shapes:
    inferred = infer_names(shapes, layer_rules(), "torch", known_kinds=told)
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
