from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from align.convert.convert_checkpoint import CastLoss, cast_loss

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "kind", "target", "lost", "rounded"),
    [
        ([1.0, NAN, 1e30, -INF, 2.5], "float32", "int32", 3, 1),
        ([-1.0, 255.0, 256.0], "float32", "uint8", 2, 0),
        ([2147483647.0, 2147483648.0, -2147483648.0], "float64", "int32", 1, 0),
        ([9223372036854775808.0, -9223372036854775808.0], "float64", "int64", 1, 0),
        ([1.0, 1e30, 65504.0, 1e-30, NAN, INF], "float32", "float16", 1, 1),
        ([1.0, 0.1, 3.4e38], "float32", "bfloat16", 1, 1),
        ([448.0, 1000.0, INF], "float32", "float8_e4m3fn", 2, 0),
        ([1.0, 0.1, 1e300], "float64", "float32", 1, 1),
        ([1.5, 2.0], "float16", "float32", 0, 0),
        ([0, 1, 300, -1], "int64", "uint8", 2, 0),
        ([-1, 1], "int8", "uint8", 1, 0),
        ([1, 2**53 + 1], "int64", "float64", 0, 1),
        ([2, 1, 0], "int32", "bool", 1, 0),
        ([NAN, 0.5, 1.0], "float32", "bool", 1, 1),
        ([True, False], "bool", "float16", 0, 0),
        ([1 + 2j, 3.0], "complex64", "float32", 1, 0),
        ([1e300, 0.1], "complex128", "complex64", 1, 1),
        ([1, 2], "int32", "complex64", 0, 0),
    ],
)
def test_each_value_that_a_cast_does_not_keep_is_counted(values, kind, target, lost, rounded) -> None:
    assert cast_loss(np.array(values, kind), target) == CastLoss(len(values), lost, rounded)


def test_bfloat16_widens_without_loss() -> None:
    assert cast_loss(np.array([[1.5, NAN, INF]], ml_dtypes.bfloat16), "float32") == CastLoss(3, 0, 0)


def test_every_block_is_counted_and_nothing_is_a_loss_in_nothing() -> None:
    assert cast_loss(np.full((3, 70_000), 1e9, np.float32), "float16") == CastLoss(210_000, 210_000, 0)
    assert cast_loss(np.empty((0, 4), np.float32), "int8") == CastLoss()
    assert cast_loss(np.array(0.1, np.float32), "float16") == CastLoss(1, 0, 1)
