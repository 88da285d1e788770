"""A fused layer of which the user rules one parameter: the others go the same way, or stay open where they cannot."""

from __future__ import annotations

import pytest

from align.core.parameters import Module, Parameter, ParameterSet
from align.core.piece_transforms import Part, Reorder, Slice
from align.core.transforms import chained
from align.names.matching.match_names import match_names
from align.names.user_rules import NameRules

LINEAR, DENSE = "torch.nn.Linear", "mindspore.nn.Dense"


def side(label: str, layer_class: str, **layers: dict[str, tuple[int, ...]]) -> ParameterSet:
    parameters, modules = [], []
    for path, shapes in layers.items():
        own = [Parameter(f"{path}.{name}", shape, "float32", path, name) for name, shape in shapes.items()]
        parameters += own
        modules.append(Module(path, (layer_class,), tuple(one.name for one in own)))
    return ParameterSet(label, None, tuple(parameters), tuple(modules))


PIECE = {"weight": (4, 3), "bias": (4,)}
FUSED = side("fused", LINEAR, mix={"weight": (8, 3), "bias": (8,)})
APART = side("apart", DENSE, one=PIECE, two=PIECE)
CUT = {"mix.weight": [("two.weight", Slice(0, 0, 4)), ("one.weight", Slice(0, 4, 8))]}


def rules(names: dict[str, list]) -> NameRules:
    first = {source: targets[0] for source, targets in names.items()}
    return NameRules("mine", first, further={source: tuple(targets[1:]) for source, targets in names.items()})


def followers(source: ParameterSet, target: ParameterSet, names: dict[str, list]) -> dict[tuple[str, str], object]:
    found = match_names(source, target, rules(names)).pairings
    return {(one.source, one.target): one.transform for one in found if one.evidence != "user"}


def test_the_bias_of_a_cut_layer_is_cut_as_its_weight_is() -> None:
    assert followers(FUSED, APART, CUT) == {
        ("mix.bias", "two.bias"): Slice(0, 0, 4),
        ("mix.bias", "one.bias"): Slice(0, 4, 8),
    }


def test_the_weight_follows_a_bias_and_blocks_are_put_in_the_same_order() -> None:
    order = Reorder(0, (1, 0))
    names = {"mix.bias": [(f"{n}.bias", chained(order, Slice(0, i, i + 4))) for n, i in (("one", 0), ("two", 4))]}
    assert followers(FUSED, APART, names) == {
        ("mix.weight", "one.weight"): chained(order, Slice(0, 0, 4)),
        ("mix.weight", "two.weight"): chained(order, Slice(0, 4, 8)),
    }


def test_the_biases_of_joined_layers_are_joined() -> None:
    names = {f"{n}.weight": [("mix.weight", Part(0, i, i + 4, (8, 3)))] for n, i in (("two", 0), ("one", 4))}
    assert followers(APART, FUSED, names) == {
        ("two.bias", "mix.bias"): Part(0, 0, 4, (8,)),
        ("one.bias", "mix.bias"): Part(0, 4, 8, (8,)),
    }


@pytest.mark.parametrize(
    ("fused", "apart"),
    [
        (FUSED, side("a piece without a bias", DENSE, one=PIECE, two={"weight": (4, 3)})),
        (side("a bias of its own length", LINEAR, mix={"weight": (8, 3), "bias": (12,)}), APART),
        (side("a fused layer without a bias", LINEAR, mix={"weight": (8, 3)}), APART),
    ],
)
def test_a_bias_that_does_not_fit_stays_open(fused: ParameterSet, apart: ParameterSet) -> None:
    assert followers(fused, apart, CUT) == {}


def test_what_the_user_says_of_a_bias_is_not_overruled() -> None:
    names = {**CUT, "mix.bias": [("one.bias", Slice(0, 0, 4)), ("two.bias", Slice(0, 4, 8))]}
    assert followers(FUSED, APART, names) == {}


def test_a_matrix_cut_along_its_inputs_takes_no_bias_along() -> None:
    wide = side("wide", LINEAR, mix={"weight": (4, 6), "bias": (4,)})
    names = {"mix.weight": [("one.weight", Slice(1, 0, 3)), ("two.weight", Slice(1, 3, 6))]}
    assert followers(wide, APART, names) == {}
