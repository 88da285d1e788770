"""Logs of several ranks in one file, as launchers write them."""

from __future__ import annotations

import pytest

from align.curves.jobs import choose_rank, lines_by_rank
from align.curves.log_sources import LogSource
from align.errors import UsageError

FORMS = {
    "torchrun": "[default{}]:",
    "torch": "[rank{}]: ",
    "msrun": "[Rank {}] ",
    "open mpi": "[1,{}]<stdout>:",
    "open mpi 5": "[prterun-host-1234@1,{}]<stdout>: ",
    "coloured": "\x1b[36m[rank{}]:\x1b[0m",
    "grep": "device_{}/log:",
    "grep -n": "./train_parallel{}/train.log:17:",
    "srun": "{}: ",
    "padded srun": "{:3}: ",
}


def _interleaved(form: str, ranks: tuple[int, ...] = (2, 0, 11)) -> LogSource:
    return LogSource.of_text(
        "".join(f"{form.format(rank)}step {step} of {rank}\n" for step in (1, 2) for rank in ranks)
    )


def _lines(source: LogSource) -> list[tuple[int, str]]:
    return [(number, line) for number, line in source.lines() if line]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_lowest_rank_is_read_without_its_prefix_and_keeps_its_line_numbers(form: str) -> None:
    ranked = choose_rank(_interleaved(form))
    assert _lines(ranked.source) == [(2, "step 1 of 0"), (5, "step 2 of 0")]
    assert (ranked.rank, ranked.ranks, ranked.left_out) == (0, (0, 2, 11), 4)
    assert ranked.notes == ("the log has lines of ranks 0, 2, 11: only those of rank 0 are read",)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_another_rank_can_be_chosen_and_one_that_is_not_there_is_refused(form: str) -> None:
    assert _lines(choose_rank(_interleaved(form), 11).source) == [(3, "step 1 of 11"), (6, "step 2 of 11")]
    with pytest.raises(UsageError, match="no lines of rank 1: it has ranks 0, 2, 11"):
        choose_rank(_interleaved(form), 1)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_lines_are_parted_by_rank_and_those_of_nobody_stand_apart(form: str) -> None:
    parted = lines_by_rank(_interleaved(form))
    assert list(parted) == [None, 0, 2, 11]
    assert [line for _, line in _lines(parted[11])] == ["step 1 of 11", "step 2 of 11"]
    assert _lines(parted[None]) == []


def test_one_rank_alone_needs_no_note() -> None:
    ranked = choose_rank(_interleaved("[rank{}]: ", (3,)))
    assert _lines(ranked.source) == [(1, "step 1 of 3"), (2, "step 2 of 3")]
    assert (ranked.rank, ranked.notes, ranked.left_out) == (3, (), 0)


def test_lines_of_nobody_stay_and_progress_bars_lose_the_prefix_of_each_part() -> None:
    text = "starting\n[rank0]: 10%\r[rank0]: 20%\r\n[rank1]: 30%\r[rank1]: 40%\n[rank0]: done\n"
    assert _lines(choose_rank(LogSource.of_text(text)).source) == [(1, "starting"), (2, "10%"), (2, "20%"), (4, "done")]


@pytest.mark.parametrize(
    "text",
    [
        "1: loss 2.5\n2: loss 2.25\n3: loss 2.0\n",
        "step,loss\n1,2.5\n2,2.25\n",
        "[iter 1]: loss 2.5\n[iter 2]: loss 2.25\n",
        "0: a\nloss 2.5\nloss 2.25\nloss 2\n0: b\n",
        "",
    ],
)
def test_a_log_that_tells_no_ranks_is_left_as_it_is(text: str) -> None:
    source = LogSource.of_text(text)
    assert choose_rank(source).source is source
    with pytest.raises(UsageError, match="its lines name no rank"):
        choose_rank(source, 0)
