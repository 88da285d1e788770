"""Layers inside real models rebuilt: what is kept, what is refused, and that the model itself is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from align.core.load_code import model_readers

pytestmark = pytest.mark.frameworks


def network() -> Any:
    from mindspore import Parameter, Tensor, nn, ops

    class Scaled(nn.LayerNorm):
        """A user's own, of MindSpore's."""

        def __init__(self) -> None:
            super().__init__((8,), epsilon=1e-7)
            self.scale = Parameter(Tensor(np.full(8, 3.0, np.float32)), name="scale")

        def construct(self, x: Any) -> Any:
            return super().construct(x) * self.scale

    class Own(nn.Cell):
        """A user's own, of nothing."""

        def __init__(self, eps: float = 1e-3) -> None:
            super().__init__()
            self.eps = eps

        def construct(self, x: Any) -> Any:
            return x * self.eps

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.CellList([nn.LayerNorm((8,)), Scaled(), Own()])
            self.patched = nn.LayerNorm((8,))
            self.patched.layer_norm = ops.LayerNorm(epsilon=0.5)
            self.linear = nn.Dense(8, 4)

        def construct(self, x: Any) -> Any:
            for norm in self.norms:
                x = norm(x)
            return self.linear(self.patched(x))

    return Net()


def test_a_rebuilt_cell_keeps_its_values_and_its_own_methods_and_the_network_is_left_alone() -> None:
    import mindspore

    net, reader = network(), model_readers()["mindspore"]
    net.set_train(True)
    x = mindspore.Tensor(np.random.default_rng(0).normal(0, 0.001, (2, 8)).astype(np.float32))
    before, values = net.norms[1](x).asnumpy(), reader.read_values(net)
    state = mindspore.get_rng_state().asnumpy()
    layer = reader.rebuilt(net, "norms.1", {"epsilon": 1e-5})  # type: ignore[attr-defined]
    moved = layer(x).asnumpy()
    assert type(layer) is type(net.norms[1])
    assert np.abs(moved).max() < 0.9 * np.abs(before).max()
    assert np.array_equal(layer.scale.asnumpy(), np.full(8, 3.0, np.float32))
    assert np.array_equal(net.norms[1](x).asnumpy(), before)
    assert all(np.array_equal(value, values[name]) for name, value in reader.read_values(net).items())
    assert not layer.training
    assert net.norms[1].training
    assert np.array_equal(mindspore.get_rng_state().asnumpy(), state)


def test_an_attribute_of_a_class_of_the_users_own_is_changed_on_a_copy() -> None:
    net = network()
    layer: Any = model_readers()["mindspore"].rebuilt(net, "norms.2", {"eps": 1.0})  # type: ignore[attr-defined]
    assert (layer.eps, net.norms[2].eps) == (1.0, 1e-3)
    assert type(layer) is type(net.norms[2])


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("norms.2", {"epsilon": 1.0}),  # of no class of the framework's, and without such an attribute
        ("patched", {"epsilon": 1e-5}),  # its operator is not what its attributes say
        ("linear", {"out_channels": 6}),  # weights of another shape
        ("linear", {"nothing": 6}),
        ("norms", {"epsilon": 1.0}),
        ("", {"epsilon": 1.0}),
        ("absent", {"epsilon": 1.0}),
    ],
)
def test_what_cannot_be_rebuilt_truthfully_is_not_rebuilt(path: str, changes: dict[str, Any]) -> None:
    assert model_readers()["mindspore"].rebuilt(network(), path, changes) is None  # type: ignore[attr-defined]


def test_a_rebuilt_module_keeps_its_values_dtype_and_subclass_and_the_model_is_left_alone() -> None:
    import torch

    class Scaled(torch.nn.LayerNorm):
        def forward(self, x: Any) -> Any:
            return 3 * super().forward(x)

    model = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), Scaled(8)).double().train()
    reader: Any = model_readers()["torch"]
    with torch.no_grad():
        model[1].weight.fill_(5.0)
    state = torch.random.get_rng_state()
    norm, linear = reader.rebuilt(model, "1", {"eps": 10.0}), reader.rebuilt(model, "0", {"bias": True})
    assert torch.equal(torch.random.get_rng_state(), state)
    x = torch.randn(2, 8, dtype=torch.float64)
    wanted = 15 * torch.nn.functional.layer_norm(x, (8,), eps=10.0)
    assert torch.allclose(norm(x), wanted)
    assert model[1].eps == 1e-5
    assert norm.weight is not model[1].weight
    assert torch.equal(linear.weight, model[0].weight)
    assert linear.bias.dtype == torch.float64
    assert model[0].bias is None
    assert (norm.training, model[1].training) == (False, True)


@pytest.mark.parametrize(
    ("path", "changes"),
    [("0", {"out_features": 3}), ("1", {"epsilon": 1.0}), ("", {"eps": 1.0}), ("2", {"eps": 1.0}), ("0", {"eps": 1.0})],
)
def test_a_module_is_not_rebuilt_where_that_is_not_the_truth(path: str, changes: dict[str, Any]) -> None:
    import torch

    class Own(torch.nn.Module):
        def __init__(self, eps: float = 1e-5) -> None:
            super().__init__()
            self.eps = eps

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), Own())
    assert model_readers()["torch"].rebuilt(model, path, changes) is None  # type: ignore[attr-defined]


def test_a_tied_weight_and_hooks_are_no_hindrance() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ELU(), torch.nn.Linear(4, 4))
    model[2].weight = model[0].weight
    model[1].register_forward_hook(lambda module, args, output: None)
    layer = model_readers()["torch"].rebuilt(model, "1", {"alpha": 0.25})  # type: ignore[attr-defined]
    assert layer(torch.tensor(-50.0)).item() == -0.25


def test_a_parameter_that_a_cell_had_not_is_of_the_dtype_of_the_others() -> None:
    import mindspore

    linear = mindspore.nn.Dense(3, 4, has_bias=False)
    linear.weight.set_dtype(mindspore.float16)
    layer = model_readers()["mindspore"].rebuilt(linear, "", {"has_bias": True})  # type: ignore[attr-defined]
    assert {one.dtype for one in layer.get_parameters()} == {mindspore.float16}
    assert np.array_equal(layer.weight.asnumpy(), linear.weight.asnumpy())


@pytest.mark.parametrize("framework", ["torch", "mindspore"])
def test_a_layer_is_built_by_its_public_name(framework: str) -> None:
    reader: Any = model_readers()[framework]
    layer = reader.built(f"{framework}.nn.Hardtanh", {"max_val": 0.5})
    assert layer.max_val == 0.5
    assert not layer.training
    assert reader.built(f"{framework}.nn.Hardtanh", {"absent": 0.5}) is None
    assert reader.built(f"{framework}.nn.Absent", {}) is None


@pytest.mark.parametrize(
    ("layer", "changes", "wanted"),
    [
        ("mint.nn.LayerNorm(8)", {"eps": 1e-3}, "mint.nn.LayerNorm(8, eps=1e-3)"),
        ("mint.nn.BatchNorm2d(3)", {"eps": 1e-3}, "mint.nn.BatchNorm2d(3, eps=1e-3)"),
        ("mint.nn.GroupNorm(2, 4)", {"num_groups": 4}, "mint.nn.GroupNorm(4, 4)"),
        ("mint.nn.GELU()", {"approximate": "tanh"}, "mint.nn.GELU('tanh')"),
        ("mint.nn.Conv2d(3, 4, 3, stride=2)", {"padding": 1}, "mint.nn.Conv2d(3, 4, 3, stride=2, padding=1)"),
        ("mint.nn.AvgPool2d(3, 2)", {"count_include_pad": False}, "mint.nn.AvgPool2d(3, 2, count_include_pad=False)"),
        ("mint.nn.Embedding(5, 4)", {"max_norm": 0.5}, "mint.nn.Embedding(5, 4, max_norm=0.5)"),
        ("mint.nn.Dropout(0.1)", {"p": 0.3}, "mint.nn.Dropout(0.3)"),
        ("nn.Dropout(p=0.1)", {"p": 0.25}, "nn.Dropout(p=0.25)"),
        ("nn.Dropout(keep_prob=0.9)", {"p": 0.25}, "nn.Dropout(keep_prob=0.9, p=0.25)"),
        ("nn.BatchNorm2d(3, momentum=0.95)", {"momentum": 0.75}, "nn.BatchNorm2d(3, momentum=0.75)"),
        ("nn.InstanceNorm2d(3)", {"eps": 1e-3}, "nn.InstanceNorm2d(3, eps=1e-3)"),
        (
            "nn.Conv1d(3, 4, 3, stride=2, pad_mode='pad', padding=1)",
            {"dilation": 2},
            "nn.Conv1d(3, 4, 3, stride=2, pad_mode='pad', padding=1, dilation=2)",
        ),
        ("nn.Conv3d(3, 4, (1, 2, 3))", {"stride": (1, 2, 1)}, "nn.Conv3d(3, 4, (1, 2, 3), stride=(1, 2, 1))"),
        (
            "nn.LSTM(3, 4, num_layers=2, bidirectional=True)",
            {"batch_first": True},
            "nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)",
        ),
        (
            "nn.TransformerDecoderLayer(8, 2, 16)",
            {"norm_first": True},
            "nn.TransformerDecoderLayer(8, 2, 16, norm_first=True)",
        ),
    ],
)
def test_a_rebuilt_layer_is_set_as_its_constructor_sets_it(layer: str, changes: dict[str, Any], wanted: str) -> None:
    import mindspore

    live, right = (eval(one, {"mint": mindspore.mint, "nn": mindspore.nn}) for one in (layer, wanted))
    built = model_readers()["mindspore"].rebuilt(live, "", changes)  # type: ignore[attr-defined]
    assert settings_of(built) == settings_of(right)
    assert settings_of(built) != settings_of(live)


def settings_of(layer: Any) -> list[dict[str, Any]]:
    """The settings of a layer and all inside, without the seed that each operator draws."""
    layers = model_readers()["mindspore"].read_settings(layer)  # type: ignore[attr-defined]
    return [{name: value for name, value in one.values.items() if "seed" not in name.lower()} for one in layers]
