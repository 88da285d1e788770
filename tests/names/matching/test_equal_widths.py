"""A fused layer that is as wide as others by chance is known by its name, and blocks nothing around it."""

from __future__ import annotations

import numpy as np
import pytest

from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.names.map_parameters import map_parameters

WIDE, HALF, POINT = (16, 16), (8, 16), (16, 16, 1)


def model(layers: dict[str, tuple[str, tuple[int, ...]]]) -> ArrayModel:
    found = (
        ArrayLayer(path, kind, len, {"weight": np.zeros(shape, np.float32), "bias": np.zeros(shape[0], np.float32)})
        for path, (kind, shape) in layers.items()
    )
    return ArrayModel(tuple(found))


def blocks(kinds: dict[str, tuple[str, tuple[int, ...]]], prefix: str) -> ArrayModel:
    return model({f"{prefix}.{n}.{path}": one for n in range(2) for path, one in kinds.items()})


APART = {name: ("torch.nn.Linear", HALF if name in "kv" else WIDE) for name in "qkvo"}
SOURCE = blocks({f"att.{name}": one for name, one in APART.items()} | {"conv": ("torch.nn.Conv1d", POINT)}, "blocks")
TRUE = {"att.q": "attention.wq", "att.o": "attention.wo", "conv": "pointwise"}


@pytest.mark.parametrize("fused", ["kv", "to_kv", "wkv"])
def test_the_layer_that_is_called_after_its_pieces_is_the_fused_one(fused: str) -> None:
    names = ["attention.wq", f"attention.{fused}", "attention.wo", "pointwise"]
    target = blocks(dict.fromkeys(names, ("mindspore.nn.Dense", WIDE)), "layers")
    found = map_parameters(SOURCE, target).name_map
    assert found.complete
    true = {f"blocks.{n}.{a}": f"layers.{n}.{b}" for n in range(2) for a, b in TRUE.items()}
    true |= {f"blocks.{n}.att.{name}": f"layers.{n}.attention.{fused}" for n in range(2) for name in "kv"}
    assert {p.source.rpartition(".")[0]: p.target.rpartition(".")[0] for p in found.pairings} == true


def test_where_no_name_spells_the_pieces_nothing_is_guessed() -> None:
    names = ["attention.wq", "attention.mixed", "attention.wo", "pointwise"]
    target = blocks(dict.fromkeys(names, ("mindspore.nn.Dense", WIDE)), "layers")
    found = map_parameters(SOURCE, target).name_map
    assert not [pair for pair in found.pairings if pair.target.endswith("mixed.weight")]


def test_a_fused_layer_in_a_bare_module_pairs_where_all_else_is_as_wide_by_chance() -> None:
    linear, dense = "torch.nn.Linear", "mindspore.nn.Dense"
    source = model({"qkv": (linear, (48, 16)), "proj": (linear, WIDE), "mix": ("torch.nn.Conv1d", POINT)})
    target = model(dict.fromkeys(("q", "k", "v", "output", "pointwise"), (dense, WIDE)))
    found = map_parameters(source, target).name_map
    assert [p.target for p in found.pairings] == [f"{n}.{role}" for role in ("weight", "bias") for n in "qkv"]
    assert {name for group in found.ambiguous for name in group.sources if name.endswith("weight")} == {
        "proj.weight",
        "mix.weight",
    }
