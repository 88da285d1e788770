"""What is wrong on the way forth inside of a step is explained as a comparison of both models alone explains it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import align

torch = pytest.importorskip("torch")
F = torch.nn.functional
generator = np.random.default_rng(0)
BATCH = {
    "x": generator.standard_normal((12, 8)).astype(np.float32),
    "label": generator.integers(0, 4, 12),
}


class Net(torch.nn.Module):
    """A net with code between its layers, in which a port may err."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fault = fault
        self.first, self.second, self.last = (torch.nn.Linear(*sizes) for sizes in ((8, 16), (16, 16), (16, 4)))

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        y = F.gelu(y, approximate="tanh" if self.fault == "gelu" else "none")
        z = self.second(y)
        z = z / 16 if self.fault == "scale" else z / 4
        if self.fault == "stopped":
            y = y.detach()
        return self.last(z + y)


def training(fault: str) -> align.Training:
    model = Net(fault)
    return align.Training(model, torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1))


@pytest.mark.parametrize(("fault", "function"), [("gelu", "gelu"), ("scale", "truediv")])
def test_code_between_layers_is_taken_apart(fault: str, function: str) -> None:
    (culprit,) = align.compare_training_step(training(""), training(fault), batch=BATCH, steps=1).culprits
    assert (culprit.kind, culprit.part) == ("forward", "code")
    assert culprit.cause or (culprit.inside is not None and culprit.inside.function == function)
    assert culprit.sureness != "unknown" or culprit.inside is not None


def test_right_code_has_no_culprit_and_models_are_left_as_they_were() -> None:
    mine, theirs = training(""), training("gelu")
    before = {name: value.clone() for name, value in theirs.model.state_dict().items()}
    assert align.compare_training_step(mine, training(""), batch=BATCH, steps=1).culprits == ()
    assert align.compare_training_step(mine, theirs, batch=BATCH, steps=1).culprits
    assert all(torch.equal(before[name], value) for name, value in theirs.model.state_dict().items())


def test_what_comes_back_wrong_is_still_named_where_all_is_right_on_the_way_forth() -> None:
    culprits = align.compare_training_step(training(""), training("stopped"), batch=BATCH, steps=1).culprits
    assert culprits
    assert {one.kind for one in culprits} == {"backward"}
    assert all(stops_at(one.line) for one in culprits if one.part == "code")


def stops_at(place: str) -> bool:
    """Tell whether a place is the line that detaches."""
    path, _, number = place.rpartition(":")
    return (
        Path(path).name == Path(__file__).name
        and "detach()" in Path(__file__).read_text().splitlines()[int(number) - 1]
    )


def pair_of_nets(held: bool) -> align.Training:
    """Two nets with an optimizer each; the second is trained through the first, behind that one's update."""
    torch.manual_seed(0)
    nets = torch.nn.ModuleDict({"critic": torch.nn.Linear(8, 4), "painter": torch.nn.Linear(8, 8)})
    critic, painter = nets["critic"], nets["painter"]
    own = [*critic.parameters()] if held else [critic.weight]
    optimizers = (torch.optim.SGD(own, 0.5), torch.optim.SGD(painter.parameters(), 0.5))

    def step(batch: Any) -> Any:
        for one in optimizers:
            one.zero_grad()
        first = F.cross_entropy(critic(batch["x"]), batch["label"])
        first.backward()
        optimizers[0].step()
        optimizers[1].zero_grad()
        second = F.cross_entropy(critic(painter(batch["x"])), batch["label"])
        second.backward()
        optimizers[1].step()
        return (first + second).detach()

    return align.Training(nets, None, optimizers, step)


def test_what_runs_behind_an_update_is_given_what_the_reference_has_there() -> None:
    assert align.compare_training_step(pair_of_nets(True), pair_of_nets(True), batch=BATCH, steps=2).culprits == ()
    (culprit,) = align.compare_training_step(pair_of_nets(True), pair_of_nets(False), batch=BATCH, steps=2).culprits
    assert (culprit.cause, culprit.parameters) == ("in-no-optimizer", ("critic.bias",))
