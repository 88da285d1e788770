"""What given inputs can show of a real model: inputs that move nothing, blind parameters, dead and saturated layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.forward.forward_result import ParameterPower, Power

pytestmark = pytest.mark.frameworks

X = {"x": np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)}


def net(forward: Callable[..., Any], **layers: Any) -> Any:
    """A torch model with these layers, or linear ones `a` and `b`, that runs this function."""
    import torch

    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, layer in (layers or {n: torch.nn.Linear(8, 8) for n in "ab"}).items():
                setattr(self, name, layer)

        def forward(self, x: Any, y: Any = None) -> Any:
            return forward(self, x) if y is None else forward(self, x, y)

    return Net()


def parameters(power: Power) -> dict[str, ParameterPower]:
    return {one.name: one for one in power.parameters}


def factors(power: Power) -> dict[str, float | None]:
    return {one.module: one.factor for one in power.outputs}


def states(power: Power) -> dict[str, str]:
    return {one.module: one.state for one in power.outputs if one.state}


def test_a_plain_net_is_seen_whole() -> None:
    power = align.measure_power(net(lambda self, x: self.b(self.a(x).relu())), X)
    assert {one.state for one in power.parameters} == {"seen"}
    assert len(power.parameters) == 4
    assert all(factor > 1e3 for factor in factors(power).values() if factor is not None)
    assert power.inputs["x"] == factors(power)[""]
    assert states(power) == {}
    assert power.unmeasured == {}


def test_a_change_as_large_as_told_shows_and_one_a_thousand_times_smaller_does_not() -> None:
    """The promise of `shows_at`, tried with the comparison itself."""
    import copy

    import torch

    model = net(lambda self, x: self.b(self.a(x).relu()))
    told = parameters(align.measure_power(model, X))["a.weight"].shows_at
    assert told is not None
    outcomes = []
    for share in (told, told / 1000):
        port = copy.deepcopy(model)
        with torch.no_grad():
            size = port.a.weight.square().mean().sqrt()
            port.a.weight += share * size * torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
        layers = align.compare_forward(model, port, inputs=X).layers
        outcomes.append(any(layer.outcome == "not aligned" for layer in layers))
    assert outcomes == [True, False]


def test_an_input_that_is_drowned_moves_no_output() -> None:
    power = align.measure_power(net(lambda self, x: self.b(1 + 1e-9 * self.a(x))), X)
    assert (factors(power)["a"] or 0) > 1e3
    assert power.inputs["x"] <= 1.0


def test_an_input_that_changes_nothing_is_told_beside_one_that_does() -> None:
    model = net(lambda self, x, y: self.b(self.a(x)) + 0 * y.sum())
    power = align.measure_power(model, {"x": X["x"], "y": np.arange(8.0, dtype=np.float32)})
    assert power.inputs["x"] > 1e3
    assert power.inputs["y"] == 0.0


def test_of_an_output_that_was_not_compared_nothing_is_said_to_be_hidden() -> None:
    from align.forward.forward_result import Allowances, LayerLimit

    models = [net(lambda self, x: self.b(self.a(x))) for _ in range(2)]
    power = align.compare_forward(*models, inputs=X, allowances=Allowances((LayerLimit("", 2.0),))).power
    assert power is not None
    assert power.inputs == {}
    assert power.unmeasured == {"x": "no output of the model has a measured limit"}


def test_a_mask_of_ones_is_left_and_said_to_be() -> None:
    model = net(lambda self, x, y: self.b(self.a(x)) * y)
    power = align.measure_power(model, {"x": X["x"], "y": np.ones((2, 5, 1), np.int64)})
    assert set(power.inputs) == {"x"}
    assert power.unmeasured == {"y": "no other value of its kind is known"}


def test_an_input_that_the_model_takes_no_other_value_of_is_said_to_be_unmeasured() -> None:
    import torch

    def forward(self: Any, x: Any) -> Any:
        if not torch.equal(x.sort().values, x):
            raise ValueError("not sorted")
        return self.b(self.a(x))

    power = align.measure_power(net(forward), {"x": np.sort(X["x"])})
    assert "not sorted" in power.unmeasured["x"]
    assert factors(power)[""] is None


def test_a_head_that_is_not_used_is_blind() -> None:
    import torch

    layers = {name: torch.nn.Linear(8, 8) for name in ("a", "b", "unused")}
    found = parameters(align.measure_power(net(lambda self, x: self.b(self.a(x)), **layers), X))
    assert {name for name, one in found.items() if one.state == "blind"} == {"unused.weight", "unused.bias"}
    assert found["unused.weight"].blind == 64


def test_a_key_bias_is_blind_inside_attention_and_seen_where_the_key_is_a_layer() -> None:
    import torch

    def attention(self: Any, x: Any) -> Any:
        return self.o((self.q(x) @ self.k(x).transpose(-1, -2)).softmax(-1) @ self.v(x))

    apart = net(attention, **{name: torch.nn.Linear(8, 8) for name in "qkvo"})
    fused = net(lambda self, x: self.a(x, x, x)[0], a=torch.nn.MultiheadAttention(8, 2, batch_first=True))
    torch.nn.init.normal_(fused.a.in_proj_bias)
    assert parameters(align.measure_power(apart, X))["k.bias"].state == "seen"
    found = parameters(align.measure_power(fused, X))["a.in_proj_bias"]
    assert (found.state, found.blind, found.elements) == ("partly blind", 8, 24)


def test_rows_of_an_embedding_that_no_word_uses_are_blind() -> None:
    import torch

    model = net(lambda self, x: self.head(self.words(x)), words=torch.nn.Embedding(50, 4), head=torch.nn.Linear(4, 3))
    tokens = np.array([[1, 5, 9], [9, 2, 30]])
    found = parameters(align.measure_power(model, {"x": tokens}))["words.weight"]
    assert (found.state, found.blind) == ("partly blind", 45 * 4)


def test_a_bias_of_zeros_is_neutral() -> None:
    import torch

    model = net(lambda self, x: self.b(self.a(x)))
    torch.nn.init.zeros_(model.a.bias)
    power = align.measure_power(model, X)
    assert parameters(power)["a.bias"].state == "neutral"
    assert power.neutral == {"a.bias": "0 throughout"}


def test_the_output_of_a_head_of_zeros_moves_with_no_input_and_its_weights_are_neutral() -> None:
    import torch

    model = net(lambda self, x: self.b(self.a(x)))
    torch.nn.init.zeros_(model.b.weight)
    torch.nn.init.zeros_(model.b.bias)
    power = align.measure_power(model, X)
    assert power.inputs == {"x": 0.0}
    assert {name: row.state for name, row in parameters(power).items() if row.state != "seen"} == {
        "b.weight": "neutral",
        "b.bias": "neutral",
    }


def test_a_router_without_gradient_is_not_called_blind() -> None:
    import torch

    def route(self: Any, x: Any) -> Any:
        expert = self.a.weight.new_tensor((x @ self.a.weight.T).argmax(-1).tolist())
        return self.b(x) * expert[..., None]

    found = parameters(align.measure_power(net(route), X))["a.weight"]
    assert (found.state, found.shows_at) == ("unknown", None)
    assert torch.is_grad_enabled()


def test_dead_and_saturated_layers_are_told() -> None:
    import torch

    layers = {"a": torch.nn.Linear(8, 80), "dead": torch.nn.ReLU(), "end": torch.nn.Sigmoid()}
    model = net(lambda self, x: self.dead(self.a(x) - 99) + self.end(1e6 * self.a(x)), **layers)
    assert states(align.measure_power(model, X)) == {"dead": "constant", "end": "saturated", "": "saturated"}


def test_operations_in_place_hide_no_parameter() -> None:
    import torch

    layers = {"a": torch.nn.Linear(8, 8), "relu": torch.nn.ReLU(inplace=True), "b": torch.nn.Linear(8, 8)}
    model = net(lambda self, x: self.b(self.relu(self.a(x))), **layers)
    with torch.no_grad():
        model.a.bias -= 99
    power = align.measure_power(model, X)
    found = parameters(power)
    assert {found["a.weight"].state, found["a.bias"].state} == {"seen"}
    assert (found["b.weight"].state, found["b.bias"].state) == ("blind", "seen")
    assert states(power)["relu"] == "constant"


def test_a_model_without_a_backward_pass_keeps_what_its_runs_tell() -> None:
    def forward(self: Any, x: Any) -> Any:
        y = self.a(x).softmax(-1)
        return self.b(y.clone() + y.mul_(2))

    power = align.measure_power(net(forward), X)
    assert power.parameters == ()
    assert "the backward pass of the torch model failed" in power.unmeasured["parameters"]
    assert power.inputs["x"] > 1.0


def test_a_network_of_a_framework_without_gradients_keeps_what_its_runs_tell() -> None:
    from mindspore import nn

    power = align.measure_power(nn.SequentialCell(nn.Dense(8, 4), nn.ReLU()), X)
    assert power.inputs["x"] > 1.0
    assert power.unmeasured == {"parameters": "mindspore models can only run forward"}


def test_a_model_that_its_copy_does_not_follow_is_not_called_blind() -> None:
    """What a function of its own closes over is not copied with the model: no gradient arrives at the copy."""
    model = net(lambda self, x: self.b(self.a(x)))
    model.forward = lambda x: model.b(model.a(x))
    power = align.measure_power(model, X)
    assert {one.state for one in power.parameters} == {"unknown"}


def test_the_model_is_left_as_it_was() -> None:
    import torch

    layers = {name: torch.nn.Linear(8, 8) for name in ("a", "b", "unused")}
    model = net(lambda self, x: self.b(self.a(x)), **layers)
    model.a.weight.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    align.measure_power(model, X)
    assert all((value == before[name]).all() for name, value in model.state_dict().items())
    assert not model.a.weight.requires_grad
    assert model.training
    assert not model.a._forward_hooks
