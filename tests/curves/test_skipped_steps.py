"""Logs of runs that skipped steps, as Megatron prints them (no loss, counts) and MindFormers (a loss, a mark)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.curves.compare_losses import compare_losses, describe_log
from align.words.catalogue import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from align.curves.loss_log import CurveComparison

STEPS = 300
LOSSES = 2.0 + 8.0 * np.exp(-np.arange(1, STEPS + 1) / 80.0) + 0.01 * np.sin(np.arange(1, STEPS + 1) * 1.7)
SCATTERED = frozenset(range(7, STEPS, 20))
Run = tuple[str, "Collection[int]"]


def _megatron(every: int, skipped: Collection[int]) -> str:
    lines = []
    for end in range(every, STEPS + 1, every):
        kept = [LOSSES[at - 1] for at in range(end - every + 1, end + 1) if at not in skipped]
        loss = f" lm loss: {math.fsum(kept) / len(kept):.6E} |" if kept else ""
        lines.append(
            f" iteration {end:8d}/{STEPS:8d} | consumed samples: {end * 8:12d} | "
            "elapsed time per iteration (ms): 412.7 | learning rate: 1.500E-06 | "
            f"global batch size:     8 |{loss} loss scale: 1.0 | grad norm: 21.337 | "
            f"number of skipped iterations: {every - len(kept):3d} | number of nan iterations:   0 |\n"
        )
    return "".join(lines)


def _mindformers(skipped: Collection[int]) -> str:
    return "".join(
        "2026-11-20 23:15:44,838 - mindformers[callback.py:377] - INFO - { Epoch:[  1/  1], "
        f"step:[{step:5d}/{STEPS:5d}], loss: {LOSSES[step - 1]:.3f}, per_step_time: 972ms, lr: 1.5e-06, "
        f"overflow cond: {step in skipped}, loss_scale: 1024.0, global_norm: [21.337]\n"
        for step in range(1, STEPS + 1)
    )


def _jsonl(skipped: Collection[int]) -> str:
    assert not skipped, "such a log does not tell"
    return "".join(f'{{"step": {step}, "loss": {loss!r}}}\n' for step, loss in enumerate(LOSSES.tolist(), start=1))


WRITERS: dict[str, Callable[[Collection[int]], str]] = {
    "megatron 1": lambda skipped: _megatron(1, skipped),
    "megatron 10": lambda skipped: _megatron(10, skipped),
    "mindformers": _mindformers,
    "jsonl": _jsonl,
}


@pytest.fixture
def compare(tmp_path: Path) -> Callable[..., CurveComparison]:
    def compare(reference: Run, candidate: Run, **asked: int) -> CurveComparison:
        paths = tmp_path / "reference.log", tmp_path / "candidate.log"
        for path, (writer, skipped) in zip(paths, (reference, candidate), strict=True):
            path.write_text(WRITERS[writer](skipped), encoding="utf-8")
        return compare_losses(*paths, **asked)

    return compare


def _notes(comparison: CurveComparison) -> str:
    return "\n".join(note for note in comparison.notes if "changed no weight" in note)


@pytest.mark.parametrize("reference", ["jsonl", "megatron 1", "mindformers"])
@pytest.mark.parametrize("candidate", ["megatron 1", "megatron 10"])
def test_a_run_that_skips_all_steps_from_one_on_overflows(
    compare: Callable[..., CurveComparison], reference: str, candidate: str
) -> None:
    comparison = compare((reference, ()), (candidate, range(101, STEPS + 1)))
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    assert comparison.trouble == "persistent overflow"
    assert "weights after step 100" in comparison.next_command
    assert "200 steps changed no weight in the candidate only, as gradients overflowed (first: 101)" in _notes(
        comparison
    )


@pytest.mark.parametrize("last_step", [50, 103, 104])
def test_before_the_overflow_lasts_the_logs_are_aligned(
    compare: Callable[..., CurveComparison], last_step: int
) -> None:
    runs = ("mindformers", ()), ("megatron 1", range(101, STEPS + 1))
    assert compare(*runs, last_step=last_step).verdict.outcome is Outcome.ALIGNED


def test_skipped_steps_that_have_a_loss_do_not_end_a_log(compare: Callable[..., CurveComparison]) -> None:
    comparison = compare(("jsonl", ()), ("mindformers", range(291, STEPS + 1)))
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert "10 steps changed no weight in the candidate only" in _notes(comparison)


@pytest.mark.parametrize("skipped", [range(1, 9), SCATTERED, [201], [STEPS]])
@pytest.mark.parametrize("only", ["reference", "candidate"])
def test_a_few_skipped_steps_of_one_side_are_counted_and_are_no_missing_points(
    compare: Callable[..., CurveComparison], skipped: Collection[int], only: str
) -> None:
    runs = ("mindformers", ()), ("megatron 1", skipped)
    comparison = compare(*(runs if only == "candidate" else runs[::-1]))
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert f"{counted(len(skipped), 'step')} changed no weight in the {only} only" in _notes(comparison)
    assert "on both sides" not in _notes(comparison)


@pytest.mark.parametrize("reference", ["megatron 1", "megatron 10", "mindformers"])
@pytest.mark.parametrize("candidate", ["megatron 1", "megatron 10", "mindformers"])
def test_what_both_sides_skip_is_in_one_only_for_neither(
    compare: Callable[..., CurveComparison], reference: str, candidate: str
) -> None:
    comparison = compare((reference, SCATTERED), (candidate, SCATTERED))
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert f"{len(SCATTERED)} steps changed no weight on both sides" in _notes(comparison)
    assert "only" not in _notes(comparison)
    assert "missing" not in "".join(comparison.notes)
    every = 10 if "megatron 10" in (reference, candidate) else 1
    lacking = len(SCATTERED) if "megatron 1" in (reference, candidate) and every == 1 else 0
    assert comparison.points.count == STEPS // every - lacking
    assert np.abs(comparison.points.difference).max() < 6e-4


def test_means_without_steps_that_the_other_side_did_not_skip_are_left_out(
    compare: Callable[..., CurveComparison],
) -> None:
    comparison = compare(("jsonl", ()), ("megatron 10", [55, 57, 120]))
    assert comparison.points.step.tolist() == [step for step in range(10, STEPS + 1, 10) if step not in (60, 120)]
    assert "2 values of the candidate are left out" in _notes(comparison)
    assert "3 steps changed no weight in the candidate only, as gradients overflowed (first: by step 60)" in _notes(
        comparison
    )


@pytest.mark.parametrize(
    ("writer", "skipped", "told"),
    [
        ("megatron 1", [3, 4, 201], ((3, 4, 2), (201, 201, 1))),
        ("megatron 10", [13, 14, *range(21, 41)], ((11, 20, 2), (21, 40, 20))),
        ("mindformers", [3, 4, 201], ((3, 4, 2), (201, 201, 1))),
    ],
)
def test_a_lone_log_lists_the_steps_that_it_skipped(
    tmp_path: Path, writer: str, skipped: Collection[int], told: tuple[tuple[int, int, int], ...]
) -> None:
    path = tmp_path / "some.log"
    path.write_text(WRITERS[writer](skipped), encoding="utf-8")
    summary = describe_log(path)
    assert summary.skipped_steps == told
    assert summary.gaps == ()
