"""Both sides' parameters, in the order that counts as evidence."""

from __future__ import annotations

import numpy as np

from align.frameworks.arrays import ArrayLayer, ArrayModel
from align.workflows.map_parameters import executed, map_parameters
from align.workflows.sides import open_side


def test_an_order_of_execution_that_only_one_side_has_is_not_used() -> None:
    def chain(bypassed: bool) -> ArrayModel:
        weights = {"weight": np.ones((3, 3), np.float32)}
        layers = [ArrayLayer(name, "torch.nn.Linear", lambda x, weight: x @ weight.T, weights) for name in ("a", "b")]
        return Bypassing(tuple(layers)) if bypassed else ArrayModel(tuple(layers))

    class Bypassing(ArrayModel):
        """Uses the function of its first layer past the recorder, as `layer.forward(x)` does in torch."""

        def __call__(self, x, recorder=None):
            x = self.layers[0].function(x, **self.layers[0].parameters)
            return ArrayModel(self.layers[1:])(x, recorder)

    inputs = {"x": np.ones((2, 3), np.float32)}

    def orders(*models: ArrayModel) -> list[str]:
        sides = open_side(models[0]), open_side(models[1])
        parameters = [side.reader.read_parameters(side.model, side.label) for side in sides]
        return [side.order for side in executed(sides, (parameters[0], parameters[1]), inputs)]

    assert orders(chain(False), chain(False)) == ["execution", "execution"]
    assert "registration" in orders(chain(False), chain(True))
    open_still = map_parameters(chain(False), chain(True), inputs=inputs)
    assert open_still.name_map.complete  # by equal names


def test_the_order_of_execution_pairs_what_names_leave_open_and_nothing_else() -> None:
    """A correct port that is called in another order keeps its names; only what has none follows the calls."""

    def model(*names: str) -> ArrayModel:
        weights = {"weight": np.ones((3, 3), np.float32)}
        return ArrayModel(
            tuple(ArrayLayer(n, "torch.nn.Linear", lambda x, weight: x @ weight.T, weights) for n in names)
        )

    inputs = {"x": np.ones((2, 3), np.float32)}
    source, target = model("main", "down", "left", "right"), model("down", "main", "red", "green")
    pairs = {p.source: p for p in map_parameters(source, target, inputs=inputs).name_map.pairings}
    assert {name: (p.target, p.sure) for name, p in pairs.items()} == {
        "main.weight": ("main.weight", True),
        "down.weight": ("down.weight", True),
        "left.weight": ("red.weight", False),
        "right.weight": ("green.weight", False),
    }
