"""Both sides' parameters, in the order that counts as evidence."""

from __future__ import annotations

import numpy as np

from align.frameworks.arrays import ArrayLayer, ArrayModel
from align.workflows.map_parameters import read_parameters
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
    both = read_parameters((open_side(chain(False)), open_side(chain(False))), inputs)
    assert [side.order for side in both] == ["execution", "execution"]
    one = read_parameters((open_side(chain(False)), open_side(chain(True))), inputs)
    assert [side.order for side in one] == ["registration", "registration"]
