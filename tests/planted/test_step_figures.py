"""The sizes of gradients and updates that a compared step tells of both sides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from step_nets import batch, mindspore_side, torch_side

import align

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.frameworks


def gradient_norms_of_torch() -> dict[str, float]:
    """The norms that torch itself gives for the first step, without dropout."""
    import torch

    side, given = torch_side(), batch()
    side.model.drop.p = 0.0
    side.loss(side.model(torch.from_numpy(given["x"])), torch.from_numpy(given["label"])).backward()
    return {name: float(one.grad.double().norm()) for name, one in side.model.named_parameters()}


def ratios(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return [mine / theirs for mine, theirs in pairs]


def halved(_: Any, value: Any) -> Any:
    from mindspore import ops

    return 0.5 * value + ops.stop_gradient(0.5 * value)


def test_norms_of_gradients_and_updates_are_those_of_both_sides() -> None:
    from mindspore import nn

    port = mindspore_side(between=halved)
    port = replace(port, optimizer=nn.SGD(port.model.trainable_params(), 0.2))
    reference = torch_side(optimizer="sgd")
    with align.freeze(reference.model, batchnorm=False), align.freeze(port.model, batchnorm=False):
        result = align.compare_training_step(reference, port, batch=batch(), steps=2)
    told = [one for one in result.gradients if one.outcome != "could not tell"]
    gradients = {one.reference: (one.candidate_norm, one.reference_norm) for one in told}
    expected = gradient_norms_of_torch()
    assert {name: own for name, (_, own) in gradients.items()} == pytest.approx(
        {name: expected[name] for name in gradients}, rel=1e-4
    )
    halves = [name for name in gradients if name.split(".")[0] in ("fc1", "norm")]
    assert len(halves) >= 2
    assert ratios([gradients[name] for name in halves]) == pytest.approx([0.5] * len(halves), rel=1e-4)
    assert ratios([gradients["head.weight"]]) == pytest.approx([1.0], rel=1e-4)

    assert len(result.updates) == len(result.gradients)
    moved = {one.reference: one.reference_update for one in result.updates}
    for one in result.updates:  # both are given the reference's gradients
        if one.reference in gradients:  # the others are moved by less than their values are rounded by
            pairs = [*zip(one.candidate_update, one.reference_update, strict=True)]
            assert ratios(pairs) == pytest.approx([2.0, 2.0], rel=1e-2)
            assert one.factor > 1
    assert moved["head.weight"][0] == pytest.approx(0.1 * expected["head.weight"], rel=1e-3)
