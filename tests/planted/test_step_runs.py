"""Several steps of a port: left to itself, and what its optimizer keeps; what single steps cannot show."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from step_nets import batch, clean_steps, mindspore_side, torch_side

import align
from align.core.verdicts import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks


def compared(reference: align.Training, candidate: align.Training, steps: int = 3) -> Any:
    return align.compare_training_step(reference, candidate, batch=batch(), steps=steps)


def codes(result: Any) -> list[str]:
    return [one.code for one in result.findings if not one.code.startswith("dropout-")]


@pytest.mark.parametrize(
    ("net", "optimizer", "kinds", "most"),
    [
        ("mlp", "adam", 2, 0.3),
        ("resnet", "momentum", 1, 5e-4),
        ("encoder", "adam", 2, 0.12),
        ("lstm", "momentum", 1, 5e-4),
    ],
)
def test_a_clean_pair_parts_as_rounding_and_single_steps_explain(
    net: str, optimizer: str, kinds: int, most: float
) -> None:
    """Adam moves what has no gradient but rounding by the whole rate: a bias in front of BatchNorm, those of keys.

    Of the MLP these are 24 of 2,178 elements, a tenth of the way. They come to 0.2 there, to 0.07 in the encoder;
    momentum comes to 6e-5.
    """
    result = clean_steps(net, optimizer)
    assert codes(result) == []
    assert result.culprits == ()
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.losses[0].reference > result.losses[2].reference
    assert [one.step for one in result.losses] == [1, 2, 3]
    assert [one.step for one in result.free] == [1, 2, 3]
    assert [one.reference for one in result.free] == [one.reference for one in result.losses]
    for one in result.free:
        assert 0 < one.apart < 2 * (one.noise + one.single_steps) < most
    weights = list(torch_side(net).model.parameters())
    assert [one.outcome for one in result.moments] == ["aligned"] * kinds * len(weights)
    assert {one.scale for one in result.moments} == {None}


def test_the_sizes_of_a_clean_pair_are_equal() -> None:
    result = clean_steps("mlp", "adam")
    told = [one for one in result.gradients if one.outcome == "aligned"]
    ratios = [one.candidate_norm / one.reference_norm for one in told if one.candidate_norm and one.reference_norm]
    assert ratios == pytest.approx([1.0] * len(told), rel=1e-4)
    assert max(one.factor for one in result.updates) <= 1
    assert len(result.updates) == len(result.gradients)


def test_what_the_framework_drops_inside_its_attention_stays_off() -> None:
    result = clean_steps("encoder", "adam")
    assert [(one.code, one.message[-49:]) for one in result.findings] == [
        ("dropout-replayed", "3 layers of the reference and 3 layers of the candidate"[-49:]),
        ("dropout-off", "1 layer of the reference and 1 layer of the candidate"[-49:]),
    ]


def kept_weight(side: align.Training, *, stale: bool) -> align.Training:
    """A port that computes with the weight as it was in the first step, with the right gradient."""
    import torch

    layer = side.model.fc2
    layer.first = None

    def forward(x: Any) -> Any:
        if layer.first is None:
            layer.first = layer.weight.detach().clone()
        value = layer.weight + (layer.first - layer.weight).detach() if stale else layer.weight
        return torch.nn.functional.linear(x, value, layer.bias)

    layer.forward = forward
    return side


@pytest.mark.parametrize(("stale", "expected"), [(True, ["free-run-apart"]), (False, [])])
def test_what_a_step_leaves_behind_for_the_next_shows_in_the_free_run(stale: bool, expected: list[str]) -> None:
    result = compared(torch_side(), kept_weight(torch_side(seed=1), stale=stale))
    assert codes(result) == expected
    assert (result.free[0].apart > 1e-4, result.free[2].apart > 1e-4) == (False, stale)
    assert result.verdict.outcome is Outcome.ALIGNED


def watchful(side: align.Training, rate: float) -> align.Training:
    """A loop that stops at a loss that is large."""
    import torch

    optimizer = torch.optim.SGD(side.model.parameters(), rate)

    def loss(outputs: Any, label: Any) -> Any:
        value = side.loss(outputs, label)
        if value > 100:
            raise ValueError("the loss runs away")
        return value

    return replace(side, optimizer=optimizer, loss=loss)


@pytest.mark.parametrize(("rate", "taken"), [(1e5, 1), (0.1, 3)])
def test_a_free_run_that_fails_ends_there_and_the_rest_is_told(rate: float, taken: int) -> None:
    result = compared(torch_side("lstm"), watchful(torch_side("lstm", seed=1), rate))
    assert [one.apart is not None for one in result.free] == [number < taken for number in range(3)]
    assert [one.candidate is not None for one in result.free] == [number < taken for number in range(3)]
    assert [one.cause for one in result.culprits] == (["learning-rate"] if taken == 1 else [])


def stepping(side: align.Training, after: Callable[[Any], object]) -> align.Training:
    """A loop that does something to the optimizer's state behind each step."""

    def step(given: Any) -> Any:
        side.optimizer.zero_grad()
        loss = side.loss(side.model(given["x"]), given["label"])
        loss.backward()
        side.optimizer.step()
        for state in side.optimizer.state.values():
            after(state)
        return loss.detach()

    return replace(side, step=step)


def forget_every_third(state: dict[str, Any]) -> None:
    if state["step"] == 3:
        state["exp_avg"].zero_()


@pytest.mark.parametrize(
    ("after", "expected"), [(forget_every_third, ["moment-differs"]), (lambda state: state, [])], ids=["lost", "kept"]
)
def test_a_moment_that_is_lost_after_a_step_is_told(after: Callable[[Any], object], expected: list[str]) -> None:
    result = compared(torch_side(optimizer="adam"), stepping(torch_side(optimizer="adam", seed=1), after))
    assert codes(result) == expected
    off = {one.candidate_moment for one in result.moments if one.outcome == "not aligned"}
    assert off == ({"exp_avg"} if expected else set())
    assert result.culprits == ()


def rate_in_momentum(side: align.Training) -> align.Training:
    """SGD as Caffe and darknet have it: the momentum holds movements."""
    import torch

    class MovingSGD(torch.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 0.1})

        @torch.no_grad()
        def step(self) -> None:
            for one in self.param_groups[0]["params"]:
                buffer = self.state[one].setdefault("momentum_buffer", torch.zeros_like(one))
                buffer.mul_(0.9).add_(one.grad, alpha=0.1)
                one.sub_(buffer)

    return replace(side, optimizer=MovingSGD(side.model.parameters()))


def test_a_moment_in_another_unit_is_no_fault() -> None:
    sides = torch_side("lstm", "momentum"), rate_in_momentum(torch_side("lstm", seed=1))
    result = compared(*sides)
    assert (codes(result), result.culprits) == ([], ())
    assert {one.outcome for one in result.moments} == {"aligned"}
    assert {round(one.scale, 5) for one in result.moments} == {0.1}
    assert {one.outcome for one in compared(*sides, steps=1).moments} == {"could not tell"}


def test_the_moment_of_a_gradient_that_is_rounding_is_not_judged() -> None:
    """torch's Adamax adds epsilon to the size of a gradient that is smaller, in front of BatchNorm."""
    import torch
    from mindspore import nn

    reference, port = torch_side(), mindspore_side()
    reference = replace(reference, optimizer=torch.optim.Adamax(reference.model.parameters(), 1e-3))
    port = replace(port, optimizer=nn.AdaMax(port.model.trainable_params(), 1e-3))
    result = compared(reference, port, steps=1)
    off = {(one.candidate, one.candidate_moment) for one in result.moments if one.outcome != "aligned"}
    assert off == {("fc1.bias", "moment2")}
    assert codes(result) == []


def test_moments_of_another_rule_follow_from_the_optimizer() -> None:
    from mindspore import nn

    side = mindspore_side()
    side = replace(side, optimizer=nn.SGD(side.model.trainable_params(), 0.1, momentum=0.8))
    result = compared(torch_side(optimizer="momentum"), side)
    assert [one.cause for one in result.culprits] == ["momentum"]
    assert {(one.reference_moment, one.candidate_moment) for one in result.moments} == {("momentum_buffer", "accum")}
    assert "not aligned" in {one.outcome for one in result.moments}
    assert codes(result) == []
