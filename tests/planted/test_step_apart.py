"""A faulty first step taken apart: by its gradients, by its optimizer, and at a learning rate of 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from step_nets import batch as digits
from step_nets import mindspore_side, torch_side

import align
from align.core.piece_transforms import apart_from_whole
from align.errors import CannotRunError
from align.training.open_training import StepUnseen, open_training
from align.training.steps.both_steps import brought_back

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks

RATE = 0.1


def batch() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {"x": generator.standard_normal((6, 4)).astype(np.float32), "label": np.ones(6, np.float32)}


def side(step: Callable[[Any, list[Any]], None] | None = None, factor: float = 1.0) -> Any:
    """A net with a loop that calls the optimizer in `step`, and its loss times a factor."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0))
    loss, optimizer, own = nn.MSELoss(), torch.optim.SGD(model.parameters(), RATE), [*model.parameters()]

    def taken(given: Any) -> Any:
        optimizer.zero_grad()
        value = factor * loss(model(given["x"]), given["label"])
        value.backward()
        with torch.no_grad():
            (step or (lambda called, _own: called.step()))(optimizer, own)
        return value.detach()

    return align.Training(model, loss, optimizer, taken)


def decayed_before(optimizer: Any, own: list[Any]) -> None:
    for one in own:
        one.mul_(0.999)
    optimizer.step()


def decayed_after(optimizer: Any, own: list[Any]) -> None:
    optimizer.step()
    for one in own:
        one.mul_(0.999)


def bounded(optimizer: Any, own: list[Any]) -> None:
    optimizer.step()
    for one in own:
        one.clamp_(-0.2, 0.2)


@pytest.mark.parametrize(
    ("loop", "told", "steps"),
    [(decayed_before, "times 0.999", 2), (decayed_after, "times 0.999", 1)],
)
def test_what_a_loop_does_beside_its_optimizer_is_found_at_a_rate_of_zero(loop: Any, told: str, steps: int) -> None:
    result = align.compare_training_step(side(loop), side(), batch=batch(), steps=steps)
    (culprit,) = result.culprits
    assert {"0.weight", "2.weight"} <= {*culprit.parameters}
    assert (culprit.kind, culprit.cause, culprit.sureness) == ("update", "moved-at-rate-zero", "confirmed")
    mine, _, theirs = str(culprit.facts["at a rate of 0"]).partition(" vs ")
    assert mine.startswith(told)
    assert theirs == "moved by 0"
    assert align.compare_training_step(side(loop), side(loop), batch=batch(), steps=2).culprits == ()


@pytest.mark.parametrize(("mine", "theirs", "only"), [(None, bounded, "candidate"), (bounded, None, "reference")])
def test_a_bound_of_one_side_is_no_pair_of_settings_that_happens_to_fit(mine: Any, theirs: Any, only: str) -> None:
    (culprit,) = align.compare_training_step(side(mine), side(theirs), batch=batch(), steps=2).culprits
    assert (culprit.cause, culprit.sureness) == ("values-bounded", "confirmed")
    assert culprit.facts == {"only in": only, "bound": "-0.2 to 0.2"}
    assert align.compare_training_step(side(bounded), side(bounded), batch=batch(), steps=2).culprits == ()


def wider(optimizer: Any, own: list[Any]) -> None:
    optimizer.step()
    for one in own:
        one.clamp_(-0.3, 0.3)


@pytest.mark.parametrize("steps", [1, 2])
def test_what_two_loops_do_otherwise_is_never_more_than_suspected(steps: int) -> None:
    result = align.compare_training_step(side(wider), side(bounded), batch=batch(), steps=steps)
    assert result.culprits
    assert all(one.cause != "moved-at-rate-zero" or one.sureness == "suspected" for one in result.culprits)


def test_gradients_and_the_optimizer_are_told_apart() -> None:
    """A loss twice as large moves twice as far; a decay moves by a thousandth of the value."""
    result = align.compare_training_step(side(), side(decayed_after, 2.0), batch=batch(), steps=1)
    assert {one.kind for one in result.culprits} == {"loss", "update"}
    start = {name: value.detach().numpy().copy() for name, value in side().model.named_parameters()}
    assert {one.candidate for one in result.apart} == {*start}
    for one in result.apart:
        assert one.by_gradients == pytest.approx(one.update, rel=1e-4)
        assert one.at_rate_zero == (0.0, pytest.approx(1e-3 * np.linalg.norm(start[one.candidate]), rel=1e-3, abs=1e-7))
        assert one.by_optimizer == pytest.approx(one.at_rate_zero[1], abs=1.1e-3 * one.update)
        assert one.whole == pytest.approx(one.update, abs=one.at_rate_zero[1] + 3e-3 * one.update)
    assert align.compare_training_step(side(), side(), batch=batch(), steps=1).apart == ()


def test_a_port_is_taken_apart_through_the_name_map() -> None:
    """Fused weights of attention are put together from the port's; the rate of the port shows in its optimizer."""
    made = mindspore_side("encoder", "sgd")
    fast = align.Training(made.model, made.loss, nn_sgd(made, 0.2))
    result = align.compare_training_step(torch_side("encoder", "sgd"), fast, batch=digits(), steps=1)
    assert {one.cause for one in result.culprits} == {"learning-rate"}
    assert len(result.apart) == len(result.updates) > 10
    update, by_optimizer, by_gradients, whole = (
        np.linalg.norm([getattr(one, what) for one in result.apart])
        for what in ("update", "by_optimizer", "by_gradients", "whole")
    )
    assert by_optimizer == pytest.approx(update, rel=1e-3)
    assert whole == pytest.approx(update, rel=1e-3)
    assert by_gradients < 1e-3 * update
    assert {one.at_rate_zero for one in result.apart} == {(0.0, 0.0)}


def nn_sgd(made: Any, rate: Any) -> Any:
    from mindspore import nn

    return nn.SGD(made.model.trainable_params(), rate)


class Ends(StepUnseen):
    """A StepSink that keeps the values at the end."""

    values: dict[str, Any]

    def begin(self, _step: int, _held: Any) -> dict[str, Any]:
        return {}

    def computed(self, name: str, gradient: Any) -> None:
        assert name
        assert np.isfinite(gradient).all()

    def update(self, gradients: Any) -> dict[str, Any]:
        assert any(one.any() for one in gradients.values())
        return {}

    def end(self, _step: int, _loss: Any, values: Any) -> None:
        self.values = {name: value.copy() for name, value in values}


def moved_at_rate_zero(made: align.Training) -> set[str]:
    """The parameters that such a step moves; a step after it moves as one before it."""
    opened, given, sinks = open_training(made), [digits()], [Ends(), Ends(), Ends()]
    before = dict(opened.side.reader.read_values(made.model))
    before = {name: value.copy() for name, value in before.items()}
    for sink, zero in zip(sinks, (False, True, False), strict=True):
        opened.trainer.take_steps(opened.training, given, sink, rate_zero=zero)
    own = {one.name for one in opened.side.reader.read_parameters(made.model, "").parameters if one.trainable}
    for name in own:
        np.testing.assert_array_equal(sinks[0].values[name], sinks[2].values[name])
    assert any((sinks[0].values[name] != before[name]).any() for name in own)
    return {name for name in own if (sinks[1].values[name] != before[name]).any()}


def test_a_rate_of_zero_moves_nothing_and_is_put_back() -> None:
    import torch
    from mindspore import nn
    from mindspore.experimental import optim as experimental

    mine, port = torch_side("mlp", "sgd"), mindspore_side("mlp", "sgd")
    weights = port.model.trainable_params()
    grouped = [{"params": weights[:3], "lr": 0.5}, {"params": weights[3:]}]
    for optimizer in (
        *(torch.optim.AdamW(mine.model.parameters(), rate) for rate in (0.1, torch.tensor(0.1))),
        *(nn.SGD(given, rate) for given, rate in ((weights, 0.1), (weights, [0.1, 0.2]), (grouped, 0.1))),
        experimental.SGD(weights, lr=0.1),
    ):
        side = port if isinstance(optimizer, nn.Cell) else mine
        assert moved_at_rate_zero(align.Training(side.model, side.loss, optimizer)) == set()


def test_a_rate_that_is_computed_is_not_set_to_zero() -> None:
    from mindspore import nn

    made = mindspore_side("mlp", "sgd")
    opened = open_training(align.Training(made.model, made.loss, nn_sgd(made, nn.ExponentialDecayLR(0.2, 0.9, 1))))
    with pytest.raises(CannotRunError, match="computed from the step"):
        opened.trainer.take_steps(opened.training, [digits()], Ends(), rate_zero=True)


def test_values_go_back_through_pieces() -> None:
    reference, candidate = (open_training(made("encoder", "sgd")) for made in (torch_side, mindspore_side))
    values = [one.side.reader.read_values(one.side.model) for one in (reference, candidate)]
    names = align.map_parameters(reference.side.model, candidate.side.model).name_map
    back = brought_back(names, values[1], values[0])
    assert {*back} == {one.source for one in names.pairings}
    for one in names.pairings:
        change, part = apart_from_whole(one.transform)
        own = values[1][one.target]
        np.testing.assert_array_equal(change.apply(back[one.source]), own if part is None else own[part.region])
