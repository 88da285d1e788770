"""What a sink may change while a real model runs: inputs wherever they stand, and all that a call returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.load_code import model_readers
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.models.record_calls import with_leaves

if TYPE_CHECKING:
    from align.core.traces import Capture

pytestmark = pytest.mark.frameworks
X = np.arange(3, dtype=np.float32)


@dataclass
class Told:
    """Replaces inputs and outputs by name, and keeps what it saw."""

    inputs: dict[tuple[str, str], Any]
    outputs: dict[tuple[str, str], Any]

    def __post_init__(self) -> None:
        self.given: dict[str, dict[str, Any]] = {}
        self.seen: dict[str, Any] = {}

    def enter(self, module: str, call: int, inputs: Any) -> Any:
        self.given[f"{module}#{call}"] = {name: np.array(value) for name, value in inputs.items()}
        return {name: self.inputs[module, name] for name in inputs if (module, name) in self.inputs}

    def add(self, capture: Capture, value: Any) -> None:
        self.seen[capture.key] = np.array(value)

    def instead(self, capture: Capture, value: Any) -> Any:
        return self.outputs.get((capture.module, capture.output))


def torch_model() -> Any:
    import torch
    from torch import nn

    class Inner(nn.Module):
        def forward(self, x: Any, pair: Any = (), *, mask: Any = None) -> Any:
            return x * mask, {"sum": x + pair[0], "rest": [pair[1], "word"]}

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()
            self.norm = nn.LayerNorm(3, eps=1.0)

        def forward(self, x: Any) -> Any:
            product, found = self.inner(x, (x, 7), mask=torch.ones(3))
            return self.norm(product) + found["sum"]

    return Net()


def mindspore_model() -> Any:
    from mindspore import nn, ops

    class Inner(nn.Cell):
        def construct(self, x: Any, pair: Any = (), *, mask: Any = None) -> Any:
            return x * mask, {"sum": x + pair[0], "rest": [pair[1], "word"]}

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()
            self.norm = nn.LayerNorm((3,), epsilon=1.0)

        def construct(self, x: Any) -> Any:
            product, found = self.inner(x, (x, 7), mask=ops.ones(3))
            return self.norm(product) + found["sum"]

    return Net()


MODELS = {"torch": torch_model, "mindspore": mindspore_model}


@pytest.fixture(params=sorted(MODELS))
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(framework: str, sink: Any, stand_ins: Any = None) -> None:
    adapter: Any = model_readers()[framework]
    adapter.run(MODELS[framework](), {"x": X}, sink, stand_ins)


def test_inputs_are_seen_by_position_inside_containers_and_by_keyword(framework: str) -> None:
    told = Told({}, {})
    run(framework, told)
    assert sorted(told.given["inner#0"]) == ["0", "1.0", "mask"]
    assert told.given["norm#0"].keys() == {"0"}


def test_what_is_given_instead_reaches_the_call_in_its_place(framework: str) -> None:
    ten = np.full(3, 10, np.float32)
    told = Told({("inner", "1.0"): ten, ("inner", "mask"): 0 * ten}, {})
    run(framework, told)
    np.testing.assert_allclose(told.seen["inner#0:1.sum"], X + 10)
    np.testing.assert_allclose(told.seen["inner#0:0"], 0 * X)


def test_one_of_several_tensors_that_a_module_returns_is_replaced(framework: str) -> None:
    told = Told({}, {("inner", "1.sum"): 100 * np.ones(3, np.float32), ("norm", ""): X})
    run(framework, told)
    np.testing.assert_allclose(told.seen["inner#0:1.sum"], 2 * X)
    np.testing.assert_allclose(told.seen["#0"], X + 100)


def test_a_stand_in_answers_on_the_same_arguments_and_is_gone_afterwards(framework: str) -> None:
    adapter: Any = model_readers()[framework]
    model = MODELS[framework]()
    before, during, after = Told({}, {}), Told({}, {}), Told({}, {})
    adapter.run(model, {"x": X}, before)
    adapter.run(model, {"x": X}, during, {"norm": _identity(framework)})
    adapter.run(model, {"x": X}, after)
    np.testing.assert_array_equal(during.seen["norm#0"], X)
    np.testing.assert_array_equal(during.seen["#0"], 3 * X)
    np.testing.assert_array_equal(before.seen["#0"], after.seen["#0"])


def test_a_chain_of_arrays_takes_interventions_and_stand_ins_alike() -> None:
    adapter: Any = model_readers()["arrays"]
    model = ArrayModel(
        (ArrayLayer("a", "torch.nn.ReLU", np.negative, {}), ArrayLayer("b", "torch.nn.ReLU", np.abs, {}))
    )
    told = Told({("b", "0"): -5 * X}, {("", ""): X})
    adapter.run(model, {"x": X}, told, {"a": ArrayLayer("a", "torch.nn.ReLU", np.square, {})})
    np.testing.assert_array_equal(told.given["b#0"]["0"], X**2)
    np.testing.assert_array_equal(told.seen["#0"], 5 * X)


def test_what_hugging_face_models_return_is_rebuilt_as_what_it_is() -> None:
    from transformers.modeling_outputs import BaseModelOutput

    output = BaseModelOutput(last_hidden_state=1, hidden_states=(2, 3))  # type: ignore[arg-type]
    made = with_leaves(output, lambda name, leaf: f"{name}={leaf}")
    assert isinstance(made, BaseModelOutput)
    assert made.hidden_states == ("hidden_states.0=2", "hidden_states.1=3")
    assert output.last_hidden_state == 1


def _identity(framework: str) -> Any:
    if framework == "torch":
        from torch import nn
    else:
        from mindspore import nn
    return nn.Identity()
