"""What does not give the same twice is found, with its place and likely cause; in both frameworks, with clean twins."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome
from align.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.frameworks, pytest.mark.usefixtures("settings_put_back")]

FRAMEWORKS = ("torch", "mindspore")


def batch() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {"x": generator.standard_normal((8, 6)).astype(np.float32), "label": np.arange(8) % 3}


def torch_training(noise: Callable[[Any, Any], Any] | None = None) -> align.Training:
    """A net with BatchNorm and dropout, trained with momentum; `noise(model, hidden)` stands in the middle of it."""
    import torch
    from torch import nn

    class Noise(nn.Module):
        def forward(self, hidden: Any) -> Any:
            return hidden if noise is None else noise(self, hidden)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm, self.drop = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.3)
            self.noise, self.head = Noise(), nn.Linear(16, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.noise(self.drop(self.norm(self.stem(x)))))

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return align.Training(model, nn.CrossEntropyLoss(), optimizer)


def mindspore_training(noise: Callable[[Any, Any], Any] | None = None) -> align.Training:
    from mindspore import nn

    class Noise(nn.Cell):
        def construct(self, hidden: Any) -> Any:
            return hidden if noise is None else noise(self, hidden)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm, self.drop = nn.Dense(6, 16), nn.BatchNorm1d(16), nn.Dropout(p=0.3)
            self.noise, self.head = Noise(), nn.Dense(16, 3)

        def construct(self, x: Any) -> Any:
            return self.head(self.noise(self.drop(self.norm(self.stem(x)))))

    model = Net()
    return align.Training(model, nn.CrossEntropyLoss(), nn.Momentum(model.trainable_params(), 0.1, 0.9))


TRAININGS = {"torch": torch_training, "mindspore": mindspore_training}


def side_of(given: align.Training, **options: Any) -> Any:
    result = align.check_determinism(given, batch=batch(), **options)
    return result, result.sides[0]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_clean_step_is_the_same_bit_for_bit_and_leaves_the_side_as_it_was(framework: str) -> None:
    given = TRAININGS[framework]()
    result, side = side_of(given, seed=3, threads=1)
    assert (result.verdict.outcome, side.first, side.cause) == (Outcome.ALIGNED, None, "")
    counts = {one.part: one.tensors for one in side.parts}
    assert {"input", "output", "loss", "gradient", "parameter", "buffer"} == set(counts)
    assert (counts["loss"], counts["gradient"], counts["output"]) == (1, 6, 6)
    assert counts["buffer"] >= 2
    again, _ = side_of(given, seed=3, threads=1)
    assert again.verdict == result.verdict


def from_generator(rng: Any) -> Callable[[Any, Any], Any]:
    def noise(module: Any, hidden: Any) -> Any:
        return hidden * float(rng.random() + 1.0)

    return noise


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState, random.Random], ids=str)
def test_a_generator_of_its_own_is_named_at_its_layer(framework: str, make: Any) -> None:
    result, side = side_of(TRAININGS[framework](from_generator(make(0))))
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert (side.first.part, side.first.name) == ("output", "noise#0")
    assert side.first.max_abs > 0.001
    assert side.cause == "own generator"
    assert "rng" in side.reason


def test_generators_of_the_frameworks_are_named_too() -> None:
    import mindspore
    import torch

    own = torch.Generator()

    def drawn(module: Any, hidden: Any) -> Any:
        return hidden + torch.rand(1, generator=own)

    assert "own (torch Generator)" in side_of(torch_training(drawn))[1].reason
    ours = mindspore.Generator().manual_seed(1)

    def drawn_there(module: Any, hidden: Any) -> Any:
        ours.manual_seed(ours.initial_seed() + 1)  # another one in each run, never by chance the same
        return hidden + float(ours.initial_seed())

    assert "ours (mindspore Generator)" in side_of(mindspore_training(drawn_there))[1].reason


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_draws_from_the_common_generators_are_put_back(framework: str) -> None:
    """Python's and NumPy's own functions, and the framework's, start where the step starts."""

    def noise(module: Any, hidden: Any) -> Any:
        return hidden * (random.random() + float(np.random.random()))

    assert side_of(TRAININGS[framework](noise))[0].verdict.outcome is Outcome.ALIGNED


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_is_rounding_only_is_told_from_draws(framework: str) -> None:
    """Each call adds in another order: the difference stays in the last places."""
    calls = [0]

    def noise(module: Any, hidden: Any) -> Any:
        calls[0] += 1
        return hidden if calls[0] % 2 else (hidden * 3.0) / 3.0

    result, side = side_of(TRAININGS[framework](noise))
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert (side.first.name, side.first.rounding, side.cause) == ("noise#0", True, "order of sums")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_loss_is_where_a_loss_differs(framework: str) -> None:
    given = TRAININGS[framework]()
    rng, plain = np.random.default_rng(), given.loss

    def loss(outputs: Any, label: Any) -> Any:
        return plain(outputs, label) * float(1.0 + rng.random())

    _, side = side_of(align.Training(given.model, loss, given.optimizer))
    assert (side.first.part, side.cause) == ("loss", "own generator")
    assert "loss.rng" in side.reason
    differing = {one.part: one.differing for one in side.parts}
    assert (differing["output"], differing["gradient"], differing["buffer"]) == (0, 6, 0)


FACTORIES = """
import os

import numpy as np

def batch():
    return {"x": np.ones((4, 3), np.float32) * np.arange(4, dtype=np.float32)[:, None], "label": np.arange(4) % 2}

def net(noise=None):
    import torch

    class Noise(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rng, self.calls = np.random.default_rng(0), np.zeros(1)

        def forward(self, x):
            return x if noise is None else noise(self, x)

    model = torch.nn.Sequential(torch.nn.Linear(3, 5), Noise(), torch.nn.Linear(5, 2))
    return model, torch.nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters())

def clean():
    return net()

def seeded():
    return net(lambda own, x: x + float(own.rng.random()))

def counting():
    def noise(own, x):
        own.calls += 1
        return x * float(own.calls[0])

    return net(noise)

def entropy():
    return net(lambda own, x: x + int.from_bytes(os.urandom(4), 'big') / 2**31)

def unseeded():
    import torch

    model, loss, optimizer = net()
    with torch.no_grad():
        model[2].weight.copy_(torch.from_numpy(np.random.default_rng().standard_normal((2, 5))))
    return model, loss, optimizer

KEPT = []

def cached():
    if not KEPT:
        KEPT.append(net())
    return KEPT[0]

def port():
    import mindspore
    from mindspore import nn

    model = nn.SequentialCell(nn.Dense(3, 5), nn.Dropout(p=0.5), nn.Dense(5, 2))
    return model, nn.CrossEntropyLoss(), nn.Adam(model.trainable_params())
"""


@pytest.mark.parametrize(
    ("function", "builds", "cause", "told"),
    [
        ("clean", "same", "", ""),
        ("port", "same", "", ""),
        ("seeded", "same", "own generator", "two builds give the same"),
        ("counting", "same", "kept state", "two builds agree"),
        ("unseeded", "differ", "initial values", "no seed controls"),
        ("cached", "one object", "", ""),
    ],
)
def test_a_side_that_is_built_is_built_twice(
    function: str, builds: str, cause: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(FACTORIES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    result = align.check_determinism(f"train.py:{function}", batch="train.py:batch")
    (side,) = result.sides
    assert (side.builds, side.cause) == (builds, cause)
    assert told in side.reason
    assert (result.verdict.outcome is Outcome.ALIGNED) == (not cause)
    assert bool(result.verdict.caveats) == (builds == "one object")
    if function == "unseeded":
        assert (side.first.part, side.first.name) == ("initial value", "2.weight")


def test_two_sides_of_one_framework_are_built_from_the_same_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(FACTORIES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for function in ("clean", "port"):
        result = align.check_determinism(f"train.py:{function}", f"train.py:{function}", batch="train.py:batch")
        assert result.verdict.outcome is Outcome.ALIGNED
        assert [side.builds for side in result.sides] == ["same", "same"]


def test_a_generator_in_an_object_of_the_users_is_found() -> None:
    class Sampler:
        def __init__(self) -> None:
            self.rng = np.random.default_rng(0)

    given = torch_training(lambda module, hidden: hidden + float(module.sampler.rng.random()))
    given.model.noise.sampler = Sampler()
    assert "noise.sampler.rng (numpy Generator)" in side_of(given)[1].reason


def test_what_no_seed_reaches_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(FACTORIES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (side,) = align.check_determinism("train.py:entropy", batch="train.py:batch").sides
    assert (side.builds, side.cause, side.first.name) == ("same", "unseeded", "1#0")


def test_two_sides_are_each_held_against_themselves() -> None:
    result = align.check_determinism(
        torch_training(), mindspore_training(from_generator(np.random.default_rng())), batch=batch()
    )
    assert [side.cause for side in result.sides] == ["", "own generator"]
    assert result.verdict.outcome is Outcome.NOT_ALIGNED


def test_an_operation_without_a_deterministic_kernel_is_told() -> None:
    import torch

    def noise(module: Any, hidden: Any) -> Any:
        flat = torch.zeros(4).put_(torch.tensor([0, 1]), torch.ones(2))
        return hidden + flat.sum()

    result, side = side_of(torch_training(noise))
    assert [one.code for one in result.findings] == ["no-deterministic-kernel"]
    assert "put_" in result.findings[0].message
    assert side.first is None


def test_a_seed_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError):
        align.check_determinism(torch_training(), batch=batch(), seed=-1)


def test_a_model_without_parameters_is_run_too() -> None:
    import torch

    class Squares(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return (x * x).sum()

    result = align.check_determinism(align.Training(Squares()), batch={"x": np.ones(3, np.float32)})
    assert result.verdict.outcome is Outcome.ALIGNED
