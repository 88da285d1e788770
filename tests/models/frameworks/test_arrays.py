"""The NumPy adapter, by which every step of the flow can be tested without a framework."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from align.core.load_code import model_readers
from align.errors import InputsError, ModelFailedError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

ADAPTER: Any = model_readers()["arrays"]


def model() -> ArrayModel:
    weights = {"weight": np.eye(2, dtype=np.float32) * 2}
    return ArrayModel((
        ArrayLayer("fc", "torch.nn.Linear", lambda x, weight: x @ weight.T, weights),
        ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),
    ))  # fmt: skip


class Captured(dict[str, Any]):
    def add(self, capture: Any, value: Any) -> None:
        self[capture.key] = value.copy()


def test_names_classes_and_values_are_read() -> None:
    read = ADAPTER.read_parameters(model(), "net")
    assert read.names == ("fc.weight",)
    assert [(m.path, m.class_name) for m in read.modules] == [("", "ArrayModel"), ("fc", "Linear"), ("act", "ReLU")]
    values = ADAPTER.read_values(model())
    assert values["fc.weight"].tolist() == [[2, 0], [0, 2]]


def test_a_run_captures_every_layer_and_the_model() -> None:
    sink = Captured()
    ADAPTER.run(model(), {"pixels": np.float32([[1, -1]])}, sink)
    assert {key: value.tolist() for key, value in sink.items()} == {
        "fc#0": [[2, -2]],
        "act#0": [[2, 0]],
        "#0": [[2, 0]],
    }


def test_loading_lists_all_faults() -> None:
    with pytest.raises(InputsError, match=r"missing: fc\.weight \[2, 2\]\n  unexpected: other \[1\]"):
        ADAPTER.load_values(model(), {"other": np.ones(1)})


def test_a_failing_layer_is_named() -> None:
    with pytest.raises(ModelFailedError, match=r"in layer 'fc' \(Linear\) at .*:\d+ on inputs x float64\[3\]"):
        ADAPTER.run(model(), {"x": np.ones(3)}, Captured())


def test_the_wide_copy_computes_in_float64() -> None:
    sink = Captured()
    ADAPTER.run(ADAPTER.widened(model()), {"x": np.float32([[1, -1]])}, sink)
    assert sink["fc#0"].dtype == np.float64


def test_every_run_draws_the_same_and_leaves_the_random_state() -> None:
    drawing = ArrayModel((ArrayLayer("noise", "Noise", lambda x: x + np.random.rand(), {}),))
    state = np.random.get_state()[1].tolist()  # type: ignore[index]
    first, second = Captured(), Captured()
    for sink in (first, second):
        ADAPTER.run(drawing, {"x": np.ones(2)}, sink)
    assert np.array_equal(first["#0"], second["#0"])
    assert np.random.get_state()[1].tolist() == state  # type: ignore[index]
