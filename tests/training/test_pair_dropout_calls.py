"""Calls of dropout paired: by order, by the modules that hold them, and what stands on one side only."""

from __future__ import annotations

from align.core.training import DropoutCall
from align.training.replay_dropout import PairedDropout, pair_runs


def run(*calls: tuple[str, tuple[int, ...], float]) -> tuple[DropoutCall, ...]:
    return tuple(
        DropoutCall(place, path, "Dropout", shape, share, 0) for place, (path, shape, share) in enumerate(calls)
    )


def names(paired: PairedDropout) -> list[tuple[str, str]]:
    return [(mine.path, theirs.path) for mine, theirs in paired.pairs]


def lone(paired: PairedDropout) -> tuple[list[str], list[str]]:
    return [one.path for one in paired.alone[0]], [one.path for one in paired.alone[1]]


def test_other_names_are_paired_by_their_order() -> None:
    paired = pair_runs(run(("a", (4, 8), 0.1), ("b", (4, 8), 0.2)), run(("x", (4, 8), 0.1), ("y", (4, 8), 0.5)))
    assert (paired.fit, names(paired)) == (True, [("a", "x"), ("b", "y")])


def test_branches_may_run_in_another_order() -> None:
    first = run(("x.drop", (4, 8), 0.1), ("y.drop", (4, 8), 0.1))
    assert names(pair_runs(first, first[::-1])) == [("x.drop", "x.drop"), ("y.drop", "y.drop")]
    beside = run(("first", (4, 8), 0.1), ("second", (4, 8), 0.1))  # a module may use its own layers as it likes
    assert names(pair_runs(beside, beside[::-1])) == [("first", "second"), ("second", "first")]


def test_a_layer_that_drops_nothing_needs_no_partner() -> None:
    idle = run(("a", (4, 8), 0.1), ("idle", (4, 8), 0.0))
    paired = pair_runs(idle, run(("a", (4, 8), 0.1)))
    assert (paired.fit, names(paired)) == (True, [("a", "a")])
    assert names(pair_runs(idle, run(("a", (4, 8), 0.1), ("idle", (4, 8), 0.2)))) == [("a", "a"), ("idle", "idle")]


def test_the_layer_without_a_partner_is_told_by_names_else_by_sizes() -> None:
    whole = run(("a", (4, 8), 0.1), ("b", (4, 8), 0.1), ("c", (4, 8), 0.1))
    paired = pair_runs(whole, run(("a", (4, 8), 0.1), ("c", (4, 8), 0.1)))
    assert (paired.fit, paired.clear, lone(paired)) == (False, True, (["b"], []))
    sized = run(("a", (4, 8), 0.1), ("b", (4, 16), 0.1), ("c", (4, 8), 0.1))
    paired = pair_runs(sized, run(("x", (8, 4), 0.1), ("y", (8, 4), 0.1)))
    assert (names(paired), lone(paired)) == ([("a", "x"), ("c", "y")], (["b"], []))
    among_equals = pair_runs(whole, run(("x", (4, 8), 0.1), ("y", (4, 8), 0.1)))
    assert (len(lone(among_equals)[0]), among_equals.clear) == (1, False)


def test_what_could_stand_for_several_stands_for_none() -> None:
    paired = pair_runs(run(("q", (4, 8), 0.1), ("k", (4, 8), 0.1)), run(("qk", (4, 16), 0.1)))
    assert (paired.fit, names(paired), lone(paired)) == (False, [], ([], []))


def test_other_shapes_do_not_fit() -> None:
    paired = pair_runs(run(("a", (4, 8), 0.1)), run(("a", (8, 4), 0.1)))
    assert (paired.fit, names(paired), lone(paired)) == (False, [("a", "a")], ([], []))
