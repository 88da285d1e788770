"""Names that are equal and mean another layer: lists numbered from another start, and layers that are left over."""

from __future__ import annotations

import numpy as np
import pytest

from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.names.map_parameters import map_parameters

INPUTS = {"x": np.ones((2, 4), np.float32)}


def chain(names: str, layer_class: str) -> ArrayModel:
    weights = {"weight": np.ones((4, 4), np.float32)}
    return ArrayModel(
        tuple(ArrayLayer(name, layer_class, lambda x, weight: x @ weight.T, dict(weights)) for name in names.split())
    )


def sure_pairs(source: str, target: str, inputs: dict[str, np.ndarray] | None) -> dict[str, str]:
    result = map_parameters(chain(source, "torch.nn.Linear"), chain(target, "mindspore.nn.Dense"), inputs=inputs)
    return {
        pair.source.removesuffix(".weight"): pair.target.removesuffix(".weight") for pair in result.name_map.pairings
    }


@pytest.mark.parametrize("inputs", [None, INPUTS], ids=["static", "executed"])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("fc1 fc2 fc3", "fc0 fc1 fc2"),
        ("blocks.0.conv1 blocks.0.conv2 blocks.1.conv1 blocks.1.conv2",
         "blocks.0.conv0 blocks.0.conv1 blocks.1.conv0 blocks.1.conv1"),
        ("in_conv conv1 conv2", "conv1 conv2 conv3"),
        ("net.0 net.1 net.2 out", "inp net.0 net.1 net.2"),
        ("net.0 net.2 out", "net.0 net.1 net.2"),
    ],
)  # fmt: skip
def test_a_list_numbered_from_another_start_is_never_paired_by_its_numbers(
    source: str, target: str, inputs: dict[str, np.ndarray] | None
) -> None:
    truth = dict(zip(source.split(), target.split(), strict=True))
    found = sure_pairs(source, target, inputs)
    assert {name: other for name, other in found.items() if truth[name] != other} == {}


def test_two_lists_that_only_start_at_another_number_are_paired_in_order() -> None:
    assert sure_pairs("fc1 fc2 fc3", "fc0 fc1 fc2", None) == {"fc1": "fc0", "fc2": "fc1", "fc3": "fc2"}


def test_two_strangers_of_one_shape_at_unlike_places_stay_open() -> None:
    found = sure_pairs("fc1 fc2 pooler head", "fc1 adapter fc2 head", None)
    assert found["head"] == "head"
    assert "pooler" not in found
    assert found.get("fc2", "fc2") == "fc2"


def test_the_matrices_of_attention_are_known_by_the_names_of_the_formula() -> None:
    found = sure_pairs("q_proj k_proj v_proj o_proj", "wq wk wv wo", None)
    assert found == {"q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo"}


def test_order_of_execution_alone_is_less_sure_than_a_name() -> None:
    sides = chain("wa wb", "torch.nn.Linear"), chain("p1 p2", "mindspore.nn.Dense")
    pairings = map_parameters(*sides, inputs=INPUTS).name_map.pairings
    assert [pair.confidence for pair in pairings] == [0.75, 0.75]
    assert map_parameters(*sides).name_map.pairings == ()
