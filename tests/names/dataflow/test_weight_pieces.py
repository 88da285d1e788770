"""Parameters are found again by their values in what operators are given: whole, as views, and moved about."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.names.dataflow.seen_rows import PieceIndex


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    """Values of which no two are equal."""
    return np.random.default_rng(seed).permutation(np.arange(1, np.prod(shape) + 1)).reshape(shape).astype(np.float32)


MATRIX, STACK, ROW = drawn(6, 8), -drawn(3, 4, 5), drawn(7) / 100
VALUES = {"matrix": MATRIX, "stack": STACK, "row": ROW}

VIEWS = {
    "the whole": ("matrix", lambda own: own),
    "its copy": ("matrix", lambda own: own.copy()),
    "transposed": ("matrix", lambda own: own.T),
    "a copy of it transposed": ("matrix", lambda own: np.ascontiguousarray(own.T)),
    "some rows": ("matrix", lambda own: own[2:5]),
    "one row": ("matrix", lambda own: own[3]),
    "some columns": ("matrix", lambda own: own[:, 4:]),
    "one column": ("matrix", lambda own: own[:, 2]),
    "every other row": ("matrix", lambda own: own[::2]),
    "every other column": ("matrix", lambda own: own[:, 1::2]),
    "with an axis of length 1": ("matrix", lambda own: own[:, None]),
    "repeated": ("matrix", lambda own: np.broadcast_to(own, (3, 6, 8))),
    "a row repeated": ("row", lambda own: np.broadcast_to(own, (2, 4, 7)).copy()),
    "one matrix of a stack": ("stack", lambda own: own[1]),
    "one matrix of a stack, transposed": ("stack", lambda own: own[2].T),
    "a stack with its axes turned": ("stack", lambda own: own.transpose(0, 2, 1).copy()),
    "a stack as one matrix": ("stack", lambda own: own.reshape(12, 5)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_a_parameter_is_found_and_each_of_its_elements_placed(view: str) -> None:
    name, made = VIEWS[view]
    value = made(VALUES[name])
    index = PieceIndex(VALUES)
    piece = index.find(value)
    assert piece is not None
    assert piece.names == (name,)
    assert not piece.derived
    assert np.array_equal(index.value(piece), value)
    assert np.array_equal(VALUES[name].reshape(-1)[piece.places()], value)
    assert index.origins(piece).keys() == {name}


OTHERS = {
    "other values": drawn(6, 8, seed=1) + 0.5,
    "one element changed": np.where(MATRIX[-1, -2] == MATRIX, 0, MATRIX).astype(np.float32),
    "the rows in another order": MATRIX[[0, 2, 1, 3, 4, 5]],
    "twice as large": MATRIX * 2,
    "integers": MATRIX.astype(np.int64),
    "double precision": MATRIX.astype(np.float64),
    "nothing": MATRIX[:0],
    "rows of two parameters": np.concatenate([MATRIX[:2, :5], STACK[0, :2]]),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_no_view_of_a_parameter_is_not_found(other: str) -> None:
    assert PieceIndex(VALUES).find(OTHERS[other]) is None


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    st.randoms(use_true_random=False),
)
def test_whatever_is_found_has_the_values_that_were_looked_for(shape: tuple[int, ...], random: object) -> None:
    own = drawn(*shape)
    axes = list(range(own.ndim))
    random.shuffle(axes)  # type: ignore[attr-defined]
    turned = own.transpose(axes).copy()
    index = PieceIndex({"own": own})
    piece = index.find(turned)
    assert piece is not None
    assert np.array_equal(index.value(piece), turned)


def test_a_view_is_moved_and_taken_apart_like_the_array() -> None:
    index = PieceIndex(VALUES)
    piece = index.find(STACK)
    assert piece is not None
    assert np.array_equal(index.value(piece.moved((2, 0, 1))), STACK.transpose(2, 0, 1))
    assert np.array_equal(index.value(piece.taken(1, 3)), STACK[:, 3])
    spread = index.find(np.broadcast_to(ROW[:, None], (7, 4)))
    assert spread is not None
    assert np.array_equal(index.value(spread.bare), ROW)


def test_a_tensor_that_was_only_moved_about_is_traced_to_its_parameters() -> None:
    index = PieceIndex(VALUES)
    joined = np.concatenate([MATRIX[:, 5:], MATRIX[:, :5]], 1)  # a roll: no view of one parameter
    beside = np.concatenate([MATRIX[:4, :5].reshape(-1), STACK.reshape(-1)[::-1]]).reshape(4, 20)
    index.add(["matrix"], joined)
    index.add(["matrix", "stack"], beside)
    rolled = index.find(joined[2:])
    assert rolled is not None
    assert rolled.derived
    assert np.array_equal(MATRIX.reshape(-1)[index.origins(rolled)["matrix"]], joined[2:])
    both = index.find(beside)
    assert both is not None
    places = index.origins(both)
    assert places.keys() == {"matrix", "stack"}
    for name, own in places.items():
        assert np.array_equal(VALUES[name].reshape(-1)[own[own >= 0]], beside[own >= 0])
    assert ((places["matrix"] >= 0) != (places["stack"] >= 0)).all()


def test_a_tensor_that_was_computed_has_no_places_in_its_parameters() -> None:
    index = PieceIndex(VALUES)
    made = MATRIX[:, :4] @ STACK[0]
    index.add(["matrix", "stack"], made)
    piece = index.find(made)
    assert piece is not None
    assert piece.names == ("matrix", "stack")
    assert index.origins(piece) == {}
