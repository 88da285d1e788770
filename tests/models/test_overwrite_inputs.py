"""Values are written to the very tensors that a call is given, but never to what belongs to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.models.user_code import Overwriter

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks


@pytest.fixture
def torch() -> Any:
    import torch

    with torch.no_grad():
        yield torch


@pytest.fixture
def mindspore() -> Any:
    import mindspore

    return mindspore


def written(overwrite: Overwriter, tensor: Any, value: Any) -> bool:
    """Write; whoever gets the tensor sees the value either way. Tell whether the tensor itself was written to."""
    given = overwrite(tensor, value)
    assert given is tensor or given is value
    np.testing.assert_array_equal(given.numpy(), value.numpy())
    return given is tensor


def test_who_else_holds_a_torch_tensor_has_the_new_value_too(torch: Any) -> None:
    overwrite, whole = Overwriter(lambda: ()), torch.zeros(2, 3, 4)
    assert written(overwrite, whole.view(6, 4), torch.ones(6, 4))
    assert whole.sum() == 24
    assert written(overwrite, whole.permute(1, 0, 2), torch.arange(24.0).reshape(3, 2, 4))  # as in a residual stream
    torch.testing.assert_close(whole, torch.arange(24.0).reshape(3, 2, 4).permute(1, 0, 2))
    assert written(overwrite, torch.tensor(1.0), torch.tensor(2.0))
    assert written(overwrite, torch.zeros(2, requires_grad=True), torch.ones(2))


TORCH_KEPT: dict[str, Callable[[Any, Any], Any]] = {
    "parameter": lambda weight, _: weight,
    "part of a parameter": lambda weight, _: weight[1:],
    "transposed parameter": lambda weight, _: weight.t(),
    "detached parameter": lambda weight, _: weight.detach(),
    "buffer": lambda _, buffer: buffer,
    "expanded buffer": lambda _, buffer: buffer.expand(5, 3),
}


@pytest.mark.parametrize("name", TORCH_KEPT)
def test_what_belongs_to_a_torch_model_is_never_written(torch: Any, name: str) -> None:
    model = torch.nn.Linear(3, 3)
    model.register_buffer("table", torch.arange(3.0))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    tensor = TORCH_KEPT[name](model.weight, model.table)
    overwrite = Overwriter(lambda: (*model.parameters(), *model.buffers()))
    assert not written(overwrite, tensor, torch.full(tuple(tensor.shape), 7.0))
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


def test_torch_tensors_in_which_one_place_is_several_elements_are_not_written(torch: Any) -> None:
    overwrite, row, values = Overwriter(lambda: ()), torch.zeros(1, 3), torch.zeros(10)
    assert not written(overwrite, row.expand(5, 3), torch.rand(5, 3))
    assert not written(overwrite, values.unfold(0, 3, 1), torch.rand(8, 3))
    assert row.abs().sum() == values.abs().sum() == 0
    assert written(overwrite, values.unfold(0, 5, 5), torch.rand(2, 5))  # windows that lie beside each other


def test_torch_tensors_of_inference_mode_are_not_written(torch: Any) -> None:
    with torch.inference_mode():
        tensor = torch.zeros(3)
    assert not written(Overwriter(lambda: ()), tensor, torch.ones(3))


def test_a_value_of_another_shape_is_never_broadcast(torch: Any) -> None:
    tensor = torch.zeros(2, 3)
    assert not written(Overwriter(lambda: ()), tensor, torch.ones(3))
    assert tensor.sum() == 0


def test_who_else_holds_a_mindspore_tensor_has_the_new_value_too(mindspore: Any) -> None:
    tensor = mindspore.Tensor(np.zeros((2, 3), np.float32))
    other = tensor.view(6)
    assert written(Overwriter(lambda: ()), tensor, mindspore.Tensor(np.ones((2, 3), np.float32)))
    np.testing.assert_array_equal(other.asnumpy(), np.ones(6))


MINDSPORE_KEPT: dict[str, Callable[[Any], Any]] = {
    "parameter": lambda weight: weight,
    "part of a parameter": lambda weight: weight[1:],
    "reshaped parameter": lambda weight: weight.view(16),
    "transposed parameter": lambda weight: weight.swapaxes(0, 1),
}


@pytest.mark.parametrize("name", MINDSPORE_KEPT)
def test_what_belongs_to_a_mindspore_network_is_never_written(mindspore: Any, name: str) -> None:
    weight = mindspore.Parameter(mindspore.Tensor(np.arange(16, dtype=np.float32).reshape(4, 4)), name="weight")
    tensor = MINDSPORE_KEPT[name](weight)
    value = mindspore.Tensor(np.full(tuple(tensor.shape), 7, np.float32))
    assert not written(Overwriter(lambda: [weight]), tensor, value)
    np.testing.assert_array_equal(weight.asnumpy(), np.arange(16).reshape(4, 4))


def test_mindspore_tensors_in_which_one_place_is_several_elements_are_not_written(mindspore: Any) -> None:
    row = mindspore.Tensor(np.zeros((1, 3), np.float32))
    expanded = mindspore.ops.broadcast_to(row, (5, 3))
    written(Overwriter(lambda: ()), expanded, mindspore.Tensor(np.ones((5, 3), np.float32)))
    np.testing.assert_array_equal(row.asnumpy(), np.zeros((1, 3)))


def test_mindspore_views_that_are_not_contiguous_are_left_alone(mindspore: Any) -> None:
    """A write to one would land at other places."""
    whole = mindspore.Tensor(np.zeros((2, 3), np.float32))
    view = mindspore.mint.transpose(whole, 0, 1)
    value = mindspore.Tensor(np.arange(6, dtype=np.float32).reshape(3, 2))
    assert not written(Overwriter(lambda: ()), view, value)
    np.testing.assert_array_equal(whole.asnumpy(), np.zeros((2, 3)))
