"""How much outputs depend on parameters, by gradient: against the true slope, at every precision, and where none is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.load_code import model_readers

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.traces import Influences

pytestmark = pytest.mark.frameworks

X = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
IDS = np.arange(6).reshape(2, 3)


def net(forward: Callable[[Any, Any], Any], **layers: Any) -> Any:
    """A torch model with these layers, or square linear ones `a` and `b`."""
    import torch

    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, layer in (layers or {n: torch.nn.Linear(8, 8) for n in "ab"}).items():
                setattr(self, name, layer)

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    return Net()


def told(model: Any, x: Any = X) -> Influences | None:
    found: Influences | None = model_readers()["torch"].influences(model, {"x": x})  # type: ignore[attr-defined]
    return found


def shares(model: Any, x: Any = X) -> dict[str, float]:
    found = told(model, x)
    assert found is not None
    return found.shares


def test_a_share_is_the_change_that_a_change_of_the_parameters_size_makes() -> None:
    """Of a linear layer without bias a random change E of the weight gives x E: |x| sqrt(8) times the size of E."""
    import torch

    model = net(lambda self, x: self.a(x), a=torch.nn.Linear(8, 8, bias=False))
    weight = model.a.weight.detach().numpy()
    true = np.sqrt(np.square(weight).mean()) * np.linalg.norm(X) * math.sqrt(8) / np.linalg.norm(X @ weight.T)
    assert shares(model)["a.weight"] == pytest.approx(true, rel=0.3)  # one draw of the mix of outputs


def attention(softmax: Callable[[Any], Any]) -> Any:
    import torch

    def forward(self: Any, x: Any) -> Any:
        return softmax(self.q(x) @ self.k(x).transpose(-1, -2)) @ self.v(x)

    model = net(forward, **{name: torch.nn.Linear(8, 8) for name in "qkv"})
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_the_key_bias_is_below_the_noise_at_whatever_precision_the_softmax_is(dtype: str) -> None:
    import torch

    found = told(attention(lambda scores: torch.softmax(scores, -1, dtype=getattr(torch, dtype)).to(scores)))
    assert found is not None
    assert {name for name, share in found.shares.items() if share < found.noise} == {"k.bias"}
    assert found.noise >= 10 * torch.finfo(getattr(torch, dtype)).eps


def test_inputs_and_tables_of_a_coarse_dtype_are_no_noise() -> None:
    import torch

    found = told(net(lambda self, x: self.b(self.a(x.half().to(self.a.weight)) + torch.zeros(8))))
    assert found is not None
    assert found.noise < 1e-8


def test_a_model_that_cannot_run_in_float64_is_differentiated_in_float32() -> None:
    import torch

    def forward(self: Any, x: Any) -> Any:
        if x.dtype == torch.float64:
            raise RuntimeError("not implemented for 'Double'")
        return self.b(self.a(x).tanh())

    found = told(net(forward).half())
    assert found is not None
    assert min(found.shares.values()) > found.noise > 1e-6
    assert {parameter.dtype for parameter in found.model.parameters()} == {torch.float32}


def in_place(self: Any, x: Any) -> Any:
    y = self.a(x).sigmoid()
    return self.b(y) + y.mul_(2)


def uncopyable(self: Any, x: Any) -> Any:
    return self.a(x)


@pytest.mark.parametrize("forward", [in_place, uncopyable])
def test_a_model_without_a_backward_pass_or_a_copy_tells_nothing(forward: Any) -> None:
    import threading

    model = net(forward)
    if forward is uncopyable:
        model.lock = threading.Lock()
    assert told(model) is None


def test_operations_in_place_that_autograd_bears_are_borne() -> None:
    import torch

    model = net(lambda self, x: self.b(self.act(self.a(x)).add_(0)), a=torch.nn.Linear(8, 8), act=torch.nn.ELU(1, True),
                b=torch.nn.Linear(8, 8))  # fmt: skip
    assert told(model) is None
    model = net(lambda self, x: self.b(self.a(x).add_(1).mul_(2)))
    assert min(shares(model).values()) > 1e-3


def test_integer_inputs_and_outputs_of_many_kinds_are_differentiated() -> None:
    import torch

    model = net(
        lambda self, ids: {"fft": torch.fft.rfft(self.f(self.e(ids))), "id": self.e(ids).argmax(-1), "n": 3},
        e=torch.nn.Embedding(9, 8),
        f=torch.nn.Linear(8, 4),
    )
    assert min(shares(model, IDS).values()) > 1e-3


def test_half_precision_outputs_that_sum_to_more_than_their_dtype_holds_are_differentiated() -> None:
    found = shares(net(lambda self, x: (self.a(x) * 30000).half()))
    assert found["a.weight"] > 1e-3


def test_no_gradient_no_number_and_no_size_are_no_share() -> None:
    import torch

    assert set(shares(net(lambda self, x: self.b(self.a(x)).argmax(-1))).values()) == {0.0}
    assert shares(net(lambda self, x: self.b(self.a(x).detach())))["a.weight"] == 0.0
    assert set(shares(net(lambda self, x: self.b(self.a(x).abs().neg().log()))).values()) == {0.0}
    rooted = shares(net(lambda self, x: self.a(x) + (self.b(x) * 0).sqrt()))
    assert rooted["b.weight"] == 0.0 < rooted["a.weight"]
    zero = net(lambda self, x: self.a(x))
    torch.nn.init.zeros_(zero.a.weight)
    torch.nn.init.zeros_(zero.a.bias)
    assert set(shares(zero).values()) == {0.0}


def test_frozen_parameters_count_and_the_users_model_is_left_alone() -> None:
    import torch

    model = net(lambda self, x: self.b(self.a(x)))
    model.a.requires_grad_(False)
    model.b.weight.grad = torch.ones(8, 8)
    state = torch.get_rng_state()
    found = told(model.train())
    assert found is not None
    assert min(found.shares.values()) > 1e-3
    assert [p.requires_grad for p in model.parameters()] == [False, False, True, True]
    assert bool(model.b.weight.grad.eq(1).all())
    assert model.a.weight.dtype == torch.float32
    assert model.training
    assert torch.equal(state, torch.get_rng_state())
