"""Two files of the same weights: values part sure pairs that names made, and turn matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.core.transforms import IDENTITY, Permute
from align.names.map_parameters import map_parameters
from align.names.user_rules import NameRules

if TYPE_CHECKING:
    from pathlib import Path

    from align.core.name_map import NameMap

RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


@pytest.fixture
def mapped(tmp_path: Path):
    def of(source: dict[str, np.ndarray], target: dict[str, np.ndarray], **options: object) -> NameMap:
        np.savez(tmp_path / "a.npz", **source)
        np.savez(tmp_path / "b.npz", **target)
        return map_parameters(tmp_path / "a.npz", tmp_path / "b.npz", **options).name_map

    return of


def found(name_map: NameMap) -> dict[str, str]:
    return {p.source: p.target for p in name_map.pairings}


def test_equal_names_whose_values_are_each_others_are_exchanged_with_a_note(mapped) -> None:
    left, right = draw(8, 8), draw(8, 8)
    name_map = mapped(
        {"m.left.weight": left, "m.right.weight": right}, {"m.left.weight": right, "m.right.weight": left}
    )
    assert found(name_map) == {"m.left.weight": "m.right.weight", "m.right.weight": "m.left.weight"}
    first = name_map.pairings[0]
    assert (first.evidence, first.confidence) == ("values", 1.0)
    assert first.note == "the names say m.left.weight, which holds another value"


def test_blocks_in_another_order_are_exchanged_whole_though_their_biases_are_zero(mapped) -> None:
    weights = [draw(8, 4) for _ in range(3)]
    source = {f"h.{i}.fc.weight": weights[i] for i in range(3)} | {f"h.{i}.fc.bias": np.zeros(8) for i in range(3)}
    target = {
        name.replace(f"h.{i}", f"b.{2 - i}"): v for i in range(3) for name, v in source.items() if f".{i}." in name
    }
    name_map = mapped(source, target)
    assert found(name_map) == {f"h.{i}.fc.{n}": f"b.{2 - i}.fc.{n}" for i in range(3) for n in ("weight", "bias")}


def test_names_stay_where_values_are_other_or_stand_twice(mapped) -> None:
    left, right = draw(8, 6), draw(8, 6)
    names = "m.left.weight", "m.right.weight"

    def side(*values: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(names, values, strict=True))

    same = {name: name for name in names}
    assert found(mapped(side(left, right), side(right + 1, left + 1))) == same
    assert found(mapped(side(left, left), side(right, left))) == same
    assert {p.evidence for p in mapped(side(left, right), side(left, right)).pairings} == {"name"}


def test_values_confirm_what_is_not_sure(mapped) -> None:
    square = draw(8, 8)
    (pairing,) = mapped({"fc.weight": square}, {"fc.weight": square + 1}).pairings
    assert not pairing.sure
    (pairing,) = mapped({"fc.weight": square}, {"fc.weight": square}).pairings
    assert (pairing.evidence, pairing.confidence, pairing.note) == ("values", 1.0, "")


def test_what_the_user_said_stands_whatever_the_values(mapped) -> None:
    left, right = draw(8, 8), draw(8, 8)
    rules = NameRules(names={"m.left.weight": ("m.left.weight", IDENTITY)})
    name_map = mapped(
        {"m.left.weight": left, "m.right.weight": right}, {"m.left.weight": right, "m.right.weight": left}, rules=rules
    )
    assert found(name_map)["m.left.weight"] == "m.left.weight"
    assert name_map.by_source["m.left.weight"].evidence == "user"


def test_the_shadow_of_a_weight_is_not_its_counterpart(mapped) -> None:
    weight, averaged = draw(8, 8), draw(8, 8)
    source = {"fc.weight": weight, "ema.fc.weight": averaged}
    assert found(mapped(source, {"fc.weight": averaged}))["fc.weight"] == "fc.weight"


def test_matrices_that_a_file_holds_transposed_are_turned_by_their_values(mapped) -> None:
    wi, wo, square = draw(24, 8), draw(8, 24), draw(8, 8)
    source = {"b.0.wi.weight": wi, "b.0.wo.weight": wo, "b.0.o.weight": square}
    name_map = mapped(source, {"l.0.mapping.weight": wi.T, "l.0.projection.weight": wo.T, "l.0.out.weight": square.T})
    assert found(name_map) == {
        "b.0.wi.weight": "l.0.mapping.weight",
        "b.0.wo.weight": "l.0.projection.weight",
        "b.0.o.weight": "l.0.out.weight",
    }
    assert {p.transform for p in name_map.pairings} == {Permute((1, 0))}


def test_a_transposed_convolution_of_one_position_keeps_its_axes(mapped) -> None:
    weight = draw(8, 4, 1, 1)
    (pairing,) = mapped({"c.weight": weight}, {"c.weight": weight[:, :, 0, 0].T}).pairings
    assert np.array_equal(pairing.transform.apply(weight), weight[:, :, 0, 0].T)


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (1, 0, 2, 3), (3, 1, 2, 0), (0, 1, 3, 2, 4, 5)])
def test_blocks_beside_two_that_are_exchanged_stay_where_values_find_them(mapped, order) -> None:
    shapes = {"fc1.weight": (6, 4), "fc1.bias": (6,), "fc2.weight": (4, 6)}
    source = {f"blocks.{n}.{part}": draw(*shape) for n in range(len(order)) for part, shape in shapes.items()}
    source |= {f"blocks.{n}.fc2.bias": np.zeros(4) for n in range(len(order))}
    rests = [part.removeprefix("fc") for part in (*shapes, "fc2.bias")]
    true = {f"blocks.{n}.fc{rest}": f"layers.{to}.lin{rest}" for n, to in enumerate(order) for rest in rests}
    name_map = mapped(source, dict(sorted((to, source[name]) for name, to in true.items())))
    assert found(name_map) == true
