"""Parameters that hold something else than the map says: what they hold is named, and nothing is guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from align.core.name_map import NameMap, Pairing
from align.core.piece_transforms import Part
from align.core.transforms import IDENTITY, Permute, Transform
from align.forward.explain_culprits import initial_distribution, weight_causes

if TYPE_CHECKING:
    from align.core.parameters import Array
    from align.forward.relations.relation import Relation

RNG = np.random.default_rng(3)


def drawn(*shape: int) -> Array:
    return (0.05 * np.random.default_rng(sum(shape)).standard_t(5, shape)).astype(np.float32)


SQUARE, KERNEL, FUSED = drawn(32, 32), drawn(16, 8, 3, 3), drawn(48, 16)


def causes(meant: dict[str, Array], held: dict[str, Array], transform: Transform = IDENTITY) -> dict[str, Relation]:
    pairings = tuple(Pairing(a, b, "rule", 1.0, transform) for a, b in zip(meant, held, strict=True))
    return weight_causes(meant, held, NameMap("a", "b", pairings))


def cause(meant: Array, held: Array) -> Relation | None:
    return causes({"fc.weight": meant}, {"head.weight": held}).get("head.weight")


FORMS: dict[str, tuple[Array, Array, dict[str, Any]]] = {
    "transposed": (SQUARE, SQUARE.T, {"axes": "1,0"}),
    "transposed kernel": (KERNEL, KERNEL.swapaxes(2, 3), {"axes": "0,1,3,2"}),
    "permuted": (SQUARE, SQUARE[RNG.permutation(32)], {"axis": 0}),
    "permuted columns": (SQUARE, SQUARE[:, RNG.permutation(32)], {"axis": 1}),
    "negated": (SQUARE, -SQUARE, {}),
    "scaled": (SQUARE, SQUARE / np.float32(3), {"scale_is": "1/3"}),
    "rounded": (SQUARE, SQUARE.astype(np.float16).astype(np.float32), {"dtype": "float16"}),
    "rounded twice": (SQUARE, SQUARE.astype(ml_dtypes.bfloat16).astype(np.float32), {"dtype": "bfloat16"}),
    "rolled": (SQUARE, np.roll(SQUARE, 1, 0), {"axis": 0, "by": 1}),
    "displaced": (SQUARE, np.concatenate([drawn(1, 32), SQUARE[:-1]]), {"axis": 0, "by": 1}),
    "parts-reordered": (FUSED, FUSED[[*range(16, 32), *range(16), *range(32, 48)]], {"parts": 3, "order": "1,0,2"}),
    "interleaved": (FUSED, FUSED.reshape(3, 16, 16).swapaxes(0, 1).reshape(48, 16), {"rows": 3, "columns": 16}),
    "flipped": (KERNEL, KERNEL[..., ::-1], {"axis": 3}),
    "slices": (SQUARE, np.concatenate([SQUARE[:30], drawn(2, 32)]), {"places": "30-31"}),
    "initial-value": (SQUARE, np.zeros_like(SQUARE), {"value": 0.0}),
    "unrelated": (SQUARE, drawn(32, 16, 2).reshape(32, 32), {}),
    "reshaped": (FUSED, FUSED.reshape(16, 48), {}),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_form_of_a_value_is_named(name: str) -> None:
    meant, held, facts = FORMS[name]
    found = cause(meant, held)
    assert found is not None
    assert found.id == name.partition(" ")[0]
    assert facts.items() <= found.facts.items()


def test_equal_values_have_no_cause() -> None:
    odd = np.where(SQUARE > 0, SQUARE, np.nan)
    assert cause(SQUARE, SQUARE.copy()) is None
    assert cause(odd, odd.copy()) is None


def test_values_in_each_others_places_are_told_from_a_copy() -> None:
    first, second, third = drawn(8, 4), drawn(4, 8).T, -drawn(8, 4)
    found = causes({"a": first, "b": second, "c": third}, {"x": second, "y": first, "z": second})
    assert {name: (one.id, one.facts["holds"]) for name, one in found.items()} == {
        "x": ("swapped-weights", "b"),
        "y": ("swapped-weights", "a"),
        "z": ("weights-of-another", "b"),
    }


def test_values_are_looked_up_in_the_form_of_the_target() -> None:
    first, second = drawn(6, 6), -(drawn(6, 6) ** 2)
    found = causes({"a": first, "b": second}, {"x": second.T, "y": first.T}, Permute((1, 0)))
    assert [one.id for one in found.values()] == ["swapped-weights"] * 2


def test_zeros_and_ones_are_nobodys_values() -> None:
    meant = {"a": np.ones(64, np.float32), "b": drawn(64)}
    found = causes(meant, {"x": np.ones(64, np.float32), "y": np.ones(64, np.float32)})
    assert [(name, one.id) for name, one in found.items()] == [("y", "initial-value")]


def test_a_piece_of_a_fused_weight_that_holds_another_piece_is_named() -> None:
    pieces = {name: drawn(4, size) @ drawn(size, 8) for name, size in (("q", 5), ("k", 6), ("v", 7))}
    pairings = tuple(
        Pairing(name, "qkv", "rule", 1.0, Part(0, 4 * place, 4 * place + 4, (12, 8)))
        for place, name in enumerate(pieces)
    )
    held = {"qkv": np.concatenate([pieces["k"], pieces["q"], pieces["v"]])}
    found = weight_causes(pieces, held, NameMap("a", "b", pairings))
    assert [*found] == ["qkv"]
    assert found["qkv"].id == "swapped-weights"


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (RNG.uniform(-1 / 8, 1 / 8, (32, 64)), "uniform 1/sqrt(fan_in)"),
        (RNG.normal(0, 0.02, (128, 64)), "normal 0.02"),
        (RNG.standard_normal((128, 64)), "normal 1"),
        (RNG.normal(0, (2 / 288) ** 0.5, (16, 32, 3, 3)), "normal sqrt(2/fan_in)"),
        (RNG.uniform(-0.3, 0.3, (32, 64)), ""),
        (RNG.standard_t(4, (128, 64)) * 0.02, ""),
        (np.zeros((32, 64)), ""),
        (RNG.standard_normal(8), ""),
    ],
)
def test_the_distribution_of_a_fresh_layer_is_known(values: Array, name: str) -> None:
    assert name in initial_distribution(values.astype(np.float32)).split(" or ")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_dtypes_are_no_obstacle(dtype: Any) -> None:
    fresh = RNG.normal(0, 0.02, (64, 64)).astype(dtype)
    for held, name in ((SQUARE.T, "transposed"), (SQUARE / 4, "scaled"), (fresh, "not-loaded")):
        size = SQUARE if held.shape == SQUARE.shape else drawn(64, 64)
        found = cause(size.astype(dtype), held.astype(dtype))
        assert found is not None
        assert found.id == name


def test_an_order_of_rows_and_columns_both_is_not_told_but_the_values_are() -> None:
    found = cause(SQUARE, SQUARE[RNG.permutation(32)][:, RNG.permutation(32)])
    assert found is not None
    assert (found.id, found.explains) == ("shuffled", False)


def test_a_fresh_draw_in_place_of_a_value_is_not_loaded() -> None:
    found = cause(SQUARE, RNG.normal(0, 0.02, (32, 32)).astype(np.float32))
    assert found is not None
    assert (found.id, found.facts["distribution"]) == ("not-loaded", "normal 0.02")


@pytest.mark.usefixtures("guarded")
def test_ten_thousand_parameters_are_not_compared_with_each_other(growth) -> None:
    def explain(count: int) -> None:
        meant = {f"layers.{number}.weight": RNG.standard_normal((4, 8)).astype(np.float32) for number in range(count)}
        held = dict(zip(meant, [*list(meant.values())[1:], next(iter(meant.values()))], strict=True))
        assert {one.id for one in causes(meant, held).values()} == {"weights-of-another"}

    assert growth(explain, 200) < 3
    explain(10_000)
