"""Live models that cannot be compared: said in one line, with the layer, before anything else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.errors import CannotRunError, ModelFailedError
from align.forward.compare_forward import compare_forward
from align.report.show_result import blocks_as_text, result_blocks
from align.runs.run_folder import as_document

pytestmark = pytest.mark.frameworks

X = {"x": np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)}


def torch_net(fault: str = "") -> Any:
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(8, 8)
            self.norm = nn.LayerNorm(8)
            self.b = nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            y = self.a(x)
            if fault == "dropout":
                y = nn.functional.dropout(y, 0.3)
            y = self.norm(y)
            if fault == "between":
                y = y @ torch.ones(3, 3)
            z = self.b(y[:, :3] if fault == "inside" else y)
            return {"two": (z, y), "three": (z, y, z)}.get(fault, z)

    return Net()


def mindspore_net(fault: str = "") -> Any:
    from mindspore import nn, ops

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Dense(8, 8)
            self.scale = nn.LayerNorm((8,), epsilon=1e-5)
            self.two = nn.Dense(8, 4)

        def construct(self, x: Any) -> Any:
            y = self.one(x)
            if fault == "dropout":
                y = ops.dropout(y, p=0.3, training=True)
            y = self.scale(y)
            if fault == "between":
                y = ops.matmul(y, ops.ones((3, 3)))
            z = self.two(y[:, :3] if fault == "inside" else y)
            return {"two": (z, y), "three": (z, y, z)}.get(fault, z)

    return Net()


@pytest.fixture(scope="module")
def alike(pairs: Any) -> tuple[Any, Any]:
    reference = torch_net()
    return reference, pairs.make_alike(reference, mindspore_net(), X)


def compared(pairs: Any, alike: Any, of_reference: str, of_candidate: str) -> Any:
    filled, name_map = alike
    reference, candidate = torch_net(of_reference), mindspore_net(of_candidate)
    reference.load_state_dict(filled.state_dict())
    pairs.transfer(filled, candidate, name_map)
    return compare_forward(reference, candidate, inputs=X, name_map=name_map, power=False)


@pytest.mark.parametrize(
    ("reference", "candidate", "layer"),
    [("", "dropout", "scale"), ("dropout", "", "norm"), ("dropout", "dropout", "norm")],
)
def test_dropout_that_is_active_in_evaluation_mode_is_refused_and_its_place_told(
    pairs: Any, alike: Any, reference: str, candidate: str, layer: str
) -> None:
    with pytest.raises(CannotRunError, match=f"'{layer}' \\(LayerNorm\\) is the first to differ") as caught:
        compared(pairs, alike, reference, candidate)
    assert "\n" not in caught.value.message
    assert "dropout" in caught.value.hint


@pytest.mark.parametrize(
    ("reference", "candidate", "told"),
    [("", "two", "1 output against 2"), ("two", "", "2 outputs against 1"), ("two", "three", "2 outputs against 3")],
)
def test_outputs_of_another_structure_could_not_be_compared_and_the_verdict_says_how_many(
    pairs: Any, alike: Any, reference: str, candidate: str, told: str
) -> None:
    result = compared(pairs, alike, reference, candidate)
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert result.verdict.exit_code == 2
    assert result.verdict.reason.endswith(told)
    assert result.culprits == ()
    first = blocks_as_text(result_blocks(as_document(result, {}))[:1])
    assert "COULD NOT COMPARE: the outputs of the two models" in first.splitlines()[0]


@pytest.mark.parametrize(
    ("reference", "place"),
    [
        ("inside", "the torch model, in layer 'b' ("),
        ("between", "the torch model, after layer 'norm' at tests/planted/"),
    ],
)
def test_a_reference_that_fails_in_the_middle_names_the_layer_or_the_last_one_before(
    pairs: Any, alike: Any, reference: str, place: str
) -> None:
    with pytest.raises(ModelFailedError) as caught:
        compared(pairs, alike, reference, "")
    assert caught.value.message.startswith(place)
    assert "on inputs x float32" in caught.value.message


@pytest.mark.parametrize(
    ("candidate", "place"), [("inside", "in layer 'two' ("), ("between", "after layer 'scale' at tests/planted/")]
)
def test_of_a_port_that_fails_in_the_middle_what_ran_before_is_compared(
    pairs: Any, alike: Any, candidate: str, place: str
) -> None:
    result = compared(pairs, alike, "", candidate)
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert f"the port failed {place}" in result.verdict.reason
    assert {row.outcome for row in result.layers} == {"aligned"}
