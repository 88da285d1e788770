"""Three sides: who deviates at each layer, by majority, or by how much nearer two are to each other."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from align.cli.main import main
from align.forward.compare_forward import compare_forward
from align.forward.judge_forward import who_deviates
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

INPUTS = {"x": np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)}


def net(factor: float = 1.0, *, layer: str = "second", last: str = "last") -> ArrayModel:
    """Three matrices, of which one is multiplied."""
    rng = np.random.default_rng(7)
    layers = []
    for name in ("first", "second", last):
        weight = rng.standard_normal((6, 6)).astype(np.float32) * np.float32(factor if name == layer else 1.0)
        layers.append(ArrayLayer(name, "torch.nn.Linear", lambda x, weight: x @ weight.T, {"weight": weight}))
    return ArrayModel(tuple(layers))


def deviates(result: Any) -> dict[str, str]:
    assert result.witness is not None
    return {row.reference: row.deviates for row in result.witness.layers}


@pytest.mark.parametrize("side", ["reference", "candidate", "witness"])
def test_the_side_with_the_fault_deviates_from_its_layer_on(side: str) -> None:
    sides = {name: net(1.001 if name == side else 1.0) for name in ("reference", "candidate", "witness")}
    result = compare_forward(sides["reference"], sides["candidate"], inputs=INPUTS, witness=sides["witness"])
    assert deviates(result) == {"first": "none", "second": side, "last": side, "": side}
    assert result.witness is not None
    assert result.witness.first == 1
    assert "second" in result.witness.conclusion
    assert (result.verdict.outcome.value == "aligned") == (side == "witness")


def test_three_sides_that_agree_leave_nobody(capsys) -> None:
    result = compare_forward(net(), net(), inputs=INPUTS, witness=net())
    assert set(deviates(result).values()) == {"none"}
    assert result.witness is not None
    assert (result.witness.first, result.witness.without_witness) == (None, 0)


def test_no_two_alike_is_nobodys_fault() -> None:
    result = compare_forward(net(), net(1.1), inputs=INPUTS, witness=net(0.9))
    assert deviates(result)["second"] == "all"


def test_a_layer_that_the_witness_lacks_is_counted() -> None:
    witness = ArrayModel(net().layers[:2])
    result = compare_forward(net(), net(), inputs=INPUTS, witness=witness)
    assert result.witness is not None
    assert result.witness.without_witness == 1


@pytest.mark.parametrize(
    ("factors", "side"),
    [
        ((0.1, 0.2, 0.3), "none"),
        ((0.9, 30.0, 31.0), "witness"),
        ((30.0, 0.9, 31.0), "candidate"),
        ((30.0, 31.0, 0.9), "reference"),
        ((30.0, 31.0, 32.0), "all"),
        ((2.0, 310.0, 320.0), "witness"),
        ((0.9, 0.8, 1.1), "unclear"),
        ((float("inf"), float("inf"), float("inf")), "all"),
    ],
)
def test_the_majority_is_right_or_those_who_are_far_nearer(factors: tuple[float, float, float], side: str) -> None:
    assert who_deviates(*factors) == side


@pytest.mark.frameworks
def test_a_fault_in_an_export_is_not_laid_to_the_port(tmp_path, capsys) -> None:
    """The command prints who deviates, and its exit code is that of reference and candidate."""
    (tmp_path / "sides.py").write_text(
        "import torch\n\n\ndef right():\n    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).eval()\n\n\n"
        "def other():\n    return right()\n\n\n"
        "def wrong():\n    net = right()\n    with torch.no_grad():\n        net[2].bias.add_(0.1)\n    return net\n"
    )
    import importlib.util
    import warnings

    import torch

    spec = importlib.util.spec_from_file_location("sides_of_witness", tmp_path / "sides.py")
    assert spec is not None
    assert spec.loader is not None
    sides = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sides)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(sides.wrong(), (torch.zeros(4, 6),), str(tmp_path / "net.onnx"), dynamo=False)
    file = f"{tmp_path}/sides.py"
    command = ["forward", f"{file}:right", f"{file}:other", "--input", "x=float32[4,6]"]
    command += ["--witness", str(tmp_path / "net.onnx")]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["witness"]
    assert found["layers"][found["first"]]["reference"] == "2"
    assert found["layers"][found["first"]]["deviates"] == "witness"
    assert main(command) == 0
    assert "the witness deviates" in " ".join(capsys.readouterr().out.split())


def test_a_candidate_that_fails_leaves_the_witness_out_and_says_so() -> None:
    layers = net().layers
    failing = ArrayModel((*layers[:2], ArrayLayer("last", "torch.nn.Linear", lambda x: x @ x, {})))
    result = compare_forward(net(), failing, inputs=INPUTS, witness=net())
    assert (result.verdict.exit_code, result.witness) == (2, None)
    assert "witness-not-run" in [one.code for one in result.findings]
