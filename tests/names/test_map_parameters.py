"""Both sides' parameters, in the order that counts as evidence."""

from __future__ import annotations

import numpy as np

from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.names.map_parameters import map_parameters


class Bypassing(ArrayModel):
    """Uses the function of its last layer past the recorder, as `layer.forward(x)` does in torch."""

    def __call__(self, x, recorder=None, stand_ins=None):
        last = self.layers[-1]
        x = ArrayModel(self.layers[:-1])(x, recorder, stand_ins)
        return last.function(x, **last.parameters)


def chain(kind: type[ArrayModel], *names: str, last: int = 3) -> ArrayModel:
    """Linear layers of one width, the last one of its own."""
    shapes = [(3, 3)] * (len(names) - 1) + [(last, 3)]
    return kind(
        tuple(
            ArrayLayer(n, "torch.nn.Linear", lambda x, weight: x @ weight.T, {"weight": np.ones(shape, np.float32)})
            for n, shape in zip(names, shapes, strict=True)
        )
    )


INPUTS = {"x": np.ones((2, 3), np.float32)}


def test_the_order_tells_of_layers_beside_one_that_was_not_seen_to_run_which_is_said() -> None:
    source, target = chain(ArrayModel, "one", "two", "out", last=5), chain(Bypassing, "red", "green", "head", last=5)
    assert not map_parameters(source, target).name_map.complete
    result = map_parameters(source, target, inputs=INPUTS)
    assert {p.source: p.target for p in result.name_map.pairings} == {
        "one.weight": "red.weight",
        "two.weight": "green.weight",
        "out.weight": "head.weight",
    }
    assert result.warnings == (
        "1 module of Bypassing was not seen to run, so the order of calls says nothing about it: head",
    )


def test_a_rival_that_was_not_seen_to_run_leaves_the_others_open() -> None:
    """Of three layers alike the third may stand anywhere."""
    source, target = chain(ArrayModel, "one", "two", "out"), chain(Bypassing, "red", "green", "head")
    assert not map_parameters(source, target, inputs=INPUTS).name_map.pairings


def test_nothing_is_said_of_the_order_where_names_tell_all() -> None:
    result = map_parameters(chain(ArrayModel, "a", "b"), chain(Bypassing, "a", "b"), inputs=INPUTS)
    assert (result.name_map.complete, result.warnings) == (True, ())


def test_the_order_of_execution_pairs_what_names_leave_open_and_nothing_else() -> None:
    """Names stay where the calls contradict them, but are not sure then; only what has none follows the calls."""

    def model(*names: str) -> ArrayModel:
        weights = {"weight": np.ones((3, 3), np.float32)}
        return ArrayModel(
            tuple(ArrayLayer(n, "torch.nn.Linear", lambda x, weight: x @ weight.T, weights) for n in names)
        )

    inputs = {"x": np.ones((2, 3), np.float32)}
    source, target = model("main", "down", "left", "right"), model("down", "main", "red", "green")
    pairs = {p.source: p for p in map_parameters(source, target, inputs=inputs).name_map.pairings}
    assert {name: (p.target, p.sure) for name, p in pairs.items()} == {
        "main.weight": ("main.weight", False),  # the port calls them the other way round, right or wrong
        "down.weight": ("down.weight", False),
        "left.weight": ("red.weight", False),
        "right.weight": ("green.weight", False),
    }
