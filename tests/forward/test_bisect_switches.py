"""The switch that a model suffers from, found among those that it does not, with casts as switches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome
from align.errors import CannotRunError, UsageError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

INPUTS = {"x": np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)}
ASCEND = {"deterministic": "True"}
ALL_NARROW = {**ASCEND, "precision_mode": "allow_fp32_to_fp16", "conv_allow_hf32": "True", "matmul_allow_hf32": "True"}


def model(*, convolves: bool = True, recurs: bool = False) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    first = [nn.Conv2d(3, 8, 3), nn.ReLU()] if convolves else []
    size = 8 * 36 if convolves else 3 * 64
    if recurs:
        return nn.GRU(8, 16)
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(size, 4))


@pytest.mark.frameworks
def test_the_switch_that_matters_is_found_and_the_line_that_widens_it() -> None:
    asked = {"conv_allow_hf32": "True", "matmul_allow_hf32": "True", "inf_nan_mode": "0"}  # deterministic as it is
    found = align.bisect_switches(model(convolves=False), target="ascend:910b", inputs=INPUTS, switches=asked)
    assert [one.switch for one in found.switches if one.matters] == ["matmul_allow_hf32"]
    moved = {one.switch: one.alone_factor for one in found.switches}
    assert moved["conv_allow_hf32"] == moved["inf_nan_mode"] == 0.0
    assert moved["matmul_allow_hf32"] > 1.0
    assert (found.all_factor > 1.0, found.widest_factor) == (True, 0.0)
    assert found.verdict.outcome is Outcome.NOT_ALIGNED
    line = next(one.write for one in found.switches if one.matters)
    assert line == "mindspore.device_context.ascend.op_precision.matmul_allow_hf32(False)"
    assert line in found.widest_lines


@pytest.mark.frameworks
def test_of_switches_that_each_suffice_one_is_left_and_a_limit_decides_between_formats() -> None:
    found = align.bisect_switches(model(), target="ascend:910c", inputs=INPUTS, switches=ALL_NARROW)
    assert sum(one.matters for one in found.switches) == 1
    assert all(one.alone_factor > 1.0 for one in found.switches)
    coarse = next(one.alone for one in found.switches if one.switch == "precision_mode")
    fine = max(one.alone for one in found.switches if one.switch != "precision_mode")
    assert coarse > 1.2 * fine
    limited = align.bisect_switches(
        model(), target="ascend:910c", inputs=INPUTS, switches=ALL_NARROW, limit=(coarse * fine) ** 0.5
    )
    assert [one.switch for one in limited.switches if one.matters] == ["precision_mode"]


@pytest.mark.frameworks
def test_a_model_within_its_limit_is_predicted_and_no_more() -> None:
    found = align.bisect_switches(model(), target="ascend:910b", inputs=INPUTS, limit=0.1)
    assert found.verdict.outcome is Outcome.PREDICTED
    assert found.verdict.exit_code == 2
    assert not any(one.matters for one in found.switches)


@pytest.mark.frameworks
def test_where_no_switch_helps_that_is_said() -> None:
    inputs = {"x": INPUTS["x"].reshape(-1, 6, 8)}
    found = align.bisect_switches(model(recurs=True), target="ascend:910b", inputs=inputs)
    assert found.widest_factor > 1.0
    assert "even with all switches at their most precise value" in found.verdict.reason
    assert not any(one.matters for one in found.switches)


def test_what_cannot_be_halved_is_refused() -> None:
    array = ArrayModel((ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),))
    with pytest.raises(CannotRunError, match="is emulated on the torch reference"):
        align.bisect_switches(array, target="ascend:910b", inputs={"x": np.ones(3, np.float32)})
    for target in ("ascend:310p", "ascend:910a"):
        with pytest.raises(UsageError, match=r"all switches of .* are at their most precise value already"):
            align.bisect_switches(array, target=target, inputs={"x": np.ones(3, np.float32)}, switches=ASCEND)
    with pytest.raises(UsageError, match="torch_npu does not drive gpu:ampere") as caught:
        align.bisect_switches(array, target="gpu", inputs={"x": np.ones(3, np.float32)}, framework="torch_npu")
    assert str(caught.value).endswith("give --framework: mindspore, torch")


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("framework", "line"),
    [
        ("torch", "torch.backends.cudnn.allow_tf32 = False"),
        ("mindspore", "mindspore.device_context.gpu.op_precision.conv_allow_tf32(False)"),
    ],
)
def test_tf32_of_a_gpu_is_found_among_its_switches(framework: Any, line: str) -> None:
    found = align.bisect_switches(model(), target="gpu", inputs=INPUTS, framework=framework)
    assert found.target == "gpu:ampere"
    assert {one.switch: one.value for one in found.switches} == {"conv_allow_tf32": "True", "deterministic": "False"}
    assert [one.write for one in found.switches if one.matters] == [line]
    moved = {one.switch: one.alone for one in found.switches}
    assert 1e-5 < moved["conv_allow_tf32"] < 2e-3
    assert len(found.widest_lines) == 3


@pytest.mark.frameworks
def test_deterministic_moves_no_more_than_rounding_and_matters_where_the_limit_is_as_small() -> None:
    found = align.bisect_switches(model(), target="ascend:310p", inputs=INPUTS, limit=1e-3)
    (one,) = found.switches
    assert (one.switch, one.value, one.matters) == ("deterministic", "False", False)
    assert one.write == "mindspore.set_deterministic(True)"
    wide = {"conv_allow_hf32": "False"}
    tight = align.bisect_switches(model(), target="ascend:910b", inputs=INPUTS, switches=wide, limit=1e-9)
    assert [one.switch for one in tight.switches if one.matters] == ["deterministic"]
    assert 0.0 < tight.all_moved < 1e-6
    assert tight.widest_moved == 0.0


@pytest.mark.frameworks
def test_what_no_switch_is_tried_on_is_a_finding() -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = torch.nn.Bilinear(3, 3, 2)

        def forward(self, x: Any) -> Any:
            return self.pair(x, x)

    switches = {"matmul_allow_hf32": "True", "inf_nan_mode": "1", **ASCEND}
    x = np.ones((2, 3), np.float32)
    found = align.bisect_switches(Net(), target="ascend:950", inputs={"x": x}, switches=switches)
    assert found.verdict.outcome is Outcome.PREDICTED
    said = [(one.code, one.subject) for one in found.findings]
    assert said == [("not-emulated", "pair"), ("switch-without-effect", "inf_nan_mode")]
