"""Runs of names: folded and expanded they are the same names, whatever stands in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.names.user_rules import expand_ranges, fold_ranges, quote_ranges

# Few letters and numbers, so that runs, shifted runs, leading zeros and braces come up often.
NAMES = st.lists(st.sampled_from(["a", ".", "0", "1", "2", "10", "01", "{", "{0..2}", "}", ".."]), max_size=6).map(
    "".join
)
PAIRS = st.lists(st.tuples(NAMES, NAMES), unique_by=lambda pair: pair[0], max_size=12)


@given(PAIRS)
def test_what_is_folded_expands_to_the_same_pairs(pairs: list[tuple[str, str]]) -> None:
    folded = fold_ranges([(pair, None) for pair in pairs])
    assert sorted(pair for texts, _ in folded for pair in expand_ranges(texts)) == sorted(pairs)
    assert sorted(place for _, places in folded for place in places) == list(range(len(pairs)))


@given(st.lists(st.tuples(NAMES, NAMES, NAMES), unique_by=lambda row: row[0], max_size=12))
def test_rows_of_several_targets_expand_to_the_same_rows(rows: list[tuple[str, str, str]]) -> None:
    folded = fold_ranges([(row, None) for row in rows])
    assert sorted(row for texts, _ in folded for row in expand_ranges(texts)) == sorted(rows)


@given(NAMES)
def test_a_quoted_name_is_read_as_itself(name: str) -> None:
    assert expand_ranges([quote_ranges(name)]) == [(name,)]


def fold(*pairs: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [texts for texts, _ in fold_ranges([(pair, None) for pair in pairs])]


def test_numbers_run_along_equal_and_along_shifted_ones() -> None:
    pairs = [(f"layers.{i}.attn.{j}.w", f"b{i + 1}.{j}.w") for i in range(3) for j in range(2)]
    assert fold(*pairs) == [("layers.{0..2}.attn.{0..1}.w", "b{1..3}.{0..1}.w")]


def test_numbers_that_cross_or_jump_do_not_run_together() -> None:
    crossed = [(f"a{i}.{j}", f"b{j}.{i}") for i in range(2) for j in range(2)]
    assert all(len(expand_ranges(texts)) <= 2 for texts in fold(*crossed))
    assert fold(("a0", "b1"), ("a1", "b0")) == [("a0", "b1"), ("a1", "b0")]
    assert fold(("a0", "b0"), ("a2", "b2")) == [("a0", "b0"), ("a2", "b2")]


def test_rows_that_are_unlike_in_what_stands_beside_them_stay_apart() -> None:
    assert fold_ranges([(("a0",), "x"), (("a1",), "y"), (("a2",), "y")]) == [(("a0",), [0]), (("a{1..2}",), [1, 2])]


@pytest.mark.parametrize(
    ("texts", "word"),
    [
        (["a{3..1}"], "ends before it begins"),
        (["a{0..1}", "b"], "not equally many"),
        (["a{0..1}", "b{0..2}"], "not equally long"),
        (["a{0..999999}{0..999999}"], "more than 1,000,000"),
    ],
)
def test_ranges_that_do_not_go_together_are_refused(texts: list[str], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        expand_ranges(texts)


def test_the_pieces_of_fused_layers_run_together_and_expand_again() -> None:
    rows = [(f"b.{i}.qkv", f"l.{i + 1}.0.q", f"l.{i + 1}.1.k", f"l.{i + 1}.2.v") for i in range(12)]
    (run,) = fold(*rows)
    assert run == ("b.{0..11}.qkv", "l.{1..12}.0.q", "l.{1..12}.1.k", "l.{1..12}.2.v")
    assert expand_ranges(run) == rows


def test_pieces_that_do_not_run_alike_stay_apart() -> None:
    crossed = [(f"b.{i}.qkv", f"l.{i}.q", f"l.{1 - i}.k") for i in range(2)]
    assert fold(*crossed) == crossed
    unlike = [(f"b.{i}.qkv", f"l.{i}.q", f"l.{i}.k.0") for i in range(2)]
    assert fold(*unlike) == unlike
