"""Tensors are known again with their axes in another order; a transposed one is laid out anew, never cut otherwise."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from align.names.equal_values import agree, laid_as, see_tensor

RNG = np.random.default_rng(0)
TENSOR = RNG.standard_normal((2, 3, 5)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, ml_dtypes.bfloat16])
def test_a_tensor_is_known_again_with_its_axes_in_another_order(dtype: type) -> None:
    tensor = (10 * TENSOR).astype(dtype)
    assert agree([see_tensor(tensor)], [see_tensor(tensor.transpose(0, 2, 1))])
    assert agree([see_tensor(tensor)], [see_tensor(tensor[:, :, None])])


def test_another_tensor_of_one_distribution_or_another_order_in_one_shape_is_not_the_same() -> None:
    other = RNG.standard_normal((2, 5, 3)).astype(np.float32)
    assert not agree([see_tensor(TENSOR)], [see_tensor(other)])
    assert not agree([see_tensor(TENSOR)], [see_tensor(TENSOR[::-1])])


def test_a_mask_has_no_order() -> None:
    assert agree([see_tensor(TENSOR > 0)], [see_tensor(TENSOR > 0)])


def test_a_transposed_tensor_is_laid_out_where_lengths_tell_how() -> None:
    laid = laid_as(TENSOR, (2, 1, 5, 3))
    assert laid is not None
    assert np.array_equal(laid[:, 0], TENSOR.transpose(0, 2, 1))
    joined = laid_as(TENSOR, (2, 15))
    assert joined is not None
    assert np.array_equal(joined, TENSOR.reshape(2, 15))
    assert laid_as(TENSOR, (4, 5)) is None
    assert laid_as(np.zeros((2, 2, 3)), (2, 3, 2)) is None
