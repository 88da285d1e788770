"""The truth of the benchmarks: a case's map as the tool's, and the cells that a repair touches."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from _cases import call_as_told, true_map
from _touched import snapshot, touched


class Expected(dict[str, Any]):
    """The true map as a case has it."""

    transforms: dict[str, Any]
    ms_only: dict[str, str]


def test_every_transform_of_a_case_becomes_one_of_the_tool() -> None:
    values = {
        name: np.random.default_rng(0).standard_normal((6, 4)) for name in ("qkv", "low", "high", "gates", "same")
    }
    true = Expected(qkv=["q", "k", "v"], low="all", high="all", gates="mixed", same="flat", twin="flat", extra=None)
    true.transforms = {
        "qkv": {"op": "chunk", "axis": 0, "perm": [1, 0]},
        "low": {"op": "part", "axis": 0, "index": 0, "of": 2},
        "high": {"op": "part", "axis": 0, "index": 1, "of": 2},
        "gates": {"op": "reorder", "axis": 0, "blocks": [0, 2, 1]},
        "same": {"op": "reshape"},
    }
    true.ms_only = {"mask": "a constant"}
    shapes = {"q": (4, 2), "k": (4, 2), "v": (4, 2), "all": (12, 4), "mixed": (6, 4), "flat": (24,), "mask": (1,)}
    name_map = true_map(true, (dict.fromkeys(true, (6, 4)), shapes))
    made = {(p.source, p.target): p.transform.apply(values[p.source]) for p in name_map.pairings}
    assert np.array_equal(made["qkv", "k"], values["qkv"][2:4].T)
    assert np.array_equal(made["high", "all"][6:], values["high"])
    assert np.array_equal(made["low", "all"][:6], values["low"])
    assert np.array_equal(made["gates", "mixed"], values["gates"][[0, 1, 4, 5, 2, 3]])
    assert np.array_equal(made["same", "flat"], values["same"].ravel())
    assert ("twin", "flat") not in made
    assert {(one.name, one.side) for one in name_map.dropped} == {("extra", "source"), ("mask", "target")}


@pytest.mark.frameworks
def test_a_model_called_in_a_way_of_its_own_is_called_with_the_inputs_alone() -> None:
    import torch
    from mindspore import Tensor, nn

    case = SimpleNamespace(
        inputs=lambda: {"x": np.ones((1, 2), np.float32)},
        torch_forward=lambda model, given: model(given["x"])[0],
        mindspore_forward=lambda net, given: net(given["x"], 2 * given["x"]),
    )

    class Net(nn.Cell):
        def construct(self, x: Any, y: Any) -> Any:
            return x + y

    original, port = torch.nn.LSTM(2, 3, batch_first=True), Net()
    call_as_told(case, (original, port))
    assert original(torch.ones(1, 1, 2)).shape == (1, 1, 3)
    assert port(Tensor(np.ones((1, 2), np.float32))).asnumpy().tolist() == [[3.0, 3.0]]


@pytest.fixture
def net() -> Any:
    from mindspore import nn

    return nn.SequentialCell(nn.LayerNorm((4,)), nn.ReLU(), nn.Dense(4, 4), nn.GELU())


def replace_a_cell(net: Any) -> str:
    from mindspore import nn

    net._cells["3"] = nn.GELU(approximate=False)
    return "3"


def rebuild_an_operator(net: Any) -> str:
    from mindspore import ops

    net[0].layer_norm = ops.LayerNorm(epsilon=0.5)
    return "0"


def fill_a_parameter(net: Any) -> str:
    from mindspore import Tensor

    net[2].bias.set_data(Tensor(np.arange(4, dtype=np.float32)))
    return "2"


def change_an_attribute(net: Any) -> str:
    net[2].has_bias = False
    return "2"


def write_other_code(net: Any) -> str:
    net[1].construct = lambda x: -x
    return "1"


@pytest.mark.frameworks
@pytest.mark.parametrize(
    "repair", [replace_a_cell, rebuild_an_operator, fill_a_parameter, change_an_attribute, write_other_code]
)
def test_a_repair_touches_the_cell_that_it_changes_and_no_other(net: Any, repair: Any) -> None:
    before = snapshot(net)
    assert not touched(before, snapshot(net))
    path = repair(net)
    assert list(touched(before, snapshot(net))) == [path]


@pytest.mark.frameworks
def test_a_function_put_into_the_place_of_one_that_a_cell_calls_is_seen(
    net: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mindspore import ops

    before = snapshot(net)
    monkeypatch.setattr(ops, "gelu", lambda x, *_: x)
    assert list(touched(before, snapshot(net))) == ["3"]
