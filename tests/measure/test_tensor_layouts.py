"""A tensor in another layout is known by its values, brought back exactly, and never found where values do not tell."""

from __future__ import annotations

from itertools import permutations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from align.measure.tensor_statistics import find_permuted_layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST = 16


def random_values(shape: Any, seed: int = 0, dtype: str = "float32") -> NDArray[Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def merged(shape: tuple[int, ...], joined: list[bool]) -> tuple[int, ...]:
    """The shape with some neighbouring axes made one."""
    made = list(shape[:1])
    for size, join in zip(shape[1:], joined, strict=False):
        made[-1:] = [made[-1] * size] if join else [made[-1], size]
    return tuple(made)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], list[bool]]:
    """A shape, an order of its axes, and which neighbours become one afterwards."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=5)))
    assume(prod(shape) >= FEWEST)
    order = tuple(draw(st.permutations(range(len(shape)))))
    return shape, order, draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))


@given(layouts(), st.integers(0, 9), st.sampled_from(["float16", "float32", "float64"]))
def test_every_order_and_reshape_is_found_and_brought_back(layout: Any, seed: int, dtype: str) -> None:
    shape, order, joined = layout
    reference = random_values(shape, seed, dtype)
    turned = reference.transpose(order)
    candidate = turned.reshape(merged(turned.shape, joined))
    assume(candidate.shape != reference.shape)
    view = find_permuted_layout(reference, candidate)
    assert view is not None
    assert view.note
    np.testing.assert_array_equal(view.to_reference(candidate), reference)
    np.testing.assert_array_equal(view.to_candidate(reference), candidate)


@given(layouts(), st.integers(0, 9))
def test_unrelated_values_tell_of_no_layout(layout: Any, seed: int) -> None:
    shape, order, joined = layout
    other = random_values([shape[axis] for axis in order], seed + 100)
    candidate = other.reshape(merged(other.shape, joined))
    assume(candidate.shape != shape)
    assert find_permuted_layout(random_values(shape, seed), candidate) is None


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_faulty_tensor_is_still_known(order: tuple[int, ...]) -> None:
    """What one layer does wrong is mostly less than a tenth of its output."""
    reference = random_values((4, 5, 6))
    candidate = (reference + 0.05 * random_values((4, 5, 6), 1)).transpose(order)
    view = find_permuted_layout(reference, np.ascontiguousarray(candidate))
    assert view is not None
    assert view.order == order


def test_equal_shapes_are_one_layout_whatever_the_values() -> None:
    """Else an output that is transposed by mistake would be right."""
    square = random_values((8, 8))
    view = find_permuted_layout(square, square.T)
    assert view is not None
    assert view.is_same
    assert view.note == ""
    assert view.to_reference(square.T) is not None
    np.testing.assert_array_equal(view.to_reference(square.T), square.T)


def test_the_layout_is_told_in_words() -> None:
    reference = random_values((2, 3, 4, 5))
    view = find_permuted_layout(reference, reference.transpose(0, 2, 3, 1))
    assert view is not None
    assert view.note == "compared in the reference's layout; the port's is [2, 4, 5, 3], axes in the order [0, 2, 3, 1]"
    rows = find_permuted_layout(reference, reference.reshape(24, 5))
    assert rows is not None
    assert rows.note == "compared in the reference's layout; the port's is [24, 5]"


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (random_values((3, 5)), random_values((5, 4))),  # another size
        (random_values((3, 5)), random_values((3, 5)).T),  # too few to tell
        (np.arange(24).reshape(4, 6), np.arange(24).reshape(4, 6).T),  # no floats
        (random_values((2,) * 6), random_values((2,) * 6).reshape(64)),  # too many axes
        (np.zeros((4, 6), np.float32), np.zeros((6, 4), np.float32)),  # nothing to go by
        (np.full((4, 6), np.nan, np.float32), np.full((6, 4), np.nan, np.float32)),
    ],
)
def test_where_values_cannot_tell_there_is_no_layout(reference: Any, candidate: Any) -> None:
    assert find_permuted_layout(reference, candidate) is None
