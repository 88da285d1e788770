"""A list that is turned round is told from one in which two blocks are exchanged."""

from __future__ import annotations

import pytest

from align.core.transforms import IDENTITY
from align.names.numbered_lists import ListDirection, list_direction
from align.names.user_rules import NameRules


def way(points: dict[int, int], count: int, other_count: int | None = None, *, nested: bool = False) -> ListDirection:
    lists = set(range(count)), set(range(count if other_count is None else other_count))
    return list_direction(set(points.items()), *lists, nested)


@pytest.mark.parametrize("points", [{0: 1, 1: 0}, {2: 0, 1: 1, 0: 2}, {3: 0, 2: 1}, {0: 4, 1: 3, 2: 2}])
def test_numbers_that_only_a_turned_list_gives_tell_that_it_is_turned(points) -> None:
    assert way(points, max(*points, *points.values()) + 1) == ListDirection(-1)


@pytest.mark.parametrize("points", [{0: 1, 1: 0}, {1: 2, 2: 1}, {0: 0, 1: 2, 2: 1}, {0: 2, 2: 0, 3: 3}])
def test_two_exchanged_numbers_tell_nothing_of_the_others(points) -> None:
    moved = frozenset(number for number, other in points.items() if number != other)
    assert way(points, 5) == ListDirection(None, moved)


@pytest.mark.parametrize("points", [{1: 2, 2: 1}, {0: 3, 3: 0}])
def test_nobody_knows_what_an_exchange_and_a_turned_list_both_explain(points) -> None:
    assert way(points, 4) == ListDirection(0)


def test_points_of_an_exchange_tell_no_turned_list_where_the_lengths_of_the_lists_are_not_the_same() -> None:
    assert way({0: 1, 1: 0}, 5, 4) == way({0: 1, 1: 0}, 5, nested=True) == ListDirection(0)
    assert way({0: 3, 1: 2, 2: 1}, 5, 4) == ListDirection(0)
    assert way({0: 3, 1: 2, 2: 1, 3: 0}, 5, 4) == ListDirection(-1)


def blocks(w, said: dict[int, int], count: int):
    source = [w.linear(f"blocks.{n}.{part}", 6, 4) for n in range(count) for part in ("fc1", "gate")]
    target = [w.linear(f"layers.{n}.{part}", 6, 4) for n in range(count) for part in ("lin_in", "gating")]
    names = {f"blocks.{n}.fc1.weight": (f"layers.{other}.lin_in.weight", IDENTITY) for n, other in said.items()}
    return w.matched(w.side("torch", *source), w.side("torch", *target), NameRules(names=names))


@pytest.mark.parametrize(("said", "count"), [({0: 1, 1: 0}, 5), ({1: 2, 2: 1}, 5), ({0: 0, 1: 2, 2: 1}, 4)])
def test_blocks_that_the_user_exchanges_leave_the_others_where_they_are(written, said, count) -> None:
    found = written.paired(blocks(written, said, count))
    numbers = {(int(one.split(".")[1]), int(other.split(".")[1])) for one, other in found.items()}
    assert numbers == {(n, said.get(n, n)) for n in range(count)}
    assert len(found) == 4 * count


@pytest.mark.parametrize(("said", "count"), [({1: 2, 2: 1}, 4), ({2: 3, 3: 2}, 6)])
def test_blocks_beside_an_exchange_that_may_be_a_turned_list_are_open(written, said, count) -> None:
    found = written.paired(blocks(written, said, count))
    assert {int(name.split(".")[1]) for name in found} == set(said)


def test_a_list_registered_backwards_counts_as_one_beside_it_that_is_told(written) -> None:
    w = written
    source = [w.conv(f"neck.lateral.{n}", 8, 8 * (n + 1), 1) for n in range(4)]
    source += [w.conv(f"neck.smooth.{n}", 8, 8) for n in range(4)]
    target = [layer.at(f"fpn.{layer.path[5:8]}{int(layer.path[-1]) + 2}") for layer in source]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target[::-1]))
    assert w.paired(name_map) == w.truth(list(zip(source, target, strict=True)))
