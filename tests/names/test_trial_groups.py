"""Forms in which a trial may put one layer's parameters into another's."""

from __future__ import annotations

import pytest

from align.core.parameters import Parameter
from align.names.read_layers import Layer
from align.names.trial_runs import TrialGroup


def layer(path: str, kind: str, inputs_first: bool | None) -> tuple[Layer, Parameter]:
    weight = Parameter(f"{path}.weight", (4, 4), "float32", path, "weight")
    shapes = {"weight": weight.shape}
    return Layer(path, 0, kind, {"weight": weight}, shapes, (("weight", (4, 4)),), {}, inputs_first), weight


@pytest.mark.parametrize(
    ("kinds", "firsts", "expected"),
    [
        (("linear", "linear"), (False, False), ["identity"]),
        (("linear", "linear"), (False, True), ["permute"]),
        (("linear", "linear"), (True, True), ["identity"]),
        (("linear", "linear"), (False, None), ["identity", "permute"]),
        (("linear", ""), (False, False), ["identity", "permute"]),
    ],
)
def test_a_square_matrix_is_turned_where_the_classes_say_so_and_tried_where_they_do_not(
    kinds, firsts, expected
) -> None:
    (a, mine), (b, theirs) = layer("a", kinds[0], firsts[0]), layer("b", kinds[1], firsts[1])
    group = TrialGroup({"a": a}, {"b": b}, [({"a": mine}, {"b": theirs})])
    assert [pairing.transform.op for (pairing,) in group.forms("a", "b")] == expected
