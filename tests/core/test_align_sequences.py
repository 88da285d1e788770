"""The long-integer alignment against the table of sums: the same pairs, ties included, and small memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from align.core.align_sequences import align_alike, align_sequences


@st.composite
def tables(draw):
    rows, columns = draw(st.integers(0, 12)), draw(st.integers(0, 12))
    cells = draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
    return np.array(cells, np.float64).reshape(rows, columns)


def bits_of(row):
    return sum(1 << place for place, value in enumerate(row) if value)


@settings(max_examples=400, deadline=None)
@given(tables())
def test_rows_of_bits_make_the_same_pairs_as_the_table(table) -> None:
    bits = [bits_of(row) for row in table]
    assert align_alike(*table.shape, bits.__getitem__) == align_sequences(table)


def test_two_long_sequences_need_no_table() -> None:
    every = (1 << 10_000) - 1
    tracemalloc.start()
    pairs = align_alike(10_000, 10_000, lambda row: every)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pairs == [(number, number) for number in range(10_000)]
    assert peak < 10e6
