"""The interpreter against Python's own: what is plain data comes out equal, whatever the protocol."""

from __future__ import annotations

import pickle
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from align.checkpoints.pickled_tensors import read_pickle
from align.errors import NotACheckpointError

PATH = Path("file.pth")
NUMBERS = st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=300) | st.binary(max_size=300)
KEYS = st.text(max_size=5) | st.integers(-(1 << 63), (1 << 63) - 1)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(KEYS, inner, max_size=4)
    ),
)


def in_protocol(tree, protocol) -> bytes:
    return pickle.dumps(tree, protocol)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@hypothesis.given(tree=TREES)
@hypothesis.settings(max_examples=100, deadline=None)
def test_plain_data_comes_out_as_it_went_in(protocol, tree) -> None:
    if protocol == 2:
        hypothesis.assume(b"\nbytes\n" not in in_protocol(tree, 2) and b"_codecs" not in in_protocol(tree, 2))  # calls
    read = read_pickle(PATH, in_protocol(tree, protocol)).value
    assert read == tree
    assert repr(read) == repr(tree)


@pytest.mark.parametrize("protocol", [0, 1])
@pytest.mark.parametrize("tree", [[1, -2, 1 << 80, 1.5, True, False, None], {"a\n'é\\": (1, [2], {"b": ()})}])
def test_the_text_forms_of_old_protocols_are_read(protocol, tree) -> None:
    assert read_pickle(PATH, in_protocol(tree, protocol)).value == tree


@hypothesis.given(trees=st.lists(TREES, min_size=2, max_size=4), before=st.binary(max_size=3))
@hypothesis.settings(max_examples=50, deadline=None)
def test_pickles_in_a_row_are_read_one_after_the_other_from_the_same_bytes(trees, before) -> None:
    data = before + b"".join(in_protocol(tree, 4) for tree in trees) + b"raw bytes"
    at = len(before)
    for tree in trees:
        pickled = read_pickle(PATH, data, at)
        assert pickled.value == tree
        at = pickled.end
    assert data[at:] == b"raw bytes"


@hypothesis.given(tree=TREES, data=st.data())
@hypothesis.settings(max_examples=100, deadline=None)
def test_a_pickle_that_is_cut_is_refused(tree, data) -> None:
    whole = in_protocol(tree, 4)
    with pytest.raises(NotACheckpointError):
        read_pickle(PATH, whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize(
    "argument",
    [
        b"X\xff\xff\xff\xff",
        b"\x8d" + b"\xff" * 8,
        b"\x8b\xff\xff\xff\x7f",
        b"B\x00\x00\x00\x20",
        b"I12",
        b"c" + b"a" * 9,
    ],
)
def test_an_argument_that_claims_more_than_there_is_takes_no_memory(argument) -> None:
    with pytest.raises(NotACheckpointError):
        read_pickle(PATH, b"\x80\x02" + argument + b"xy.")
