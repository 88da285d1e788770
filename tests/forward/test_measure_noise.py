"""Noise is measured as far as a reference runs in float64, also behind casts; the rest has limits of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

if TYPE_CHECKING:
    from align.forward.forward_result import ForwardComparison

WIDTH = 16
INPUTS = {"x": np.random.default_rng(0).standard_normal((6, WIDTH)).astype(np.float32)}


def sources(result: ForwardComparison, *, alone: bool) -> dict[str, str]:
    """Where the limit of each layer comes from, gathered or alone."""
    both = {one.reference: one.isolated if alone else one for one in result.layers}
    return {path: one.limit.source if one and one.limit else "" for path, one in both.items()}


def casting_model(eps: float = 1e-5, *, mixes: bool = False) -> Any:
    """A model that casts to float32 in front of a norm, or computes there with what went through NumPy in float32."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(WIDTH, WIDTH)
            self.norm = nn.LayerNorm(WIDTH, eps=eps)
            self.last = nn.Linear(WIDTH, 4)

        def forward(self, x: Any) -> Any:
            hidden = self.first(x).float()
            if mixes:
                hidden = torch.from_numpy(hidden.detach().numpy().astype(np.float32)) @ self.first.weight
            return self.last(self.norm(hidden))

    torch.manual_seed(0)
    return Net()


@pytest.mark.frameworks
def test_layers_behind_a_cast_are_judged_by_their_own_noise_and_a_small_fault_shows() -> None:
    clean = align.compare_forward(casting_model(), casting_model(), inputs=INPUTS)
    assert clean.verdict.outcome is Outcome.ALIGNED
    assert clean.findings == ()
    for alone in (False, True):
        assert set(sources(clean, alone=alone).values()) <= {"noise", "rounding"}
    wrong = align.compare_forward(casting_model(), casting_model(eps=5e-5), inputs=INPUTS)
    assert [one.candidate for one in wrong.culprits] == ["norm"]
    assert max(one.measurement.relative_l2 or 0 for one in wrong.layers if one.measurement) < 1e-4


@pytest.mark.frameworks
def test_layers_in_front_of_code_that_fails_in_float64_keep_their_own_noise() -> None:
    result = align.compare_forward(casting_model(mixes=True), casting_model(mixes=True), inputs=INPUTS)
    assert [one.code for one in result.findings] == ["noise-unmeasured"]
    assert "after layer 'first'" in result.findings[0].message
    for alone in (False, True):
        found = sources(result, alone=alone)
        assert found.pop("first") in ("noise", "rounding")
        assert set(found.values()) == {"dtype"}


def test_of_plain_functions_what_runs_in_float64_is_measured_too() -> None:
    def only_float32(x: Any) -> Any:
        if x.dtype != np.float32:
            raise TypeError("float32 only")
        return x

    def model(family: str, dense: str) -> ArrayModel:
        weights = {"weight": np.random.default_rng(1).standard_normal((4, WIDTH)).astype(np.float32)}
        layer = ArrayLayer("fc", f"{family}.nn.{dense}", lambda x, weight: x @ weight.T, weights)
        return ArrayModel((layer, ArrayLayer("act", f"{family}.nn.ReLU", only_float32, {})))

    result = align.compare_forward(model("torch", "Linear"), model("mindspore", "Dense"), inputs=INPUTS)
    assert "TypeError: float32 only" in result.findings[0].message
    found = sources(result, alone=True)
    assert found.pop("fc") in ("noise", "rounding")
    assert found == {"act": "dtype", "": "dtype"}


def random_net(*, draws: bool = False, fault: float = 0.0) -> Any:
    """A model that may add random numbers between its layers, or be off there."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.norm, self.last = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)

        def forward(self, x: Any) -> Any:
            hidden = self.norm(self.first(x))
            hidden = hidden + 1e-4 * torch.rand_like(hidden) if draws else hidden
            return self.last(hidden * (1 + fault))

    return Net()


@pytest.mark.frameworks
def test_of_large_models_the_noise_of_layers_alone_is_measured_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = align.compare_forward(random_net(), random_net(), inputs=INPUTS)
    monkeypatch.setattr("align.forward.compare_forward.FEWER_RUNS_BYTES", 0)
    right = align.compare_forward(random_net(), random_net(), inputs=INPUTS)
    assert plain.verdict.outcome is right.verdict.outcome is Outcome.ALIGNED
    assert [one.limit for one in right.layers] == [one.limit for one in plain.layers]
    assert set(sources(right, alone=True).values()) == {"rounding"}
    wrong = align.compare_forward(random_net(), random_net(fault=1e-3), inputs=INPUTS)
    assert wrong.verdict.outcome is Outcome.NOT_ALIGNED
    with pytest.raises(align.errors.CannotRunError, match="random"):
        align.compare_forward(random_net(draws=True), random_net(draws=True), inputs=INPUTS)
