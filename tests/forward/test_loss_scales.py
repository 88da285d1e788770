"""Loss scales that fit a chip: held against gradients that are scaled and cast to float16 in truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align
from align.core.parameters import GradientsMet
from align.errors import CannotRunError, InputsError
from align.forward.emulate_model import flushed, loss_scales

X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
LABELS = np.arange(16, dtype=np.int64) % 3


def model(inner: float = 1.0, *, recurs: bool = False) -> Any:
    """Two products with a factor between them, which the gradient of the first has too."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(8, 6), nn.Linear(6, 3)
            self.steps = nn.LSTM(6, 6, batch_first=True) if recurs else nn.Identity()

        def forward(self, x: Any) -> Any:
            hidden = self.first(x).tanh() * inner
            return self.head(self.steps(hidden[:, None])[0][:, 0] if recurs else hidden)

    torch.manual_seed(0)
    return Net()


def entropy(outputs: Any, labels: Any) -> Any:
    import torch

    return torch.nn.functional.cross_entropy(outputs, labels)


def gradients_at(net: Any, scale: float) -> list[Any]:
    """The gradients of what both products return, as float16, from a loss times a scale; no zeros of float32."""
    import torch

    kept: list[Any] = []
    for layer in (net.first, net.head):
        layer.register_forward_hook(lambda _layer, _given, output: kept.append(output) or output.retain_grad())
    (entropy(net(torch.from_numpy(X)), torch.from_numpy(LABELS)) * scale).backward()
    return [one.grad[one.grad != 0].half() for one in kept]


@pytest.mark.frameworks
@pytest.mark.parametrize("inner", [1.0, 1e-5, 1e4])
def test_the_highest_scale_keeps_all_gradients_finite_and_twice_as_much_does_not(inner: float) -> None:
    import torch

    asked = {"inputs": {"x": X, "labels": LABELS}, "loss": entropy, "target": "ascend:310p"}
    found = align.emulate_model(model(inner), **asked).scales  # type: ignore[arg-type]
    assert found is not None
    assert {one.module: one.operator for one in found.layers} == {"first": "mm", "head": "mm"}
    assert found.highest == 2.0 ** round(np.log2(found.highest))
    assert all(torch.isfinite(one).all() for one in gradients_at(model(inner), found.highest))
    assert not all(torch.isfinite(one).all() for one in gradients_at(model(inner), 2 * found.highest))
    first, head = gradients_at(model(inner), found.highest)
    counted = {one.module: one for one in found.layers}
    assert counted["first"].flushed == pytest.approx(float((first == 0).float().mean()), abs=0.02)
    assert counted["head"].flushed == pytest.approx(float((head == 0).float().mean()), abs=0.02)
    assert counted["first"].elements == first.numel()  # the head's meet two products on the way back


@pytest.mark.frameworks
def test_without_a_scale_small_gradients_are_lost_and_the_lowest_scale_that_helps_is_told() -> None:
    asked = {"inputs": {"x": X, "labels": LABELS}, "loss": entropy, "target": "ascend:310p"}
    found = align.emulate_model(model(1e-7), **asked).scales  # type: ignore[arg-type]
    assert found is not None
    assert found.flushed_unscaled > 0.2
    assert found.flushed < 0.01
    assert 1.0 < found.lowest <= found.highest
    assert not found.overflows_unscaled
    assert found.keep == ()


@pytest.mark.frameworks
def test_where_no_scale_fits_the_layers_to_keep_in_float32_are_named() -> None:
    asked = {"inputs": {"x": X, "labels": LABELS}, "loss": entropy, "target": "ascend:310p"}
    result = align.emulate_model(model(1e-13), **asked)  # type: ignore[arg-type]
    assert result.scales is not None
    assert result.scales.keep == ("head",)
    assert [one.code for one in result.findings] == ["no-loss-scale"]
    assert "keep in float32: head" in result.findings[0].message
    assert result.exit_code == 1


@pytest.mark.frameworks
def test_recurrent_layers_are_looked_into_and_a_chip_without_float16_has_no_scales() -> None:
    asked = {"inputs": {"x": X}, "loss": "sum"}
    found = align.emulate_model(model(recurs=True), target="ascend:910b", **asked)  # type: ignore[arg-type]
    assert found.scales is not None
    assert {(one.module, one.operator, one.entry) for one in found.scales.layers} == {
        ("steps", "lstm", "lstm-mindspore")
    }
    switches = {"matmul_allow_hf32": "True"}
    none = align.emulate_model(model(), target="ascend:910b", switches=switches, **asked)  # type: ignore[arg-type]
    assert none.scales is None


@pytest.mark.frameworks
def test_convolutions_and_what_returns_nothing_to_differentiate() -> None:
    import torch

    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 3))
    x = np.ones((2, 1, 8, 8), np.float32)
    found = align.emulate_model(net, target="ascend:310p", inputs={"input": x}, loss="sum").scales
    assert found is not None
    assert {(one.module, one.operator) for one in found.layers} == {("0", "convolution"), ("2", "convolution")}
    assert max(one.largest for one in found.layers) >= 1.0
    frozen = net.requires_grad_(False)
    still = align.emulate_model(frozen, target="ascend:310p", inputs={"input": x}, loss="sum")
    assert (still.scales, still.findings[0].code) == (None, "no-gradient")
    with pytest.raises(CannotRunError, match=r"cannot take the loss 'nowhere\.py'"):
        align.emulate_model(net, target="ascend:310p", inputs={"input": x}, loss="nowhere.py")
    with pytest.raises(CannotRunError, match=r"no single number; got: array of \[16, 3\]\nHint: reduce it"):
        align.emulate_model(model(), target="ascend:310p", inputs={"x": X}, loss=lambda y: y)
    with pytest.raises(InputsError, match="its loss takes 1 beside the outputs"):
        align.emulate_model(net, target="ascend:310p", inputs={"input": x, "a": x, "b": x}, loss=entropy)


def test_scales_follow_from_sizes_alone() -> None:
    large = GradientsMet("a", "mm", "x", 3.0, {1: 50, -10: 50})
    small = GradientsMet("b", "mm", "x", 2.0**-30, {-30: 100})
    found = loss_scales("sum", [large, small])
    assert found is not None
    assert (found.highest, found.lowest) == (2.0**14, 2.0**5)
    assert [flushed([small], power) for power in (4, 5)] == [1.0, 0.0]
    assert [one.module for one in found.layers] == ["a", "b"]
    assert loss_scales("sum", []) is None
    wide = loss_scales("sum", [GradientsMet("a", "mm", "x", 3.0, {1: 50, -60: 50})])
    assert wide is not None
    assert (wide.keep, wide.flushed) == ((), 0.5)
