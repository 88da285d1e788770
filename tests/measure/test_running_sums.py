"""Sums merge: blocks, threads and kernels may share the work in any way."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from align.measure.measure_arrays import NumpyKernel, RunningSums, decade, measure


def pair(size: int = 5000) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    reference = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    candidate = reference * np.float32(1.001)
    reference[[3, 4000]], candidate[[3, 17]] = np.nan, np.inf
    return reference, candidate


def summed(reference: np.ndarray[Any, Any], candidate: np.ndarray[Any, Any], start: int = 0) -> RunningSums:
    sums = RunningSums()
    NumpyKernel(512).add(sums, reference, candidate, start)
    return sums


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_parts_merged_in_any_order_are_the_whole(order: list[int]) -> None:
    reference, candidate = pair()
    bounds = [0, 1, 1777, 1777, 5000]  # one element, many, none, the rest
    merged = RunningSums()
    for place in order:
        part = slice(bounds[place], bounds[place + 1])
        merged.merge(summed(reference[part], candidate[part], part.start))
    whole = dataclasses.asdict(measure(reference, candidate))
    for name, value in dataclasses.asdict(merged.result((5000,))).items():
        assert value == pytest.approx(whole[name], rel=1e-14), name


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_equal_largest_differences_the_first_index_counts_whatever_is_merged_first(order: tuple[int, int]) -> None:
    zero, moved = np.zeros(4), np.array([0.0, 2.0, 0.0, 2.0])
    parts = [summed(zero, moved, 4 * index) for index in range(2)]
    merged = RunningSums()
    for place in order:
        merged.merge(parts[place])
    assert (merged.max_abs, merged.worst) == (2.0, 1)


def test_a_part_without_any_reference_but_zero_leaves_the_largest_relative_difference() -> None:
    merged = summed(np.zeros(3), np.ones(3))
    assert merged.max_rel is None
    merged.merge(summed(np.ones(3), np.ones(3), 3))
    assert merged.max_rel == 0.0


def test_identical_is_about_bits() -> None:
    assert summed(np.array([0.0, math.nan]), np.array([0.0, math.nan])).identical
    signed = summed(np.array([0.0, 1.0]), np.array([-0.0, 1.0]))
    assert not signed.identical
    assert signed.mismatched == 0
    assert not summed(np.ones(3, np.float32), np.ones(3, np.float64)).identical


def test_identical_is_lost_in_one_bit_far_behind() -> None:
    values = np.arange(5000.0)
    other = values.copy()
    other[4999] = np.nextafter(other[4999], np.inf)
    sums = summed(values, other)
    assert (sums.identical, sums.mismatched, sums.worst) == (False, 1, 4999)


def test_a_decade_holds_its_lower_end() -> None:
    assert [decade(10.0**power) - 16 for power in (-16, -7, 0, 3, 15)] == [-16, -7, 0, 3, 15]
    assert [decade(value) for value in (1e-300, 1e300, math.inf)] == [0, 31, 31]
