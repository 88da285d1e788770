"""One model in two precisions and in two modes of MindSpore, and devices that are not there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.cli.main import main
from align.core.verdicts import Outcome
from align.errors import CannotRunError, UsageError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

if TYPE_CHECKING:
    from pathlib import Path

INPUTS = {"x": np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)}
TORCH = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3))
"""


def torch_model(eps: float = 1e-5) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6, eps=eps), nn.GELU(), nn.Linear(6, 3))


def network(factor: float = 1.0) -> Any:
    import mindspore
    from mindspore import nn

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Dense(6, 6)
            self.norm = nn.LayerNorm((6,))
            self.last = nn.Dense(6, 3)
            self.factor = factor

        def construct(self, x: Any) -> Any:
            return self.last(self.norm(self.first(x))) * self.factor

    mindspore.set_seed(0)
    return Net()


@pytest.mark.frameworks
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_model_wholly_in_another_precision_is_judged_by_its_limits(dtype: str) -> None:
    clean = align.compare_forward(torch_model(), align.open_side(torch_model(), dtype=dtype), inputs=INPUTS)
    assert clean.verdict.outcome is Outcome.ALIGNED
    assert {layer.candidate_dtype for layer in clean.layers} == {dtype}
    assert max(layer.factor or 0.0 for layer in clean.layers) > 1e-3
    wrong = align.compare_forward(torch_model(), align.open_side(torch_model(eps=1.0), dtype=dtype), inputs=INPUTS)
    assert [culprit.candidate for culprit in wrong.culprits] == ["1"]


@pytest.mark.frameworks
def test_graph_mode_is_compared_at_the_outputs_and_the_result_says_so() -> None:
    weights = network()
    reader = align.open_side(weights).reader
    clean, wrong = network(), network(factor=1.01)
    for other in (clean, wrong):
        reader.load_values(other, reader.read_values(weights))
    result = align.compare_forward(weights, align.open_side(clean, mode="graph"), inputs=INPUTS)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert [(layer.reference, layer.candidate) for layer in result.layers] == [("", "")]
    assert "outputs-only" in {finding.code for finding in result.findings}
    assert result.environment["mindspore"]["mode"] == "PYNATIVE"
    assert result.environment["mindspore (candidate)"]["mode"] == "GRAPH"
    assert result.verdict.coverage.unmatched_reference == 3
    failed = align.compare_forward(weights, align.open_side(wrong, mode="graph"), inputs=INPUTS)
    assert failed.verdict.outcome is Outcome.NOT_ALIGNED


@pytest.mark.frameworks
def test_a_network_is_cast_as_a_whole() -> None:
    import mindspore

    reference, candidate = network(), network()
    reader = align.open_side(reference).reader
    reader.load_values(candidate, reader.read_values(reference))
    side = align.open_side(candidate, dtype="float16", device="cpu")
    assert {parameter.dtype for parameter in side.model.get_parameters()} == {mindspore.float16}
    result = align.compare_forward(reference, side, inputs=INPUTS)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert {layer.candidate_dtype for layer in result.layers} == {"float16"}


@pytest.mark.frameworks
@pytest.mark.parametrize("device", ["npu", "cuda:7", "nonsense"])
def test_a_device_that_torch_does_not_have_here_is_said(device: str) -> None:
    with pytest.raises(CannotRunError, match=f"torch has no device '{device}' here"):
        align.open_side(torch_model(), device=device)


@pytest.mark.frameworks
def test_a_device_that_mindspore_does_not_have_is_said() -> None:
    with pytest.raises(CannotRunError, match="MindSpore knows no device 'tpu'"):
        align.open_side(network(), device="tpu")


def test_what_no_side_can_be_is_refused() -> None:
    model = ArrayModel((ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),))
    with pytest.raises(UsageError, match="no model computes in 'int8'"):
        align.open_side(model, dtype="int8")
    with pytest.raises(UsageError, match="there is no mode 'eager'"):
        align.open_side(model, mode="eager")
    with pytest.raises(UsageError, match="arrays models cannot be moved or cast"):
        align.open_side(model, device="cpu")
    with pytest.raises(UsageError, match="arrays models have no mode"):
        align.open_side(model, mode="graph")


@pytest.mark.frameworks
def test_the_command_line_and_the_project_file_choose_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(TORCH, encoding="utf-8")
    drawn = ["--input", "x=float32[4,6]", "--json"]
    assert main(["forward", "net.py:build", "net.py:build", "--candidate-dtype", "float16", *drawn]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {layer["candidate_dtype"] for layer in document["layers"]} == {"float16"}
    assert document["made_from"]["candidate place"] == {"text": "float16"}
    side = '[{}]\nmodel = "net.py:build"\ndtype = "{}"\n'
    (tmp_path / "align.toml").write_text(side.format("reference", "float64") + side.format("candidate", "bfloat16"))
    assert main(["forward", *drawn]) == 0
    layer = json.loads(capsys.readouterr().out)["layers"][0]
    assert (layer["reference_dtype"], layer["candidate_dtype"]) == ("float64", "bfloat16")
    assert main(["forward", "--candidate-device", "npu", *drawn]) == 2
    assert "torch has no device 'npu' here" in capsys.readouterr().err
    assert main(["capture", "net.py:build", "--dtype", "float16", "-o", "trace", *drawn]) == 0
    calls = json.loads(capsys.readouterr().out)["calls"]
    assert {output["dtype"] for call in calls for output in call["outputs"]} == {"float16"}
