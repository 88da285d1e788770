"""`align.probe` compares a value that no module returns, and narrows down which code between layers is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome

pytestmark = pytest.mark.frameworks
X = {"x": np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)}


def torch_model() -> Any:
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            scores = align.probe("scores", self.q(x) @ self.k(x).transpose(1, 2) / 8**0.5)
            mixed = align.probe("mixed", torch.softmax(scores, -1) @ x)
            return self.out(mixed)

    torch.manual_seed(0)
    return Attention()


def mindspore_model(scale: float = 8**0.5, axis: int = -1, *, used: bool = True, second: str = "mixed") -> Any:
    from mindspore import nn, ops

    class Attention(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.out = nn.Dense(8, 8), nn.Dense(8, 8), nn.Dense(8, 8)

        def construct(self, x: Any) -> Any:
            scores = ops.matmul(self.q(x), self.k(x).swapaxes(1, 2)) / scale
            probed = align.probe("scores", scores)
            weights = ops.softmax(probed if used else scores, axis)
            mixed = align.probe(second, ops.matmul(weights, x))
            return self.out(mixed)

    return Attention()


def compare(port: Any) -> Any:
    reference = torch_model()
    values = {name: value.numpy() for name, value in reference.state_dict().items()}
    side = align.open_side(port)
    side.reader.load_values(port, values)
    return align.compare_forward(reference, side, inputs=X)


def culprits(result: Any) -> list[tuple[str, str]]:
    return [(culprit.candidate, culprit.part) for culprit in result.culprits]


def test_probes_of_one_name_are_compared_in_a_clean_port() -> None:
    result = compare(mindspore_model())
    assert result.verdict.outcome is Outcome.ALIGNED
    rows = {layer.candidate: layer for layer in result.layers}
    assert {rows[name].outcome for name in ("probe:scores", "probe:mixed")} == {"aligned"}
    assert rows["probe:scores"].isolated.outcome == "aligned"


@pytest.mark.parametrize("used", [True, False])
def test_the_first_probe_behind_wrong_code_is_named_alone(used: bool) -> None:
    assert culprits(compare(mindspore_model(scale=1.0, used=used))) == [("probe:scores", "inputs")]


def test_code_between_two_probes_is_told_apart_from_code_in_front() -> None:
    assert culprits(compare(mindspore_model(axis=1))) == [("probe:mixed", "inputs")]
    both = compare(mindspore_model(scale=1.0, axis=1))
    assert culprits(both) == [("probe:scores", "inputs"), ("probe:mixed", "inputs")]


def test_a_probe_that_one_side_lacks_is_listed_and_pairs_with_no_other() -> None:
    result = compare(mindspore_model(second="blend"))
    assert result.verdict.outcome is Outcome.ALIGNED
    alone = {(one.side, one.module): one.reason for one in result.unpaired}
    assert alone.keys() >= {("reference", "probe:mixed"), ("candidate", "probe:blend")}
    assert alone["candidate", "probe:blend"] == "the other side has no probe of this name"


def test_outside_of_a_run_a_probe_gives_its_value_back() -> None:
    value = object()
    assert align.probe("anything", value) is value
