"""Training steps under autocast: rounding of half precision is told as such, a fault beneath it is still named."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from step_nets import batch, mindspore_side, torch_side

import align
from align.core.verdicts import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks


def torch_autocast(dtype: str = "bfloat16", net: str = "mlp", loss: Any = None, behind: Any = None) -> align.Training:
    """Parameters stay in float32, and so does what the model returns."""
    import torch

    side = torch_side(net)

    class Autocast(type(side.model)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            with torch.autocast("cpu", dtype=getattr(torch, dtype)):
                return super().forward(x).float()

    side.model.__class__ = Autocast
    if behind is not None:
        side.model.fc2.register_forward_hook(lambda _layer, _given, returned: behind(returned))
    return replace(side, loss=loss or side.loss)


def mindspore_mixed(level: str, **options: Any) -> align.Training:
    """`to_float` for the whole network, or a level of MindSpore's amp."""
    import mindspore

    side = mindspore_side(**options)
    whole = side.loss
    if level == "to_float":
        side.model.to_float(mindspore.float16)
    model = (
        side.model if level == "to_float" else mindspore.amp.auto_mixed_precision(side.model, level, mindspore.float16)
    )
    return replace(side, model=model, loss=lambda outputs, label: whole(outputs.astype(mindspore.float32), label))


def compared(reference: align.Training, candidate: align.Training) -> Any:
    return align.compare_training_step(reference, candidate, batch=batch(), steps=1)


def precisions(result: Any) -> list[tuple[str, Any, Any]]:
    """What is told of precision: how gravely, of which side, which dtype."""
    return [
        (one.severity, one.facts["side"], one.facts["dtype"])
        for one in result.findings
        if one.code.startswith("computes-in-")
    ]


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda: torch_autocast("bfloat16"), "bfloat16"),
        (lambda: torch_autocast("float16", "resnet"), "float16"),
        (lambda: mindspore_mixed("to_float"), "float16"),
        (lambda: mindspore_mixed("auto"), "float16"),
    ],
)
def test_rounding_of_half_precision_is_no_fault_and_is_told(make: Callable[[], align.Training], dtype: str) -> None:
    candidate = make()
    net = next(
        (one for one in ("resnet", "encoder") if one in type(candidate.model).__mro__[1].__name__.lower()), "mlp"
    )
    result = compared(torch_side(net), candidate)
    assert [(one.kind, one.candidate, one.cause) for one in result.culprits] == []
    assert result.verdict.outcome is Outcome.ALIGNED
    assert precisions(result) == [("warning", "candidate", dtype)]


def test_the_reference_may_be_the_coarser_side() -> None:
    result = compared(torch_autocast(), mindspore_side())
    assert result.verdict.outcome is Outcome.ALIGNED
    assert precisions(result) == [("warning", "reference", "bfloat16")]


def test_equal_precision_is_a_note() -> None:
    both = precisions(compared(torch_autocast(), torch_autocast()))
    assert both == [("note", "reference", "bfloat16"), ("note", "candidate", "bfloat16")]


def test_a_fault_far_above_the_rounding_is_named_at_its_place() -> None:
    def halved(value: Any) -> Any:
        return 0.5 * value + 0.5 * value.detach()

    (culprit,) = compared(torch_side(), torch_autocast(behind=halved)).culprits
    assert (culprit.kind, culprit.candidate, culprit.cause) == ("backward", "fc2", "gradient-factor")
    assert culprit.facts["factor"] == pytest.approx(0.5, rel=0.03)


def test_a_wrong_loss_and_a_wrong_momentum_are_named_in_half_precision_too() -> None:
    import torch
    from mindspore import nn

    summed = torch_autocast(loss=torch.nn.CrossEntropyLoss(reduction="sum"))
    assert [(one.part, one.cause) for one in compared(torch_side(), summed).culprits] == [("loss", "loss-reduction")]

    def change(model: Any) -> None:
        model.norm = nn.BatchNorm1d(24, momentum=0.1)

    (culprit,) = compared(torch_side(), mindspore_mixed("to_float", change=change)).culprits
    assert (culprit.kind, culprit.candidate) == ("buffer", "norm")
    assert culprit.cause == "statistics-momentum-swapped"


def test_one_layer_in_half_precision_is_no_excuse_for_another() -> None:
    import torch

    def with_half_head(scale: float) -> align.Training:
        side = torch_side()
        forward, act = side.model.head.forward, side.model.act.forward

        def head(x: Any) -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return forward(x).float()

        side.model.head.forward = head
        side.model.act.forward = lambda x: scale * act(x) + (1 - scale) * act(x).detach()
        return side

    assert compared(torch_side(), with_half_head(1.0)).culprits == ()
    (culprit,) = compared(torch_side(), with_half_head(0.999)).culprits
    assert (culprit.kind, culprit.candidate) == ("backward", "act")
