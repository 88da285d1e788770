"""Faults planted in the training step of ports, each named at its place, and clean pairs that show none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from step_nets import batch, mindspore_side, torch_side

import align
from align.core.verdicts import Outcome
from align.errors import CannotRunError, SharedModelError

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks


def compared(reference: align.Training, candidate: align.Training, **options: Any) -> Any:
    return align.compare_training_step(reference, candidate, **{"batch": batch(), "steps": 1, **options})


def places(result: Any) -> list[tuple[str, str, str, str]]:
    return [(one.kind, one.part, one.candidate, one.cause) for one in result.culprits]


def detached(_: Any, value: Any) -> Any:
    from mindspore import ops

    return ops.stop_gradient(value)


def halved(_: Any, value: Any) -> Any:
    from mindspore import ops

    return 0.5 * value + ops.stop_gradient(0.5 * value)


def own_bprop(_: Any, value: Any) -> Any:
    """A cell whose value is right and whose gradient is not."""
    from mindspore import nn

    class Passed(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * 1

        def bprop(self, _x: Any, _out: Any, gradient: Any) -> Any:
            return (gradient.clip(-1e-4, 1e-4),)

    return Passed()(value)


@pytest.mark.parametrize(
    ("net", "between", "place", "cause", "file"),
    [
        ("resnet", detached, "block2", "no-gradient", "test_step_faults.py"),  # the line that stops it
        ("lstm", detached, "", "no-gradient", "test_step_faults.py"),
        ("mlp", own_bprop, "", "", "step_nets.py"),  # the line that calls the layer beside it
    ],
)
def test_code_whose_way_back_is_wrong_is_named(
    net: str, between: Callable[[Any, Any], Any], place: str, cause: str, file: str
) -> None:
    result = compared(torch_side(net), mindspore_side(net, between=between))
    assert places(result) == [("backward", "code", place, cause)]
    assert Path(result.culprits[0].line.rpartition(":")[0]).name == file
    assert result.verdict.exit_code == 1


def test_a_gradient_that_only_the_reference_stops_is_named() -> None:
    reference = torch_side(between=lambda _, value: value.detach())
    assert places(compared(reference, mindspore_side(between=detached))) == []
    assert places(compared(reference, mindspore_side())) == [("backward", "code", "", "gradient-not-stopped")]


def test_a_port_that_trains_what_the_reference_cannot_train_does_not_train_the_same() -> None:
    """All gradients behind a rounding are 0, and none of the others differs: that excuses nothing."""

    def rounded(_: Any, value: Any) -> Any:
        return (value * 16).round() / 16

    def passed_through(net: Any, value: Any) -> Any:
        from mindspore import ops

        return value + ops.stop_gradient(rounded(net, value) - value)

    for net in ("mlp", "lstm"):
        reference = torch_side(net, between=rounded)
        assert places(compared(reference, mindspore_side(net, between=rounded))) == []
        result = compared(reference, mindspore_side(net, between=passed_through))
        assert places(result) == [("backward", "code", "", "gradient-not-stopped")]
        assert result.verdict.exit_code == 1


def test_two_faults_are_both_named_and_nothing_else() -> None:
    from mindspore import nn

    def change(model: Any) -> None:
        model.norm = nn.BatchNorm1d(24, momentum=0.1)

    port = mindspore_side(between=halved, change=change, loss=nn.CrossEntropyLoss(reduction="sum"))
    result = compared(torch_side(), port)
    assert sorted(places(result)) == [
        ("backward", "code", "", "gradient-factor"),
        ("buffer", "layer", "norm", "statistics-momentum-swapped"),
        ("loss", "loss", "", "loss-reduction"),
    ]
    (factor,) = [one.facts["factor"] for one in result.culprits if one.kind == "backward"]  # in front of dropout
    assert factor == pytest.approx(0.5, rel=1e-3)


def test_a_setting_of_the_loss_is_tried() -> None:
    from mindspore import nn

    port = mindspore_side("one", loss=nn.CrossEntropyLoss(label_smoothing=0.1))
    (culprit,) = compared(torch_side("one"), port).culprits
    assert (culprit.part, culprit.cause, culprit.sureness) == ("loss", "cross-entropy-smoothing", "confirmed")
    assert "label_smoothing=0.0" in culprit.change


def test_a_loss_of_the_users_own_that_sums_is_told_by_its_factor() -> None:
    from mindspore import nn

    whole = nn.CrossEntropyLoss(reduction="sum")
    port = mindspore_side("one", loss=lambda logits, label: whole(logits, label))
    (culprit,) = compared(torch_side("one"), port).culprits
    assert (culprit.part, culprit.cause, culprit.facts["samples"]) == ("loss", "mean-against-sum", 16)


def test_a_frozen_layer_is_named_by_its_parameters() -> None:
    def freeze(model: Any) -> None:
        for one in model.fc2.get_parameters():
            one.requires_grad = False

    (culprit,) = compared(torch_side(), mindspore_side(change=freeze)).culprits
    assert (culprit.candidate, culprit.cause) == ("fc2", "frozen-in-candidate")
    assert sorted(culprit.parameters) == ["fc2.bias", "fc2.weight"]


def test_normalisation_in_evaluation_mode_is_named() -> None:
    def hold(model: Any) -> None:
        model.norm.use_batch_statistics = False

    found = places(compared(torch_side(), mindspore_side(change=hold)))
    assert {(part, place) for _, part, place, _ in found} == {("layer", "norm")}


def torch_loop(kind: str, net: str = "one") -> align.Training:
    """A torch port with a loop of its own."""
    import torch

    side = torch_side(net)
    model, loss, optimizer = side.model, side.loss, side.optimizer

    def step(given: Any) -> Any:
        if kind != "never cleared":
            optimizer.zero_grad()
        parts = (slice(0, 8), slice(8, 16)) if "parts" in kind else (slice(None),)
        for part in parts:
            value = loss(model(given["x"][part]), given["label"][part])
            (value / (1 if kind == "parts summed" else len(parts)) * (8.0 if "scale" in kind else 1.0)).backward()
        if kind == "scale removed after clipping":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if "scale removed" in kind:
            for one in model.parameters():
                one.grad /= 8.0
        if kind == "clipped":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return value.detach()

    return replace(side, step=step)


@pytest.mark.parametrize(
    ("kind", "net", "expected"),
    [
        ("plain", "mlp", []),
        ("scale removed", "one", []),
        ("never cleared", "mlp", [("gradients", "step", "", "gradients-not-cleared")]),
        ("scale kept", "one", [("gradients", "step", "", "loss-scale-kept")]),
        ("clipped", "mlp", [("gradients", "step", "", "gradients-clipped-by-norm")]),
        ("scale removed after clipping", "mlp", [("gradients", "step", "", "gradients-clipped-by-norm")]),
    ],
)
def test_loops_of_the_users_own(kind: str, net: str, expected: list[Any]) -> None:
    assert places(compared(torch_side(net), torch_loop(kind, net), steps=2)) == expected


def test_a_cell_that_takes_the_step_is_a_step_of_the_users_own() -> None:
    from mindspore import nn

    side = mindspore_side("one", "momentum")
    train = nn.TrainOneStepCell(nn.WithLossCell(side.model, side.loss), side.optimizer)
    side = replace(side, loss=None, step=lambda given: train(given["x"], given["label"]))
    assert places(compared(torch_side("one", "momentum"), side)) == []


def test_parts_of_a_batch_without_their_mean_are_named() -> None:
    found = places(compared(torch_loop("parts", "mlp"), torch_loop("parts summed", "mlp")))
    assert found == [("gradients", "step", "", "sum-over-parts")]
    assert places(compared(torch_loop("parts", "mlp"), torch_loop("parts", "mlp"))) == []


def test_a_reference_without_float64_is_rounded_at_random() -> None:
    result = compared(mindspore_side(), torch_side())
    assert places(result) == []
    assert [one.code for one in result.findings] == ["noise-unmeasured", "dropout-replayed"]
    assert "fc1.bias" in {one.reference for one in result.gradients if one.outcome == "could not tell"}
    found = places(compared(mindspore_side(between=halved), torch_side()))
    assert found == [("backward", "code", "", "gradient-factor")]


def test_a_step_that_draws_random_numbers_is_refused() -> None:
    import torch

    side = torch_side()
    forward = side.model.fc2.forward
    side.model.fc2.forward = lambda x: torch.nn.functional.dropout(forward(x), 0.5)
    for sides in ((side, mindspore_side()), (mindspore_side(), side)):
        with pytest.raises(CannotRunError, match="Mlp draws random numbers"):
            compared(*sides)


def test_sides_that_share_tensors_are_refused() -> None:
    side = torch_side()
    with pytest.raises(SharedModelError, match="one object"):
        compared(side, side)
    other = torch_side()
    other.model.fc1.weight = side.model.fc1.weight
    with pytest.raises(SharedModelError, match="share 1 tensor"):
        compared(side, other)


def test_a_loss_that_depends_on_no_parameter_is_not_compared() -> None:
    import torch

    def cut(outputs: Any, label: Any) -> Any:
        return torch.nn.functional.cross_entropy(outputs.detach(), label)

    sides = [replace(torch_side(), loss=cut) for _ in range(2)]
    assert compared(*sides).verdict.outcome is Outcome.NOT_COMPARED


def test_nothing_of_a_side_is_changed() -> None:
    torch, mindspore = torch_side(optimizer="adam"), mindspore_side(optimizer="adam")

    def held() -> list[bytes]:
        own = [one.detach().numpy().tobytes() for one in torch.model.state_dict().values()]
        parameters = *mindspore.model.get_parameters(), *mindspore.optimizer.get_parameters()
        return own + [one.asnumpy().tobytes() for one in parameters]

    before = held()
    compared(torch, mindspore)
    assert held() == before
    assert not torch.optimizer.state
    assert np.isclose(torch.model.drop.p, 0.2)


def test_other_rules_of_optimizers_are_named_with_their_parameters() -> None:
    from mindspore import nn

    def port(net: str, make: Callable[[Any], Any]) -> Any:
        side = mindspore_side(net)
        return replace(side, optimizer=make(side.model.trainable_params()))

    def found(optimizer: str, make: Callable[[Any], Any], net: str = "one") -> list[tuple[str, str]]:
        result = compared(torch_side(net, optimizer), port(net, make), steps=2)
        return [(one.kind, one.cause) for one in result.culprits]

    assert found("momentum", lambda weights: nn.Momentum(weights, 0.1, 0.8)) == [("update", "momentum")]
    assert found("sgd", lambda weights: nn.SGD(weights, 0.1, weight_decay=0.01)) == [("update", "weight-decay")]
    assert found("sgd", lambda weights: nn.SGD(weights, 0.2)) == [("update", "learning-rate")]
    causes = dict(found("adamw", lambda weights: nn.AdamWeightDecay(weights, 1e-3, eps=1e-8, weight_decay=0.01), "mlp"))
    assert "no-bias-correction" in causes["update"]


def test_a_loss_scale_that_the_optimizer_takes_off_is_no_fault() -> None:
    from mindspore import nn

    whole = nn.CrossEntropyLoss()
    side = mindspore_side("one", loss=lambda logits, label: whole(logits, label) * 64.0)
    side = replace(side, optimizer=nn.Momentum(side.model.trainable_params(), 0.1, 0.9, loss_scale=64.0))
    result = compared(torch_side("one", "momentum"), side)
    assert places(result) == []
    assert result.updates
    assert all(one.factor <= 1.0 for one in result.updates)
    assert [one.code for one in result.findings] == ["loss-scale"]
