"""Copies that borrow parameters compute what whole copies compute, and change nothing of the original."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from align.models.adapter_parts.torch import lent_parameters
from align.models.adapter_parts.torch.lent_parameters import GradientStream, copy_lent, is_lent

pytestmark = pytest.mark.frameworks


@pytest.fixture(autouse=True)
def everything_is_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent_parameters, "SMALLEST_LENT_BYTES", 0)


def network(dtype: str = "float32") -> Any:
    import torch
    from torch import nn

    class Network(nn.Module):
        """Parameters by name, in lists, tied, given to functions of their own and to kernels that take several."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.lstm = nn.Embedding(50, 16), nn.LSTM(16, 16, batch_first=True)
            self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
            self.scaled = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))
            self.head, self.more = nn.Linear(16, 50, bias=False), nn.ParameterList([nn.Parameter(torch.ones(16))])
            self.head.weight = self.words.weight

        def forward(self, x: Any) -> Any:
            assert next(self.parameters()).dtype == self.head.weight.dtype
            y = self.lstm(self.words(x))[0]
            y = self.scaled(self.attention(y, y, y)[0]) + self.more[0] * self.more[0]
            return self.head(y) + y @ self.words.weight.t()

    torch.manual_seed(0)
    return Network().to(getattr(torch, dtype)).eval()


def words() -> Any:
    import torch

    return torch.arange(14).reshape(2, 7)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_lent_copy_returns_what_a_whole_one_does(dtype: str) -> None:
    import torch

    model = network(dtype)
    lent, whole = copy_lent(model, "double"), copy.deepcopy(model).double()
    assert all(is_lent(one) for one in lent.parameters())
    assert lent.state_dict().keys() == whole.state_dict().keys()
    with torch.no_grad():
        assert torch.allclose(lent(words()), whole(words()), rtol=1e-12, atol=0)
        assert torch.allclose(
            copy_lent(model)(words()), model(words()), rtol=1e-2, atol=1e-1 if dtype == "bfloat16" else 0
        )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_gradient_is_that_of_a_whole_copy(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(lent_parameters, "MOST_SAVED_BYTES", 0)
    monkeypatch.setattr(lent_parameters, "SMALLEST_SPILLED_BYTES", 0)
    model, found = network(dtype), {}
    whole, lent = copy.deepcopy(model).float(), copy_lent(model, "float")
    whole(words()).sin().sum().backward()
    stream = GradientStream(lent, lambda name, gradient: found.update({name: gradient.copy()}))
    with stream.way_there():
        value = lent(words()).sin().sum()
    value.backward()
    stream.finish()
    assert found.keys() == dict(whole.named_parameters()).keys()
    for name, parameter in whole.named_parameters():
        assert np.allclose(found[name], parameter.grad.numpy(), rtol=1e-5, atol=1e-6), name


def test_a_tensor_that_the_way_back_needs_may_not_be_changed() -> None:
    import torch
    from torch import nn

    lent = copy_lent(nn.Linear(4, 4))
    stream = GradientStream(lent, lambda *_: None)
    with stream.way_there():
        y = lent(torch.ones(1, 4)).softmax(-1)
        value = (y.clone() + y.mul_(2)).sum()
    with pytest.raises(RuntimeError, match="was written into"):
        value.backward()


def test_what_a_copy_writes_into_is_its_own() -> None:
    import torch

    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for lent in (copy_lent(model), copy_lent(model, "double")):
        with torch.no_grad():
            lent.words.weight.mul_(2.0)
            lent.head.weight.data.add_(1.0)
            lent.lstm.weight_hh_l0[0] = 7.0
        assert torch.equal(lent.head.weight + 0, before["head.weight"].to(lent.head.weight.dtype) * 2 + 1)
        assert float(lent.lstm.weight_hh_l0[0, 0]) == 7.0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
