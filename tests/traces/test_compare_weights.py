"""Paired parameters that hold other values are named, in the target's dtype and after their transform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from align.core.name_map import NameMap, Pairing
from align.core.transforms import IDENTITY, Permute, Reshape, Transform
from align.traces.open_trace import compare_weights

if TYPE_CHECKING:
    from align.core.verdicts import Finding

WEIGHT = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)


def findings(source: Any, target: Any, transform: Transform = IDENTITY) -> tuple[Finding, ...]:
    name_map = NameMap("a", "b", (Pairing("fc.weight", "head.weight", "rule", 1.0, transform),))
    return compare_weights({"fc.weight": np.asarray(source)}, {"head.weight": np.asarray(target)}, name_map)


def test_equal_weights_give_no_finding() -> None:
    assert findings(WEIGHT, WEIGHT.copy()) == ()


def test_one_changed_element_is_an_error_that_names_both_sides_and_the_size() -> None:
    changed = WEIGHT.copy()
    changed[2, 1] += 0.5
    (found,) = findings(WEIGHT, changed)
    assert (found.code, found.severity, found.subject) == ("weights-differ", "error", "fc.weight -> head.weight")
    assert found.message == "1 of 16 values differs, by up to 0.5"


def test_the_smallest_change_is_found() -> None:
    assert len(findings(WEIGHT, np.nextafter(WEIGHT, np.float32(9)))) == 1


def test_a_transposed_square_weight_is_found() -> None:
    assert len(findings(WEIGHT, WEIGHT.T)) == 1
    assert findings(WEIGHT, WEIGHT.T, Permute((1, 0))) == ()


def test_permuted_rows_are_found() -> None:
    assert len(findings(WEIGHT, WEIGHT[::-1])) == 1


def test_the_transform_of_the_map_is_applied() -> None:
    assert findings(WEIGHT, WEIGHT.reshape(4, 4, 1, 1), Reshape((4, 4, 1, 1))) == ()


def test_another_shape_is_found_even_if_it_broadcasts() -> None:
    (found,) = findings(WEIGHT, WEIGHT.reshape(4, 4, 1))
    assert found.message == "shape [4, 4] against [4, 4, 1]"
    assert len(findings(np.float32(1), np.ones(1, np.float32))) == 1


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_port_in_half_precision_differs_only_where_its_rounding_does(dtype: Any) -> None:
    assert findings(WEIGHT, WEIGHT.astype(dtype)) == ()
    assert len(findings(WEIGHT, (WEIGHT * np.float32(1.1)).astype(dtype))) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_nan_in_the_same_places_is_equal(dtype: Any) -> None:
    values = np.array([1, np.nan], dtype)
    assert findings(values, values.copy()) == ()
    (found,) = findings(values, np.array([np.nan, 1], dtype))
    assert found.message == "2 of 2 values differ, by up to 0; 2 are NaN or Inf on one side"


def test_integers_beyond_float_precision_are_exact() -> None:
    assert len(findings(np.int64(2**60), np.int64(2**60 + 1))) == 1
