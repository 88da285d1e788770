"""Training steps of torch models in wrappers: DistributedDataParallel, DataParallel, torch.compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.frameworks

WRAPPERS = ("plain", "ddp", "ddp, static graph", "ddp, unused", "data parallel", "compiled")


@pytest.fixture(autouse=True)
def one_process(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    from torch import distributed

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def batch() -> dict[str, Any]:
    """Two inputs; the label comes first, so that names must tell."""
    x, z = np.random.default_rng(0).standard_normal((2, 6, 3)).astype(np.float32)
    return {"label": np.arange(6) % 2, "x": x, "z": z}


def wrapped(model: Any, wrapper: str) -> Any:
    import torch

    ddp = torch.nn.parallel.DistributedDataParallel
    made = {
        "plain": lambda: model,
        "ddp": lambda: ddp(model),
        "ddp, static graph": lambda: ddp(model, static_graph=True),
        "ddp, unused": lambda: ddp(model, find_unused_parameters=True),
        "data parallel": lambda: torch.nn.DataParallel(model),
        "compiled": lambda: torch.compile(model, backend="eager"),
    }
    return made[wrapper]()


def side(wrapper: str, *, own_step: bool = False, summed: bool = False) -> align.Training:
    """A model with a layer that is never called, which DistributedDataParallel refuses in a second step."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other, self.norm = nn.Linear(3, 4), nn.Linear(3, 4), nn.BatchNorm1d(4)
            self.spare, self.head = nn.Linear(2, 2), nn.Linear(4, 2)

        def forward(self, x: Any, z: Any) -> Any:
            return self.head(torch.tanh(self.norm(self.one(x)) * self.other(z)))

    torch.manual_seed(0)
    model = wrapped(Net(), wrapper)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    loss = nn.CrossEntropyLoss(reduction="sum" if summed else "mean")

    def step(given: Any) -> Any:
        optimizer.zero_grad()
        value = loss(model(given["x"], given["z"]), given["label"])
        value.backward()
        optimizer.step()
        return value.detach()

    return align.Training(model, loss, optimizer, step if own_step else None)


def compared(reference: align.Training, candidate: align.Training) -> Any:
    return align.compare_training_step(reference, candidate, batch=batch(), steps=1)


@pytest.fixture(scope="module")
def unwrapped() -> Any:
    return compared(side("plain"), side("plain"))


@pytest.mark.parametrize(("wrapper", "own_step"), [*((one, False) for one in WRAPPERS[1:]), (WRAPPERS[2], True)])
def test_a_wrapper_changes_nothing_of_the_step(wrapper: str, own_step: bool, unwrapped: Any) -> None:
    result = compared(side(wrapper, own_step=own_step), side("plain"))
    assert (result.culprits, result.verdict.outcome) == ((), Outcome.ALIGNED)
    assert [one.candidate for one in result.gradients] == [one.candidate for one in unwrapped.gradients]
    assert result.losses == unwrapped.losses


def test_a_fault_in_a_wrapper_is_named_as_without_it() -> None:
    for reference, candidate in (("plain", "ddp"), ("ddp", "data parallel")):
        result = compared(side(reference), side(candidate, summed=True))
        assert [(one.part, one.cause) for one in result.culprits] == [("loss", "loss-reduction")]
        assert result.verdict.reason == "1 place is at fault: loss"


@pytest.mark.parametrize(("wrapper", "own_step"), [*((one, False) for one in WRAPPERS), (WRAPPERS[1], True)])
def test_parameters_of_a_wrapped_model_are_told_with_their_numbers(wrapper: str, own_step: bool) -> None:
    asked = align.check_parameters(side(wrapper, own_step=own_step), batch=batch(), ddp_indices=[6, 7]).asked
    names = [one.name.removeprefix("module.").removeprefix("_orig_mod.") for one in asked]
    assert names == ["spare.weight", "spare.bias"]
    assert {one.reason for one in asked} == {"its module is never called"}


def test_a_wrapped_and_a_bare_model_train_the_same() -> None:
    assert align.check_parameters(side("ddp"), side("plain"), batch=batch()).verdict.exit_code == 0
    frozen = side("plain")
    frozen.model.head.requires_grad_(False)
    unlike = align.check_parameters(side("ddp"), frozen, batch=batch()).unlike
    assert [(one.reference, one.candidate) for one in unlike] == [
        ("module.head.weight", "head.weight"),
        ("module.head.bias", "head.bias"),
    ]


def test_a_wrapper_is_left_as_it_was() -> None:
    given = side("ddp")
    before = set(vars(given.model))
    compared(given, side("plain"))
    assert set(vars(given.model)) == before
    optimizer_gradients = [one.grad for one in given.model.parameters()]
    assert optimizer_gradients == [None] * len(optimizer_gradients)
