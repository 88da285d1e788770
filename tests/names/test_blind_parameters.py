"""What a trial says to be blind, whatever the precision of the model, and where its gradients cannot be had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.models.open_side import open_side
from align.names.map_parameters import map_parameters
from align.names.read_layers import read_layers
from align.names.settle_by_trial import blind_parameters

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks

X = {"x": np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)}


def attention(scores: Callable[[Any], Any]) -> Any:
    """Attention of one head, then a head that is not used; its weights are drawn so that all that can show shows."""
    import torch

    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in ("q", "k", "v", "o", "unused"):
                setattr(self, name, torch.nn.Linear(8, 8))

        def forward(self, x: Any) -> Any:
            return self.o(scores(self.q(x) @ self.k(x).transpose(-1, -2) / 8) @ self.v(x))

    return Net()


def softmax(dtype: str) -> Callable[[Any], Any]:
    import torch

    return lambda scores: torch.softmax(scores, -1, dtype=getattr(torch, dtype)).to(scores)


def blind(model: Any) -> set[str]:
    side = open_side(model)
    return blind_parameters(side, read_layers(side.reader.read_parameters(model, "net")), X)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_key_bias_is_blind_also_where_the_softmax_is_coarser_than_the_copy(dtype: str) -> None:
    assert blind(attention(softmax(dtype))) == {"k.bias", "unused.weight", "unused.bias"}


def test_a_model_that_cannot_be_run_in_float64_is_seen_in_float32() -> None:
    import torch

    def scores(values: Any) -> Any:
        if values.dtype == torch.float64:
            raise RuntimeError("not implemented for 'Double'")
        return values.softmax(-1)

    assert blind(attention(scores)) == {"k.bias", "unused.weight", "unused.bias"}


def test_a_model_without_a_backward_pass_does_not_end_the_trial() -> None:
    def scores(values: Any) -> Any:
        shares = values.softmax(-1)
        return shares.clone() + shares.mul_(0)

    assert blind(attention(scores)) == set()
    result = map_parameters(attention(scores), attention(scores), inputs=X, trial=True)
    assert result.name_map.complete


def test_a_gradient_that_is_no_number_accuses_and_a_run_acquits() -> None:
    def scores(values: Any) -> Any:
        return values.softmax(-1) + (values * 0).sqrt()

    assert blind(attention(scores)) == {"unused.weight", "unused.bias"}
