"""A torch model as a chip is expected to compute it: each layer's error, overflow, and what a port may differ by."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome
from align.errors import CannotRunError, UsageError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

WIDTH = 64
INPUTS = {"x": np.random.default_rng(0).standard_normal((4, 3, 12, 12)).astype(np.float32)}


def torch_model(scale: float = 1.0) -> Any:
    """Convolutions, a normalisation and a functional product; `scale` enlarges what the last layer is given."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
            self.mix = nn.Conv2d(16, WIDTH, 3, stride=2)
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, 5)

        def forward(self, x: Any) -> Any:
            tokens = self.norm(self.mix(self.stem(x)).flatten(2).transpose(1, 2))
            seen = torch.softmax(tokens @ tokens.transpose(1, 2) / WIDTH**0.5, -1)
            return self.head((seen @ tokens).mean(1) * scale) / scale

    torch.manual_seed(0)
    return Net().eval()


def port(fault: float = 0.0) -> Any:
    """The same in MindSpore, in float16; `fault` is a share by which the weight of `mix` is off."""
    import mindspore
    from mindspore import nn, ops

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            first = nn.Conv2d(3, 16, 3, pad_mode="pad", padding=1, has_bias=True)
            self.stem = nn.SequentialCell(first, nn.BatchNorm2d(16, eps=1e-5), nn.ReLU())
            self.mix = nn.Conv2d(16, WIDTH, 3, stride=2, pad_mode="valid", has_bias=True)
            self.norm = nn.LayerNorm((WIDTH,), epsilon=1e-5)
            self.head = nn.Dense(WIDTH, 5)

        def construct(self, x: Any) -> Any:
            mixed = self.mix(self.stem(x))
            tokens = self.norm(mixed.reshape(mixed.shape[0], WIDTH, -1).transpose(0, 2, 1))
            seen = ops.softmax(ops.matmul(tokens, tokens.transpose(0, 2, 1)) / WIDTH**0.5, -1)
            return self.head(ops.matmul(seen, tokens).mean(1))

    net = Net()
    state = {name: value.numpy() for name, value in torch_model().state_dict().items()}
    leaves = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
    for name, parameter in net.parameters_and_names():
        path, _, leaf = name.rpartition(".")
        value = state[f"{path}.{leaves.get(leaf, leaf)}"]
        parameter.set_data(mindspore.Tensor(value * (1 + fault) if name == "mix.weight" else value))
    return net


@pytest.mark.frameworks
def test_each_layer_has_its_expected_error_and_those_at_risk_are_named() -> None:
    found = align.emulate_model(torch_model(), target="ascend:310p", inputs=INPUTS)
    rows = {one.module: one for one in found.layers}
    assert rows["stem.0"].operators == rows["mix"].operators == ("convolution",)
    assert rows[""].operators == ("bmm",)
    assert rows["stem.1"].operators == ()
    for path in ("stem.0", "mix", "head"):
        for measured in (rows[path].accumulated, rows[path].alone):
            assert measured is not None
            assert 1e-5 < (measured.relative_l2 or 0.0) < 2e-3
    assert rows["norm"].alone is not None
    assert rows["norm"].alone.max_abs == 0.0
    assert rows["norm"].accumulated is not None
    assert rows["norm"].accumulated.max_abs > 0.0
    assert {rows[key.partition("#")[0]].operators != () for key in found.at_risk} == {True}
    assert {rule.entry: rule.calls for rule in found.rules} == {
        "convolution-float16": 2,
        "matmul-float16": 1,
        "batch-matmul-float16": 2,
    }
    assert found.overflows == ()
    assert found.headroom is not None
    assert found.headroom > 1000.0


@pytest.mark.frameworks
def test_the_error_that_the_chip_makes_grows_from_hf32_to_float16_and_goes_with_the_switch() -> None:
    def of(target: str, **switches: str) -> float:
        found = align.emulate_model(torch_model(), target=target, inputs=INPUTS, switches=switches)
        row = next(one for one in found.layers if one.module == "mix")
        return (row.accumulated and row.accumulated.relative_l2) or 0.0

    assert 2.0 < of("ascend:310p") / of("ascend:910b") < 6.0
    assert of("ascend:910b", conv_allow_hf32="False", matmul_allow_hf32="True") == 0.0


@pytest.mark.frameworks
def test_overflow_is_foreseen_with_the_place_the_scale_and_the_line_that_keeps_float32() -> None:
    asked = {"inputs": INPUTS, "switches": {"precision_mode": "allow_fp32_to_fp16"}}
    found = align.emulate_model(torch_model(1e6), target="ascend:910b", **asked)  # type: ignore[arg-type]
    (one,) = found.overflows
    assert (one.module, one.operator) == ("head", "addmm")
    assert 65504.0 < one.largest <= 65504.0 * one.scale
    assert one.write == 'mindspore.device_context.ascend.op_precision.precision_mode("must_keep_origin_dtype")'
    assert found.at_risk[0] == "head#0"
    head = next(row for row in found.layers if row.module == "head")
    assert head.accumulated is not None
    assert head.accumulated.non_finite_mismatch > 0
    saturated = align.emulate_model(torch_model(1e6), target="ascend:310p", inputs=INPUTS)
    head = next(row for row in saturated.layers if row.module == "head")
    assert head.accumulated is not None
    assert head.accumulated.non_finite_mismatch == 0
    assert (head.accumulated.relative_l2 or 0.0) > 0.1
    assert saturated.at_risk[0] == "head#0"


@pytest.mark.frameworks
def test_a_model_of_which_nothing_is_computed_otherwise_is_refused_with_what_to_change() -> None:
    import torch

    x = np.ones((2, 3), np.float32)
    with pytest.raises(CannotRunError, match=r"nothing of .* is rounded on ascend:910b") as caught:
        align.emulate_model(torch.nn.Linear(3, 2), target="ascend:910b", inputs={"x": x})
    assert str(caught.value).endswith("change a switch: precision_mode, matmul_allow_hf32")
    with pytest.raises(CannotRunError) as caught:
        align.emulate_model(torch.nn.Linear(3, 2).half(), target="ascend:310p", inputs={"x": x.astype(np.float16)})
    assert str(caught.value).endswith("Hint: take another chip with --target")
    with pytest.raises(CannotRunError, match="not looked into: _trilinear"):
        align.emulate_model(torch.nn.Bilinear(3, 3, 2), target="ascend:310p", inputs={"input1": x, "input2": x})


@pytest.mark.frameworks
def test_what_is_not_emulated_and_a_switch_without_effect_are_findings() -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair, self.head = torch.nn.Bilinear(3, 3, 4), torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.pair(x, x))

    asked = {"inputs": {"x": np.ones((2, 3), np.float32)}, "switches": {"inf_nan_mode": "1"}}
    found = align.emulate_model(Net(), target="ascend:310p", **asked)  # type: ignore[arg-type]
    said = [(one.code, one.subject) for one in found.findings]
    assert said == [("not-emulated", "pair"), ("switch-without-effect", "inf_nan_mode")]


@pytest.mark.frameworks
def test_a_model_of_mindspore_is_refused() -> None:
    from mindspore import nn

    with pytest.raises(CannotRunError, match="is emulated on the torch reference"):
        align.emulate_model(nn.Dense(3, 2), target="ascend:910b", inputs={"x": np.ones((2, 3), np.float32)})


def test_an_unknown_chip_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(UsageError, match="no chip is called"):
        align.emulate_model("nowhere.py:build", target="ascend:9", inputs={})
    with pytest.raises(UsageError, match="no chip is called"):
        align.compare_forward("nowhere.py:build", "nowhere.py:build", inputs={}, emulate="ascend:9")
    with pytest.raises(UsageError, match="no chip is named"):
        align.compare_forward("a.py:build", "a.py:build", inputs={}, switches={"precision_mode": "force_fp16"})


def test_a_reference_that_is_no_torch_model_is_refused() -> None:
    def model() -> ArrayModel:
        return ArrayModel((ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),))

    with pytest.raises(CannotRunError, match="is emulated on the torch reference"):
        align.compare_forward(model(), model(), inputs={"x": np.ones(3, np.float32)}, emulate="ascend:910b")


def compared(fault: float, emulate: str | None = "ascend:310p") -> Any:
    side = align.open_side(port(fault), dtype="float16")
    return align.compare_forward(torch_model(), side, inputs=INPUTS, emulate=emulate)


@pytest.mark.frameworks
def test_a_port_cast_to_float16_is_within_the_prediction_which_proves_nothing() -> None:
    found = compared(0.0)
    assert found.verdict.outcome is Outcome.PREDICTED, found.verdict.reason
    assert found.verdict.exit_code == 2
    assert "not verified on hardware" in found.verdict.caveats
    assert found.prediction is not None
    assert (found.prediction.target, found.prediction.framework) == ("ascend:310p", "mindspore")
    sources = {row.reference: row.limit.source for row in found.layers if row.limit}
    assert sources["mix"] == "prediction"
    assert found.power is None


@pytest.mark.frameworks
def test_a_fault_of_one_percent_in_such_a_port_is_beyond_the_prediction_and_found() -> None:
    found = compared(0.01)
    assert found.verdict.outcome is Outcome.NOT_ALIGNED
    assert found.verdict.exit_code == 1
    assert [one.candidate for one in found.culprits] == ["mix"]
    assert any("not verified on hardware" in caveat for caveat in found.verdict.caveats)


@pytest.mark.frameworks
def test_where_the_chip_is_far_off_or_rounds_nothing_the_prediction_says_so() -> None:
    import torch

    far = align.compare_forward(torch_model(1e8), torch_model(1e8), inputs=INPUTS, emulate="ascend:310p")
    assert far.verdict.outcome is Outcome.PREDICTED
    assert any("could be entirely wrong" in caveat for caveat in far.verdict.caveats)
    near = align.compare_forward(torch_model(), torch_model(), inputs=INPUTS, emulate="ascend:310p")
    assert not any("could be entirely wrong" in caveat for caveat in near.verdict.caveats)
    assert near.findings == ()
    x = {"input": np.ones((2, 3), np.float32)}
    none = align.compare_forward(torch.nn.LayerNorm(3), torch.nn.LayerNorm(3), inputs=x, emulate="ascend:310p")
    assert [one.code for one in none.findings] == ["nothing-emulated"]


@pytest.mark.frameworks
def test_a_model_that_takes_gradients_of_its_inputs_is_emulated_though_no_layer_runs_alone() -> None:
    import torch

    class Forces(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.energy = torch.nn.Linear(3, 4)

        def forward(self, x: Any) -> Any:
            with torch.enable_grad():
                place = x.clone().requires_grad_()
                return torch.autograd.grad(self.energy(place).square().sum(), place)[0]

    asked = {"inputs": {"x": np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)}}
    torch.manual_seed(0)
    model = Forces()
    found = align.emulate_model(model, target="ascend:310p", **asked)
    assert [one.code for one in found.findings] == ["emulated-alone-unmeasured"]
    assert set(found.at_risk) == {"#0", "energy#0"}
    same = align.compare_forward(model, copy.deepcopy(model), emulate="ascend:310p", **asked)
    assert same.verdict.outcome is Outcome.PREDICTED
