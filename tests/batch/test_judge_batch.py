"""What the outcomes of ranks and steps say together: the first that departs, the odd rank, the tensor that drifts."""

from __future__ import annotations

from typing import Any

import pytest

from align.batch.job import Job, MissingSide, PlacedTask, Task, TaskOutcome
from align.batch.run_batch import judge_batch
from align.core.verdicts import Outcome

LAYERS = ("embed", "block.0", "block.1", "head")
RANKS, STEPS = range(8), range(5)


def outcome_of(name: str, departs: dict[str, float], prints: list[list[str | None]]) -> TaskOutcome:
    rows = [[layer, "not aligned" if layer in departs else "aligned", departs.get(layer, 0.1)] for layer in LAYERS]
    figures = {
        "outcome": "not aligned" if departs else "aligned",
        "reason": "",
        "compared": len(LAYERS),
        "rows": rows,
        "prints": prints,
    }
    return TaskOutcome(name, "done", 1, 0.1, None, figures, "", "")


def judged(departs: Any = lambda rank, step: {}, prints: Any = lambda rank, step: [], **of_job: Any) -> Any:
    placed, outcomes = [], {}
    for step in STEPS:
        for rank in RANKS:
            name = f"s{step}r{rank}"
            placed.append(PlacedTask(Task(name, "forward", ("a", "b"), {}), rank, step))
            outcomes[name] = outcome_of(name, departs(rank, step), prints(rank, step))
    return judge_batch(Job("job", tuple(placed), **of_job), outcomes)


def groups(result: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(group.kind, group.ranks) for group in result.groups]


def test_one_bad_rank_of_eight_from_step_three_on_is_named() -> None:
    result = judged(lambda rank, step: {"block.1": 9.0, "head": 90.0} if rank == 5 and step >= 3 else {})
    assert (result.first.step, result.first.ranks, result.first.layer) == (3, (5,), "block.1")
    assert groups(result) == [("aligned", (0, 1, 2, 3, 4, 6, 7)), ("odd", (5,))]
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert "rank 5" in result.verdict.reason
    assert "block.1" in result.verdict.reason
    layer = next(one for one in result.layers if one.layer == "block.1")
    assert layer.outcomes == tuple("not aligned" if rank == 5 else "aligned" for rank in RANKS)
    assert layer.values[5] == 9.0


def test_ranks_that_all_depart_alike_accuse_no_card() -> None:
    result = judged(lambda rank, step: {"embed": 4.0 + rank / 10})
    assert groups(result) == [("alike", tuple(RANKS))]
    assert "not a card" in result.groups[0].reason


def test_of_ranks_that_all_depart_the_one_that_departs_elsewhere_is_odd() -> None:
    result = judged(lambda rank, step: {"embed": 5000.0, "head": 4.0} if rank == 2 else {"head": 4.0})
    assert groups(result) == [("alike", (0, 1, 3, 4, 5, 6, 7)), ("odd", (2,))]
    assert (result.first.layer, result.first.step) == ("embed", 0)


def test_no_half_is_the_odd_one() -> None:
    result = judged(lambda rank, step: {"head": 4.0} if rank < 4 else {})
    assert all(kind != "odd" for kind, _ in groups(result))


def test_ranks_that_all_agree_are_no_groups_and_aligned() -> None:
    result = judged()
    assert (result.first, result.groups, result.unequal) == (None, (), ())
    assert result.verdict.outcome is Outcome.ALIGNED


def replicated(rank: int, step: int) -> list[list[str | None]]:
    odd = rank == 6 and step >= 2
    return [["norm.weight", f"4:same{step}", f"4:odd{step}" if odd else f"4:same{step}"]]


def test_a_replicated_weight_that_drifts_on_one_rank_is_named_from_its_first_step_on() -> None:
    (one,) = judged(prints=replicated).unequal
    assert (one.name, one.side, one.step, one.ranks, one.equal) == ("norm.weight", "candidate", 2, (6,), 7)
    assert one.known_by == "reference"


def test_most_ranks_say_what_a_weight_should_be_where_there_is_no_reference() -> None:
    (one,) = judged(prints=lambda rank, step: [["w", None, "4:a" if rank else "4:b"]]).unequal
    assert (one.ranks, one.known_by) == ((0,), "majority")


@pytest.mark.parametrize(
    "value",
    [
        lambda rank: f"4:{rank}",  # every rank its own shard
        lambda rank: f"{rank}:same",  # shards of other shapes
        lambda rank: f"4:{rank % 2}",  # two shards, on four ranks each
        lambda rank: f"4:{rank % 4}",
        lambda rank: "=4:zeros" if rank else "4:first",  # a constant, which shards are by chance
    ],
)
def test_sharded_tensors_are_no_alarm(value: Any) -> None:
    assert judged(prints=lambda rank, step: [["w", value(rank), value(rank)]]).unequal == ()
    assert judged(prints=lambda rank, step: [["w", None, value(rank)]]).unequal == ()


def test_the_job_file_says_which_tensors_are_replicated_and_which_are_not() -> None:
    halves = lambda rank, step: [["w", None, f"4:{rank % 2}"]]  # noqa: E731
    (one,) = judged(prints=halves, replicated=("w",)).unequal
    assert one.known_by == "job file"
    assert judged(prints=replicated, sharded=("norm.*",)).unequal == ()


def test_a_failed_and_a_missing_task_are_reported_and_nothing_is_aligned() -> None:
    task = Task("t", "check", ("s3://key:word@b/a.npz",), {})
    failed = TaskOutcome("t", "failed", 2, 0.1, None, {}, "it is broken", "mend it")
    missing = MissingSide("check-rank3-file", "check", 3, None, "file", "s3://key:word@b/{rank}.npz")
    result = judge_batch(Job("job", (PlacedTask(task, 2),), (missing,)), {"t": failed})
    assert [(one.rank, one.state) for one in result.tasks] == [(2, "failed"), (3, "missing")]
    assert (result.tasks[0].error, result.tasks[0].attempts) == ("it is broken", 2)
    assert result.verdict.exit_code == 2
    assert "word" not in str(result.tasks)


def test_ranks_are_grouped_by_the_action_that_departs_first() -> None:
    placed, outcomes = [], {}
    for action in ("forward", "check"):
        for rank in RANKS:
            name = f"{action}{rank}"
            placed.append(PlacedTask(Task(name, action, ("a", "b"), {}), rank))
            outcomes[name] = outcome_of(name, {"head": 3.0} if (action, rank) == ("forward", 1) else {}, [])
    assert groups(judge_batch(Job("job", tuple(placed)), outcomes)) == [
        ("aligned", (0, 2, 3, 4, 5, 6, 7)),
        ("odd", (1,)),
    ]


def reasons(result: Any) -> dict[tuple[int, ...], str]:
    return {group.ranks: str(group.reason) for group in result.groups}


def test_amounts_close_to_each_other_are_alike_wherever_a_power_of_ten_lies() -> None:
    result = judged(lambda rank, step: {"head": 3.0 + rank / 10})  # the root of ten is 3.16
    assert groups(result) == [("alike", tuple(RANKS))]
    result = judged(lambda rank, step: {"head": 4000.0 if rank == 3 else 3.0 + rank / 10})
    assert groups(result) == [("alike", (0, 1, 2, 4, 5, 6, 7)), ("odd", (3,))]
    assert "by another amount, than the 7 ranks that differ alike" in reasons(result)[3,]


def test_a_rank_that_departs_beside_others_is_not_said_to_be_the_only_one() -> None:
    result = judged(lambda rank, step: {"embed" if rank == 2 else "head": 4.0} if rank in (2, 6) else {})
    said = reasons(result)
    assert set(said) == {(0, 1, 3, 4, 5, 7), (2,), (6,)}
    assert "and the other" not in said[2,] + said[6,]
    assert "6 ranks agree with it" in said[2,]
    assert result.first.ranks == (2,)
    assert "embed on rank 2 at step 0" in result.verdict.reason


def test_several_bad_cards_are_not_called_one() -> None:
    said = reasons(judged(lambda rank, step: {"head": 4.0} if rank in (2, 6) else {}))
    assert "2 ranks are not aligned, and the other 6 ranks are: probably bad cards" in said[2, 6]


def test_a_check_is_not_said_to_agree_with_a_reference() -> None:
    placed = [PlacedTask(Task(f"r{rank}", "check", ("a",), {}), rank) for rank in RANKS]
    outcomes = {f"r{rank}": outcome_of(f"r{rank}", {"head": 1.0} if rank == 1 else {}, []) for rank in RANKS}
    said = " ".join(reasons(judge_batch(Job("job", tuple(placed)), outcomes)).values())
    assert "reference" not in said
    assert "1 rank holds NaN or Inf and the other 7 ranks do not" in said


def test_tensors_of_one_name_in_several_files_of_a_rank_are_kept_apart() -> None:
    placed, outcomes = [], {}
    for rank in RANKS:
        for part in ("model", "optimizer"):
            name = f"{part}{rank}"
            odd = rank == 4 and part == "model"
            prints: list[list[str | None]] = [["w", f"4:{part}", "4:odd" if odd else f"4:{part}"]]
            placed.append(PlacedTask(Task(name, "diff", ("a", "b"), {}), rank, None, part))
            outcomes[name] = outcome_of(name, {}, prints)
    (one,) = judge_batch(Job("job", tuple(placed)), outcomes).unequal
    assert (one.name, one.ranks, one.equal) == ("w (model)", (4,), 7)


def test_of_as_many_ranks_on_both_sides_those_that_hold_the_references_values_are_right() -> None:
    (one,) = judged(prints=lambda rank, step: [["w", "4:z", "4:a" if rank in (0, 3, 5, 6) else "4:z"]]).unequal
    assert (one.ranks, one.equal) == ((0, 3, 5, 6), 4)


def test_a_glob_of_the_job_file_that_fits_no_tensor_leaves_the_job_undone() -> None:
    result = judged(prints=replicated, replicated=("norm.*", "nrom.*"), sharded=("experts.*",))
    assert result.unused == ("nrom.*", "experts.*")
    assert result.verdict.exit_code == 2
    assert "nrom.*" in result.verdict.reason
    assert judged(prints=replicated, replicated=("norm.*",)).unused == ()


def test_layers_are_those_of_the_action_that_departs() -> None:
    placed, outcomes = [], {}
    for action in ("check", "diff"):
        for rank in RANKS:
            name = f"{action}{rank}"
            placed.append(PlacedTask(Task(name, action, ("a", "b"), {}), rank))
            outcomes[name] = outcome_of(name, {"head": 3.0} if (action, rank) == ("diff", 1) else {}, [])
    result = judge_batch(Job("job", tuple(placed)), outcomes)
    assert [one.layer for one in result.layers if "not aligned" in one.outcomes] == ["head"]


def test_ranks_that_the_candidate_numbers_otherwise_are_told_by_their_shards() -> None:
    moved = lambda rank, step: [["w", f"4:{rank}", f"4:{(rank + 1) % 8}"], ["norm", "4:same", "4:same"]]  # noqa: E731
    result = judged(lambda rank, step: {"head": 4.0}, moved)
    assert result.renumbered == tuple((rank, (rank + 1) % 8) for rank in RANKS)
    assert "numbers its ranks otherwise" in result.verdict.reason
    assert "0 is 1, 1 is 2" in result.verdict.reason


@pytest.mark.parametrize(
    "prints",
    [
        lambda rank: [["w", f"4:{rank}", f"4:{rank}"]],  # as they should be
        lambda rank: [["w", f"4:{rank}", f"4:other{rank}"]],  # values of their own
        lambda rank: [["w", f"4:{rank % 2}", f"4:{(rank + 1) % 2}"]],  # no rank of the reference is known by it
        lambda rank: [["w", f"4:{rank}", "4:0"]],  # all hold the shard of one
        lambda rank: [["w", "4:same", "4:same"]],
        lambda rank: [],
    ],
)
def test_ranks_whose_shards_do_not_tell_it_are_not_said_to_be_numbered_otherwise(prints: Any) -> None:
    assert judged(lambda rank, step: {"head": 4.0}, lambda rank, step: prints(rank)).renumbered == ()
