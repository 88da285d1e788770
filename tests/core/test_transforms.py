from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.core.name_map import NameMap, Pairing, for_gradients
from align.core.transforms import (
    IDENTITY,
    Add,
    Cast,
    Chain,
    Permute,
    Reshape,
    Scale,
    Transform,
    chained,
)
from align.names.map_file import parse_transform

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
dtypes = st.sampled_from(["float32", "float16", "int64", "bool", "uint8"])


@st.composite
def values(draw: st.DrawFn) -> np.ndarray:
    shape = draw(shapes)
    return np.random.default_rng(0).integers(0, 2, size=shape).astype(draw(dtypes))


@st.composite
def fitting(draw: st.DrawFn) -> tuple[np.ndarray, Transform]:
    value = draw(values())
    axes = draw(st.permutations(range(value.ndim)))
    reshaped = draw(st.sampled_from([(value.size,), (1, *value.shape), (*value.shape, 1)]))
    permute, cast = Permute(tuple(axes)), Cast("float64")
    number = value.dtype == np.float32  # what a sum of these keeps of the digits: all
    permute = draw(st.sampled_from([permute, chained(Add(1.0), permute), Scale(-0.5)])) if number else permute
    permuted = permute.output_shape(value.shape)
    chains = [chained(permute, Reshape((*permuted, 1)), cast), chained(cast, permute), Chain((Reshape(reshaped),))]
    return value, draw(st.sampled_from([IDENTITY, permute, Reshape(reshaped), cast, *chains]))


@given(fitting())
def test_the_inverse_restores_value_shape_and_dtype(case: tuple[np.ndarray, Transform]) -> None:
    value, transform = case
    back = transform.inverse(value.shape, value.dtype.name).apply(transform.apply(value))
    assert back.dtype == value.dtype
    np.testing.assert_array_equal(back, value, strict=True)


@given(fitting())
def test_the_foretold_shape_and_dtype_are_those_of_the_result(case: tuple[np.ndarray, Transform]) -> None:
    value, transform = case
    result = transform.apply(value)
    assert result.shape == transform.output_shape(value.shape)
    assert result.dtype.name == transform.output_dtype(value.dtype.name)


@given(fitting())
def test_the_table_form_reads_back_as_the_same_transform(case: tuple[np.ndarray, Transform]) -> None:
    _, transform = case
    assert parse_transform(transform.as_table()) == transform


@given(fitting())
def test_a_map_that_tells_what_each_step_was_from_needs_nothing_else_to_go_back(
    case: tuple[np.ndarray, Transform],
) -> None:
    value, transform = case
    told = told_from(transform, value)
    back = parse_transform(told.as_table()).inverse(None, None)
    np.testing.assert_array_equal(back.apply(told.apply(value)), value, strict=True)


def told_from(transform: Transform, value: np.ndarray) -> Transform:
    steps = []
    for step in transform.steps:
        if isinstance(step, Reshape):
            steps.append(Reshape(step.shape, value.shape))
        else:
            steps.append(Cast(step.dtype, value.dtype.name) if isinstance(step, Cast) else step)
        value = step.apply(value)
    return chained(*steps)


@pytest.mark.parametrize(
    ("transform", "fault"),
    [
        (Reshape((2, 3)), r"the shape before the reshape to \(2, 3\) is not known: add `from"),
        (Cast("float16"), "the dtype before the cast to float16 is not known: add `from"),
        (Chain((Permute((1, 0)), Reshape((6,)))), "the shape before the reshape"),
    ],
)
def test_what_cannot_be_undone_says_what_is_missing(transform: Transform, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        transform.inverse(None, None)


def test_a_chain_knows_a_shape_once_one_of_its_steps_tells_it() -> None:
    chain = Chain((Reshape((2, 3), (6,)), Reshape((3, 2)), Cast("float16", "float32")))
    assert chain.inverse(None, None) == Chain((Cast("float32"), Reshape((2, 3)), Reshape((6,))))


def test_a_reshape_that_says_what_it_is_from_takes_nothing_else() -> None:
    with pytest.raises(ValueError, match=r"is to be reshaped from \(2, 3\), and has the shape \(3, 2\)"):
        Reshape((6,), (2, 3)).output_shape((3, 2))


def test_transforms_that_do_nothing_vanish_from_a_chain_and_chains_are_flat() -> None:
    assert chained(IDENTITY, IDENTITY) is IDENTITY
    assert chained(IDENTITY, Cast("float16")) == Cast("float16")
    inner = Chain((Cast("float16"), Reshape((1,))))
    assert chained(inner, Permute((0,))) == Chain((Cast("float16"), Reshape((1,)), Permute((0,))))


def test_a_reshape_to_another_number_of_elements_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cannot reshape \(2, 3\) to \(2, 2\)"):
        Reshape((2, 2)).apply(np.zeros((2, 3)))


def test_negative_sizes_are_no_shape_though_their_product_may_fit() -> None:
    with pytest.raises(ValueError, match="cannot reshape"):
        Reshape((-2, -3)).output_shape((2, 3))


@pytest.mark.parametrize("axes", [(0,), (0, 1, 2), (0, 0), (1, -1)])
def test_axes_that_are_no_permutation_are_refused(axes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="cannot permute"):
        Permute(axes).apply(np.zeros((2, 3)))


def test_a_permuted_value_is_a_view_that_copies_nothing() -> None:
    value = np.arange(6.0).reshape(2, 3)
    result = Permute((1, 0)).apply(value)
    assert np.shares_memory(result, value)
    assert result.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_bfloat16_is_cast_by_rounding_to_even() -> None:
    value = np.array([1.0, 1.00390625, 1.01171875], dtype=np.float32)  # ties halfway between neighbours
    result = Cast("bfloat16").apply(value)
    assert result.dtype == ml_dtypes.bfloat16
    assert result.astype(np.float32).tolist() == [1.0, 1.0, 1.015625]


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ({}, "unknown transform op None"),
        ({"op": "rotate"}, "unknown transform op 'rotate'"),
        ({"op": ["reshape"]}, "unknown transform op"),
        ({"op": "reshape"}, "malformed: reshape needs shape"),
        ({"op": "reshape", "shape": "wide"}, "whole numbers"),
        ({"op": "reshape", "shape": "43"}, "whole numbers"),
        ({"op": "reshape", "shape": 12}, "whole numbers"),
        ({"op": "reshape", "shape": ["4", 3.0]}, "whole numbers"),
        ({"op": "reshape", "shape": [4.0, 3]}, "whole numbers"),
        ({"op": "reshape", "shape": [True, 12]}, "whole numbers"),
        ({"op": "reshape", "shape": [-4, -3]}, "none of them negative"),
        ({"op": "reshape", "shape": [12], "axes": [0]}, "reshape takes shape, not axes"),
        ({"op": "permute", "axes": [1.9, 0.2]}, "whole numbers"),
        ({"op": "permute", "axes": [0, -1]}, "none of them negative"),
        ({"op": "permute", "axes": [0, 2]}, "each of 2 axes once"),
        ({"op": "permute", "axes": [0], "why": "?"}, "permute takes axes, not why"),
        ({"op": "cast"}, "cast needs dtype"),
        ({"op": "cast", "dtype": "float31"}, "dtype must name numbers"),
        ({"op": "cast", "dtype": "U3"}, "dtype must name numbers"),
        ({"op": "cast", "dtype": "object"}, "dtype must name numbers"),
        ({"op": "cast", "dtype": "longdouble"}, "dtype must name numbers"),
        ({"op": "cast", "dtype": "float32,int8"}, "dtype must name numbers"),
        ({"op": "cast", "dtype": 7}, "dtype must name numbers"),
        ({"op": "cast", "type": "float16"}, "cast takes dtype, not type"),
        ({"op": "identity", "shape": [1]}, "identity takes nothing else, not shape"),
        ({"op": "reshape", "shape": [6], "from": [2, -3]}, "from must be a list of whole numbers"),
        ({"op": "cast", "dtype": "float16", "from": "float31"}, "dtype must name numbers"),
        ({"op": "permute", "axes": [0], "from": [0]}, "permute takes axes, not from"),
        ({"op": "chain"}, "chain needs steps"),
        ({"op": "chain", "steps": []}, "steps must be a list of transforms"),
        ({"op": "chain", "steps": ["cast"]}, "steps must be a list of transforms"),
        ({"op": "chain", "steps": [{"op": "cast"}]}, "cast needs dtype"),
        ({"op": "chain", "steps": [{"op": "chain", "steps": []}]}, "a chain holds single steps"),
    ],
)
def test_a_faulty_table_is_refused_with_its_fault(table: dict[str, object], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_transform(table)


def test_a_number_is_added_and_taken_off_in_the_dtype_of_the_tensor() -> None:
    weight = np.array([0.0, -0.25, 0.5], ml_dtypes.bfloat16)
    shifted = Add(1.0).apply(weight)
    assert (shifted.dtype, shifted.tolist()) == (weight.dtype, [1.0, 0.75, 1.5])
    assert Add(1.0).inverse(None, None).apply(shifted).tolist() == weight.tolist()
    assert Scale(4.0).apply(weight).tolist() == [0.0, -1.0, 2.0]
    assert Scale(4.0).inverse(weight.shape, "bfloat16") == Scale(0.25)
    assert Scale(0.1).apply(np.array([3.0], np.float32)) == np.float32(3.0 * 0.1)  # rounded once


def test_a_factor_that_cannot_be_undone_is_no_factor() -> None:
    for table in ({"op": "scale", "factor": 0}, {"op": "scale", "factor": 1e-320}, {"op": "scale", "factor": "2"}):
        with pytest.raises(ValueError, match="factor must be a number"):
            parse_transform(table)
    for table in ({"op": "add", "value": float("nan")}, {"op": "add", "value": True}):
        with pytest.raises(ValueError, match="value must be a number"):
            parse_transform(table)


def test_a_gradient_stays_where_a_number_is_added_and_is_divided_by_a_factor() -> None:
    names = NameMap("a", "b", (Pairing("w", "x", "user", 1.0, chained(Add(1.0), Scale(4.0))),))
    gradients = for_gradients(names)
    assert gradients.pairings == names.pairings
    gradient = np.array([8.0, -4.0], np.float32)
    assert gradients.pairings[0].transform.apply(gradient).tolist() == [2.0, -1.0]
    assert gradients.pairings[0].transform.inverse(None, None).apply(gradient).tolist() == [32.0, -16.0]
