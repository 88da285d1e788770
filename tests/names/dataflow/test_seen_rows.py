"""What is kept of a tensor tells equal rows in any order, some of them, and features in another order."""

from __future__ import annotations

import numpy as np
import pytest

from align.names.dataflow.seen_rows import distance, joined_rows, see_rows

ROWS = np.random.default_rng(0).normal(size=(24, 12)).astype(np.float32)
ORDER = np.random.default_rng(1).permutation(24)


def test_equal_rows_are_the_same_in_any_order_and_layout() -> None:
    own = see_rows(ROWS)
    assert own.same(see_rows(ROWS[ORDER]))
    assert own.same(see_rows(ROWS.reshape(4, 6, 12).transpose(1, 0, 2)))
    assert own.same(see_rows(ROWS.reshape(4, 2, 3, 12).transpose(0, 3, 1, 2), [1]))  # channels before pixels
    assert own.same(see_rows(ROWS.reshape(24, 3, 4), [1, 2]))
    assert own.same(see_rows(ROWS * (1 + 1e-6)))
    assert not own.moved(see_rows(ROWS[ORDER]))


def test_some_of_the_rows_are_the_same_as_all() -> None:
    some = see_rows(ROWS[[3, 20, 7, 11]])
    assert some.same(see_rows(ROWS))
    assert see_rows(ROWS).same(some)
    assert some.moved(see_rows(ROWS))


def test_rows_that_are_not_all_among_the_others_are_not_the_same() -> None:
    other = np.random.default_rng(2).normal(size=(24, 12)).astype(np.float32)
    own = see_rows(ROWS)
    assert not own.same(see_rows(other))
    assert not own.same(see_rows(np.concatenate([ROWS[:3], other[:1]])))
    assert not own.same(see_rows(ROWS[:, :6]))
    assert not own.same(see_rows(ROWS * 1.1))
    assert not own.same(see_rows(-ROWS))
    assert own.moved(see_rows(ROWS * 1.1))


def test_too_few_rows_or_rows_without_a_difference_tell_nothing() -> None:
    assert not see_rows(ROWS[:2]).same(see_rows(ROWS))
    alike = np.ones((24, 12), np.float32)
    assert not see_rows(alike).varies
    assert not see_rows(alike).same(see_rows(alike))
    assert not see_rows(np.full((24, 12), np.nan, np.float32)).same(see_rows(ROWS))
    assert not see_rows(ROWS[:0]).same(see_rows(ROWS))


def test_what_scales_is_the_same_with_the_other_sign() -> None:
    assert see_rows(ROWS, signed=False).same(see_rows(-ROWS, signed=False))


ORDERS = {
    "drawn": np.random.default_rng(3).permutation(12),
    "channels by positions": np.arange(12).reshape(3, 4).T.reshape(-1),
    "three axes": np.arange(12).reshape(2, 3, 2).transpose(2, 1, 0).reshape(-1),
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_order_of_features_is_found(order: str) -> None:
    own, other = see_rows(ROWS), see_rows(ROWS[ORDER][:, ORDERS[order]])
    # the marks are sums over features, so that these are the same rows
    assert own.same(other)
    found = own.columns(other)
    assert found is not None
    assert np.array_equal(found, ORDERS[order])
    assert not own.alike(other)


def test_a_usual_order_is_found_beside_dead_features() -> None:
    dead = ROWS.copy()
    dead[:, [2, 3, 5, 10]] = 0
    order = ORDERS["channels by positions"]
    found = see_rows(dead).columns(see_rows(dead[:, order]))
    assert found is not None
    assert np.array_equal(found, order)


def test_features_that_stand_alike_and_others_have_no_order() -> None:
    own = see_rows(ROWS)
    assert own.alike(see_rows(ROWS[ORDER]))
    assert own.columns(see_rows(ROWS[ORDER])) is None
    assert own.columns(see_rows(ROWS[:20])) is None
    assert own.columns(see_rows(np.random.default_rng(4).normal(size=(24, 12)))) is None


def test_features_within_wider_rows_are_found_where_they_begin() -> None:
    own = see_rows(ROWS)
    assert own.holds(see_rows(ROWS[:, 4:9])) == 4
    assert own.holds(see_rows(ROWS[:, ::2])) is None
    assert own.holds(own) is None


def test_rows_of_several_calls_are_those_of_one() -> None:
    joined = joined_rows([see_rows(ROWS[:10]), see_rows(ROWS[10:])])
    assert joined.count == 24
    assert joined.same(see_rows(ROWS))


def test_what_cannot_be_compared_is_infinitely_far() -> None:
    one = np.ones(3)
    assert distance(one, np.ones(4)) == distance(one * np.nan, one) == distance(one[:0], one[:0]) == float("inf")
    assert distance(one, one) == 0
