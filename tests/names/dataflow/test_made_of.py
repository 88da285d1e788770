"""Transforms are read off from where each element of a target stands in its source, and make that target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.core.piece_transforms import Part
from align.core.transforms import IDENTITY, Permute, Reshape
from align.names.dataflow.flow_pairings import bare_shape, form_between, transforms_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.transforms import Transform


def numbered(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape)


def made(transforms: list[Transform], value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """What transforms make together: those that write parts are added up."""
    whole = np.zeros(shape, value.dtype)
    for one in transforms:
        assert one.output_shape(value.shape) == shape
        whole += one.apply(value)
    return whole


def assert_made(places: np.ndarray, shape: tuple[int, ...], count: int | None = None) -> list[Transform]:
    """The transforms of these places, which make of drawn values what the places say, and 0 where they say -1."""
    found = transforms_of(places, shape)
    assert found is not None
    assert count in (None, len(found))
    value = np.random.default_rng(0).normal(size=shape)
    wanted = np.where(places >= 0, value.reshape(-1)[places], 0)
    assert np.array_equal(made(found, value, places.shape), wanted)
    return found


def test_a_tensor_as_it_is_has_no_steps() -> None:
    assert assert_made(numbered(4, 6), (4, 6)) == [IDENTITY]
    assert assert_made(numbered(5), (5,)) == [IDENTITY]


WHOLE: dict[str, tuple[tuple[int, ...], Callable[[np.ndarray], np.ndarray]]] = {
    "transposed": ((4, 6), lambda own: own.T),
    "a square transposed": ((5, 5), lambda own: own.T),
    "three axes turned": ((3, 4, 5), lambda own: own.transpose(2, 0, 1)),
    "reshaped": ((4, 6), lambda own: own.reshape(2, 2, 6)),
    "with an axis of length 1": ((4, 6), lambda own: own[None]),
    "a filter of one position": ((4, 6, 1, 1), lambda own: own.reshape(4, 6).T),
    "the rows of heads interleaved": ((12, 5), lambda own: own.reshape(3, 4, 5).transpose(1, 0, 2).reshape(12, 5)),
    "columns by channel and position": ((5, 12), lambda own: own.reshape(5, 3, 4).transpose(0, 2, 1).reshape(5, 12)),
    "patches as rows": ((6, 3, 2, 2), lambda own: own.transpose(0, 2, 3, 1).reshape(6, 12).T),
    "some rows": ((9, 4), lambda own: own[3:6]),
    "some columns": ((9, 4), lambda own: own[:, 2:]),
    "some columns as rows": ((9, 4), lambda own: own[:, 1:3].T),
    "one matrix of a stack": ((3, 4, 5), lambda own: own[1]),
    "one matrix of a stack, transposed": ((3, 4, 5), lambda own: own[2].T),
    "a row as a matrix": ((24,), lambda own: own[8:20].reshape(3, 4)),
    "one matrix of a stack of stacks": ((2, 3, 4, 5), lambda own: own[1, 1]),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_target_that_one_source_makes_has_one_transform(case: str) -> None:
    shape, change = WHOLE[case]
    assert_made(change(numbered(*shape)), shape, 1)


def test_a_part_is_written_where_it_belongs() -> None:
    places = np.full((9, 4), -1)
    places[2:5] = numbered(3, 4)
    assert assert_made(places, (3, 4)) == [Part(0, 2, 5, (9, 4))]
    turned = np.full((4, 9), -1)
    turned[:, 2:5] = numbered(3, 4).T
    assert_made(turned, (3, 4), 1)


def test_parts_of_one_source_are_written_one_by_one() -> None:
    places = np.full((24, 5), -1)
    for head in range(4):  # the first of three that stand in turns, head by head
        places[6 * head : 6 * head + 2] = numbered(8, 5)[2 * head : 2 * head + 2]
    assert_made(places, (8, 5), 4)
    assert_made(numbered(12, 5)[[*range(8, 12), *range(4, 8), *range(4)]], (12, 5), 3)


def test_parts_are_nested_in_the_places_of_a_stack() -> None:
    places = np.full((3, 5, 8), -1)
    places[1, :, 4:] = numbered(4, 5).T
    assert_made(places, (4, 5), 1)
    several = np.full((3, 5, 8), -1)
    several[0, :, :4], several[2, :, 4:] = numbered(8, 5)[:4].T, numbered(8, 5)[4:].T
    assert_made(several, (8, 5), 2)


def test_what_no_map_can_say_has_no_transforms() -> None:
    drawn = np.random.default_rng(0)
    assert transforms_of(drawn.permutation(600), (600,)) is None
    assert transforms_of(np.where(drawn.random(1200) < 0.5, numbered(1200), -1), (1200,)) is None


@st.composite
def targets(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, ...]]:
    """Places in a source that is cut, turned, shaped and put into a larger tensor, and the source's shape."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    own = numbered(*shape)
    if draw(st.booleans()):
        axis = draw(st.integers(0, len(shape) - 1))
        start = draw(st.integers(0, shape[axis] - 1))
        own = own.take(range(start, draw(st.integers(start + 1, shape[axis]))), axis)
    own = own.transpose(draw(st.permutations(range(own.ndim))))
    if draw(st.booleans()):
        own = own.reshape(-1, own.shape[-1])
    if draw(st.booleans()):
        axis = draw(st.integers(0, own.ndim - 1))
        before, behind = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        own = np.pad(own, [(before, behind) if at == axis else (0, 0) for at in range(own.ndim)], constant_values=-1)
    return own, shape


@given(targets())
def test_the_transforms_of_any_target_make_it(target: tuple[np.ndarray, tuple[int, ...]]) -> None:
    assert_made(*target)


@given(st.integers(1, 12).flatmap(lambda n: st.permutations(range(n))), st.integers(1, 3))
def test_rows_in_any_order_are_made_right(order: list[int], width: int) -> None:
    assert_made(numbered(len(order), width)[order], (len(order), width))


def test_shapes_say_one_form_or_none() -> None:
    assert form_between((4, 6), (4, 6)) == IDENTITY
    assert form_between((1, 4, 6), (4, 6)) == Reshape((4, 6), (1, 4, 6))
    assert form_between((4, 6), (6, 4)) == Permute((1, 0))
    assert form_between((4, 4), (4, 4)) == IDENTITY
    assert form_between((4, 6), (4, 5)) is None
    assert form_between((4, 6, 4), (6, 4, 4)) is None
    turned = form_between((6, 1, 4), (4, 6, 1))
    assert turned is not None
    value = np.random.default_rng(0).normal(size=(6, 1, 4))
    assert np.array_equal(turned.apply(value)[..., 0], value[:, 0].T)
    assert bare_shape((1, 4, 1, 6)) == (4, 6)
