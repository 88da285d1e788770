"""One call that makes both frameworks repeat themselves, and layers that stay as they are in training mode."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import numpy as np
import pytest

import align
from align.errors import UsageError

FRAMEWORKS = ("torch", "mindspore")


pytestmark = pytest.mark.usefixtures("settings_put_back")


def torch_drawn() -> list[Any]:
    """Initial values, a dropout mask, and what a shuffling loader gives first."""
    import torch

    layer = torch.nn.Linear(3, 3)
    masked = torch.nn.functional.dropout(torch.ones(50))
    loader = torch.utils.data.DataLoader(torch.arange(32), shuffle=True, batch_size=32)
    return [layer.weight.detach().numpy().copy(), masked.numpy().copy(), next(iter(loader)).numpy().copy()]


def mindspore_drawn() -> list[Any]:
    import mindspore

    layer = mindspore.nn.Dense(3, 3)
    masked = mindspore.ops.dropout(mindspore.ops.ones(50), 0.5, training=True)
    data = mindspore.dataset.NumpySlicesDataset(np.arange(32), shuffle=True).batch(32)
    (shuffled,) = next(data.create_tuple_iterator(output_numpy=True, num_epochs=1))
    return [layer.weight.asnumpy().copy(), masked.asnumpy().copy(), shuffled]


@pytest.mark.frameworks
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_one_seed_gives_one_run_and_another_seed_another(framework: str) -> None:
    drawn = {"torch": torch_drawn, "mindspore": mindspore_drawn}[framework]

    def after(seed: int) -> list[Any]:
        align.make_deterministic(seed)
        return [*drawn(), np.array([random.random(), np.random.random()])]

    first, again, other = after(3), after(3), after(4)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.frameworks
def test_what_was_set_is_told_and_threads_are_limited() -> None:
    import torch

    told = align.make_deterministic(5, threads=1)
    assert torch.get_num_threads() == 1
    assert torch.are_deterministic_algorithms_enabled()
    assert {one.partition(":")[0] for one in told.settings} == {"python", "numpy", "torch", "mindspore"}
    for wrong in ({"seed": -1}, {"threads": 0}):
        with pytest.raises(UsageError):
            align.make_deterministic(**wrong)


def torch_net() -> Any:
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.drop = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)
            self.attention_dropout = 0.3

        def forward(self, x: Any) -> Any:
            hidden = self.drop(self.norm(self.a(x)))
            return nn.functional.dropout(hidden, self.attention_dropout, self.training)

    torch.manual_seed(0)
    return Net()


def mindspore_net() -> Any:
    import mindspore
    from mindspore import nn

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.drop = nn.Dense(4, 8), nn.BatchNorm1d(8), nn.Dropout(p=0.5)
            self.attention_dropout = 0.3

        def construct(self, x: Any) -> Any:
            hidden = self.drop(self.norm(self.a(x)))
            return mindspore.ops.dropout(hidden, self.attention_dropout, training=self.training)

    mindspore.set_seed(0)
    return Net()


def run(model: Any, *, training: bool) -> Any:
    """What the model returns for one fixed batch, and its running mean."""
    x = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
    if hasattr(model, "construct"):
        import mindspore

        model.set_train(training)
        return model(mindspore.Tensor(x)).asnumpy(), model.norm.moving_mean.asnumpy().copy()
    import torch

    model.train(training)
    return model(torch.from_numpy(x)).detach().numpy(), model.norm.running_mean.numpy().copy()


@pytest.mark.frameworks
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_frozen_model_computes_in_training_mode_as_in_evaluation(framework: str) -> None:
    model = {"torch": torch_net, "mindspore": mindspore_net}[framework]()
    evaluated, mean = run(model, training=False)
    with align.freeze(model) as frozen:
        trained, mean_after = run(model, training=True)
    assert (frozen.batchnorm, frozen.dropout) == (("norm",), ("", "drop"))
    np.testing.assert_allclose(trained, evaluated, rtol=1e-6)
    assert np.array_equal(mean, mean_after)
    free, moved = run(model, training=True)
    assert not np.allclose(free, evaluated)
    assert not np.array_equal(moved, mean)


@pytest.mark.frameworks
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_half_is_frozen_alone(framework: str) -> None:
    model = {"torch": torch_net, "mindspore": mindspore_net}[framework]()
    mean = run(model, training=False)[1]
    with align.freeze(model, batchnorm=False) as frozen:
        first, moved = run(model, training=True)
        assert np.array_equal(first, run(model, training=True)[0])
    assert frozen.batchnorm == ()
    assert not np.array_equal(moved, mean)
    mean = run(model, training=False)[1]
    with align.freeze(model, dropout=False):
        first, held = run(model, training=True)
        assert not np.array_equal(first, run(model, training=True)[0])
    assert np.array_equal(held, mean)


@pytest.mark.frameworks
def test_a_frozen_torch_model_is_copied_and_saved_like_any_other() -> None:
    model = torch_net()
    align.freeze(model)
    for same in (copy.deepcopy(model), copy.deepcopy(model.norm)):
        same.train()
        assert not getattr(same, "norm", same).training
    assert pickle.loads(pickle.dumps(model.norm.train)).args
