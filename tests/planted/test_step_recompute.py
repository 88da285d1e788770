"""Training steps with activation checkpointing: layers that run again on the way back are no other layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import step_nets
from step_nets import batch

import align

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks


def torch_side(recompute: str = "", **found: Any) -> align.Training:
    """A stem and a block; the block, or with "all" the stem too, is checkpointed."""
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.norm = nn.Linear(12, 12), nn.BatchNorm1d(12, momentum=found.get("momentum", 0.1))

        def forward(self, x: Any) -> Any:
            return x + torch.tanh(self.norm(self.fc(x)))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.block, self.head = nn.Linear(64, 12), Block(), nn.Linear(12, 10)

        def body(self, x: Any) -> Any:
            return self.block(self.stem(x))

        def forward(self, x: Any) -> Any:
            x = x.reshape(-1, 64)
            if not recompute:
                return self.head(self.body(x))
            reentrant = "reentrant" in recompute
            if "all" in recompute:
                return self.head(checkpoint(self.body, x, use_reentrant=reentrant))
            return self.head(checkpoint(self.block, self.stem(x), use_reentrant=reentrant))

    torch.manual_seed(0)
    model = Net()
    return align.Training(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))


def mindspore_side(recompute: str = "", *, momentum: float = 0.9, halved: bool = False) -> align.Training:
    import mindspore
    from mindspore import nn, ops

    class Block(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.norm = nn.Dense(12, 12), nn.BatchNorm1d(12, momentum=momentum)

        def construct(self, x: Any) -> Any:
            hidden = ops.tanh(self.norm(self.fc(x)))
            return x + (0.5 * hidden + ops.stop_gradient(0.5 * hidden) if halved else hidden)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.block, self.head = nn.Dense(64, 12), Block(), nn.Dense(12, 10)

        def construct(self, x: Any) -> Any:
            hidden = self.stem(x.reshape(-1, 64))
            called = mindspore.recompute(self.block, hidden) if recompute == "function" else self.block(hidden)
            return self.head(called)

    model = Net()
    if recompute in ("cell", "cell, reentrant"):
        model.block.recompute(use_reentrant=recompute == "cell, reentrant")
    optimizer = nn.Momentum(model.trainable_params(), 0.1, 0.9)
    return align.Training(model, nn.CrossEntropyLoss(), optimizer)


def compared(reference: align.Training, candidate: align.Training) -> Any:
    return align.compare_training_step(reference, candidate, batch=batch(), steps=1)


def causes(result: Any) -> list[tuple[str, str, str, Any]]:
    return [(one.kind, one.candidate, one.cause, one.facts.get("side")) for one in result.culprits]


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [("block", "cell"), ("block, reentrant", "cell, reentrant")],
)
def test_both_sides_that_recompute_are_aligned(reference: str, candidate: str) -> None:
    result = compared(torch_side(reference), mindspore_side(candidate))
    assert causes(result) == []
    assert {one.call for one in result.layers} == {0}
    assert "noise-unmeasured" not in [one.code for one in result.findings]


@pytest.mark.parametrize(
    ("make", "recompute"),
    [
        (torch_side, "block"),
        (torch_side, "block, reentrant"),
        (mindspore_side, "cell"),
        (mindspore_side, "cell, reentrant"),
        (mindspore_side, "function"),
    ],
)
def test_statistics_that_one_side_updates_twice_are_named_as_that(
    make: Callable[[str], align.Training], recompute: str
) -> None:
    expected = ("buffer", "block.norm", "statistics-updated-twice")
    assert causes(compared(torch_side(), make(recompute))) == [(*expected, "candidate")]


def test_the_reference_may_be_the_one_that_updates_twice() -> None:
    found = causes(compared(torch_side("block, reentrant"), mindspore_side()))
    assert found == [("buffer", "block.norm", "statistics-updated-twice", "reference")]


def test_another_momentum_is_still_another_momentum() -> None:
    found = causes(compared(torch_side("block"), mindspore_side("cell", momentum=0.8)))
    assert found == [("buffer", "block.norm", "statistics-momentum", None)]


def test_a_fault_in_a_recomputed_block_is_found_at_its_place_and_the_side_left_as_it_was() -> None:
    from torch.utils import checkpoint

    before, port = dict(vars(checkpoint)), mindspore_side("cell, reentrant", halved=True)
    paths = [path for path, _ in port.model.cells_and_names()]
    found = causes(compared(torch_side("block"), port))
    assert found == [("backward", "block", "gradient-factor", None)]
    assert [path for path, _ in port.model.cells_and_names()] == paths
    assert vars(checkpoint) == before


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
def test_a_checkpoint_that_cuts_the_way_back_is_named() -> None:
    (culprit,) = [one for one in compared(torch_side(), torch_side("all, reentrant")).culprits if one.kind != "buffer"]
    assert (culprit.cause, culprit.facts) == ("checkpoint-cuts-gradient", {"side": "candidate"})
    assert "stem.weight" in culprit.parameters
    assert "head.weight" not in culprit.parameters
    assert causes(compared(torch_side("all"), torch_side("all"))) == []
    (side,) = align.check_parameters(torch_side("all, reentrant"), batch=batch()).sides
    states = {one.name: one.state for one in side.parameters}
    assert (states["stem.weight"], states["head.weight"]) == ("no gradient", "trained")


def test_attributes_of_containers_may_be_set_meanwhile() -> None:
    """MindSpore's containers ask at each attribute whether it is a cell that is recomputed."""
    from mindspore import nn

    def counted(net: Any, value: Any) -> Any:
        net.blocks.calls = 1
        return net.blocks(value)

    def add(model: Any) -> None:
        model.blocks = nn.SequentialCell(nn.Identity())

    result = compared(step_nets.torch_side(), step_nets.mindspore_side(between=counted, change=add))
    assert causes(result) == []
