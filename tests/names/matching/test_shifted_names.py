"""Equal names of siblings that letters or words count: what was shifted by one is not sure."""

from __future__ import annotations

import pytest

from align.names.matching.explain_unpaired import SHIFTED


def names(w, mine, theirs, path="net.{}.fc"):
    sides = ([w.linear(path.format(name)) for name in side] for side in (mine, theirs))
    source, target = sides
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    return {(p.source, p.target, p.sure, p.note) for p in name_map.pairings if p.source.endswith("weight")}


SHIFTS = [("abc", "bcd"), ("bcd", "abc"), (("one", "two", "three"), ("zero", "one", "two"))]


@pytest.mark.parametrize(("mine", "theirs"), SHIFTS)
@pytest.mark.parametrize("path", ["net.{}", "net.stage_{}.fc"])
def test_equal_names_between_siblings_left_over_at_both_ends_are_not_sure(written, mine, theirs, path) -> None:
    both = [path.format(name) for name in mine if name in theirs]
    found = names(written, mine, theirs, path)
    assert {(f"{x}.weight", f"{x}.weight", False, SHIFTED) for x in both} <= found
    assert not [pair for pair in found if pair[2]]


UNSHIFTED = [("abc", "abc"), ("abc", "ab"), ("abcd", ("a", "b", "c", "x", "y")), ("abcx", "abcy")]


@pytest.mark.parametrize(("mine", "theirs"), UNSHIFTED)
def test_siblings_left_over_at_one_end_alone_shift_nothing(written, mine, theirs) -> None:
    found = names(written, mine, theirs)
    assert {(f"net.{x}.fc.weight", f"net.{x}.fc.weight", True, "") for x in mine if x in theirs} <= found


def test_words_that_count_nothing_are_not_shifted(written) -> None:
    found = names(written, ("stem", "left", "right"), ("left", "right", "head"))
    assert {(f"net.{x}.fc.weight", f"net.{x}.fc.weight", True, "") for x in ("left", "right")} <= found
