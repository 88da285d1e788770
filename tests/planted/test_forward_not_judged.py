"""What shows in training only is told of models that agree, and judges nothing; clean twins are told nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.cli.main import main
from align.core.verdicts import Outcome
from align.forward.compare_forward import compare_forward

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks
IMAGE = {"x": np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)}
NAMES = {"bn.weight": "bn.gamma", "bn.bias": "bn.beta", "bn.running_mean": "bn.moving_mean"}
NAMES["bn.running_var"] = "bn.moving_variance"


def torch_net(drop: Any = 0.1, path: float = 0.2, momentum: float = 0.1, frozen: str = "") -> Any:
    """Convolution, norm, two layers that drop and a head; `drop` is a share, a layer, or None for none."""
    import torch
    from torch import nn

    class DropPath(nn.Module):
        def __init__(self, share: float) -> None:
            super().__init__()
            self.drop_prob = share

        def forward(self, x: Any) -> Any:
            return x

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=momentum)
            self.drop = nn.Dropout(drop) if isinstance(drop, float) else drop
            self.path, self.fc = DropPath(path), nn.Linear(4, 5)

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.bn(self.conv(x))).mean((2, 3))
            return self.fc(self.path(self.drop(x) if self.drop else x))

    torch.manual_seed(0)
    return freeze(Net(), frozen)


def port(drop: Any = 0.1, path: float = 0.2, momentum: float = 0.9, frozen: str = "", kept: float | None = None) -> Any:
    """The same in MindSpore; `kept` is a share that the network keeps for a function of its code."""
    from mindspore import Tensor, nn, ops

    class DropPath(nn.Cell):
        def __init__(self, share: float) -> None:
            super().__init__()
            self.keep_prob = 1 - share
            self.dropout = nn.Dropout(p=share)

        def construct(self, x: Any) -> Any:
            return x

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, pad_mode="valid", has_bias=True)
            self.bn = nn.BatchNorm2d(4, momentum=momentum)
            self.drop = nn.Dropout(p=drop) if isinstance(drop, float) else drop
            self.path, self.fc = DropPath(path), nn.Dense(4, 5)
            self.drop_rate = kept

        def construct(self, x: Any) -> Any:
            x = ops.relu(self.bn(self.conv(x))).mean((2, 3))
            return self.fc(self.path(self.drop(x) if self.drop else x))

    net = Net()
    held = net.parameters_dict()
    for name, value in torch_net().state_dict().items():
        if "num_batches" not in name:
            held[NAMES.get(name, name)].set_data(Tensor(value.numpy()))
    return freeze(net, frozen)


def freeze(net: Any, module: str) -> Any:
    for one in (getattr(net, module).weight, getattr(net, module).bias) if module else ():
        one.requires_grad = False
    return net


def own_dropout(share: float) -> Any:
    from mindspore import nn

    class FeatureDropout(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.drop_rate = share

        def construct(self, x: Any) -> Any:
            return x

    return FeatureDropout()


def told(reference: Any, candidate: Any) -> dict[str, str]:
    """Messages by setting of models that agree."""
    result = compare_forward(reference, candidate, inputs=IMAGE, power=False)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert {(one.code, one.severity) for one in result.findings} <= {("not-judged", "note")}
    return {str(one.facts["setting"]): one.message for one in result.findings}


def test_every_kind_that_differs_is_told_once_with_both_values() -> None:
    found = told(torch_net(), port(drop=0.5, path=0.3, momentum=0.1, frozen="fc"))
    assert set(found) == {"dropout", "batch-norm-momentum", "requires_grad"}
    assert "p=0.1 in the reference, p=0.5 in the candidate (1 layer: drop)" in found["dropout"]
    assert "drop_prob=0.2 in the reference alone (1 layer: path)" in found["dropout"]
    assert "keep_prob=0.7 in the candidate alone (1 layer: path)" in found["dropout"]
    assert "write nn.BatchNorm2d(..., momentum=0.9)" in found["batch-norm-momentum"]
    assert "in the candidate alone 2 parameters are frozen or buffers: fc.weight, fc.bias" in found["requires_grad"]


@pytest.mark.parametrize("sides", [{}, {"drop": 0.3, "path": 0.05}, {"frozen": "fc"}])
def test_nothing_is_told_of_a_clean_port(sides: dict[str, Any]) -> None:
    """The statistics of the norm are trained on neither side, and its momentum is one setting in two words."""
    assert told(torch_net(**sides), port(**sides)) == {}


def test_what_is_frozen_in_the_reference_alone_is_told() -> None:
    found = told(torch_net(frozen="conv"), port())
    assert "in the reference alone 2 parameters are frozen or buffers: conv.weight, conv.bias" in found["requires_grad"]


def test_a_dropout_layer_that_the_port_lacks_is_told() -> None:
    assert "p=0.1 in the reference alone (1 layer: drop)" in told(torch_net(), port(drop=None))["dropout"]
    assert "p=0.1 in the candidate alone (1 layer: drop)" in told(torch_net(drop=None), port())["dropout"]


def test_a_lacking_layer_that_drops_nothing_or_is_a_function_of_the_port_is_not() -> None:
    assert told(torch_net(drop=0.0), port(drop=None)) == {}
    assert told(torch_net(), port(drop=None, kept=0.1)) == {}


def test_a_dropout_of_the_users_own_class_is_known_by_its_share() -> None:
    assert told(torch_net(), port(drop=own_dropout(0.1))) == {}
    found = told(torch_net(), port(drop=own_dropout(0.4)))["dropout"]
    assert "p=0.1 in the reference alone (1 layer: drop)" in found
    assert "drop_rate=0.4 in the candidate alone (1 layer: drop)" in found


SIDES = """
def reference():
    import torch
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))

def port():
    from mindspore import Tensor, nn
    net = nn.SequentialCell(nn.Dense(4, 4), nn.BatchNorm1d(4, momentum=0.1))
    state = reference().state_dict()
    net[0].weight.set_data(Tensor(state["0.weight"].numpy()))
    net[0].bias.set_data(Tensor(state["0.bias"].numpy()))
    return net
"""


def test_the_command_shows_the_note_and_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sides.py"
    path.write_text(SIDES, encoding="utf-8")
    sides = [f"{path}:reference", f"{path}:port"]
    options = ["--input", "x=float32[3,4]", "--no-power", "--run", str(tmp_path / "run")]
    assert main(["forward", *sides, *options]) == 0
    assert "a forward pass does not show" in " ".join(capsys.readouterr().out.split())
    (finding,) = json.loads((tmp_path / "run" / "forward.json").read_text("utf-8"))["findings"]
    assert (finding["code"], finding["severity"]) == ("not-judged", "note")
    assert finding["facts"] == {"setting": "batch-norm-momentum", "layers": 1}
    assert f"`align lint {sides[0]} {sides[1]}` lists all" in finding["message"]
