"""Two files in, a verdict out: what logs hide, and every error a user can cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.curves.compare_losses import compare_losses, describe_log
from align.errors import (
    AmbiguousLogError,
    EmptyLogError,
    MetricMissingError,
    MissingFileError,
    StepsPerEpochError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOSSES = [2.302585, 2.251293, 2.190871, 2.113337, 2.040221, 1.950087, 1.871003, 1.790114]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def _csv(losses: list[float], first: int = 0) -> str:
    return "step,loss\n" + "".join(f"{first + i},{loss!r}\n" for i, loss in enumerate(losses))


def _monitor(losses: list[float], length: int = 4) -> str:
    return "".join(
        f"epoch: {i // length + 1} step: {i % length + 1}, loss is {loss!r}\n" for i, loss in enumerate(losses)
    )


def _mindcv(losses: list[float], length: int = 4) -> str:
    return "".join(
        f"[2026-11-20 08:43:05] mindcv.utils.callbacks INFO - Epoch: [{i // length + 1}/2], "
        f"batch: [{i % length + 1}/{length}], loss: {loss:.6f}, lr: 0.100000, time: 0.1s\n"
        for i, loss in enumerate(losses)
    )


def _jsonl(losses: list[float], first: int = 1) -> str:
    return "".join(f'{{"step": {first + i}, "loss": {loss!r}}}\n' for i, loss in enumerate(losses))


WRITERS = {"csv": _csv, "monitor": _monitor, "mindcv": _mindcv, "jsonl": _jsonl}


@pytest.mark.parametrize("candidate", WRITERS)
@pytest.mark.parametrize("reference", WRITERS)
def test_the_same_losses_in_any_two_formats_are_aligned(reference: str, candidate: str, write) -> None:
    comparison = compare_losses(
        write("reference.log", WRITERS[reference](LOSSES)), write("candidate.log", WRITERS[candidate](LOSSES))
    )
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert comparison.verdict.coverage.compared == 8
    assert not comparison.points.difference.any()
    assert comparison.verdict.coverage.unmatched_candidate == comparison.verdict.coverage.unmatched_reference == 0


@pytest.mark.parametrize("candidate", WRITERS)
def test_a_planted_difference_is_found_at_its_step_in_any_format(candidate: str, write) -> None:
    changed = [*LOSSES[:5], *(loss + 0.1 for loss in LOSSES[5:])]
    comparison = compare_losses(write("r.csv", _csv(LOSSES)), write("c.log", WRITERS[candidate](changed)))
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    assert comparison.first_divergent_step == 6


def test_a_nan_line_shifts_nothing_and_is_found(write) -> None:
    lost = [*LOSSES[:3], float("nan"), *LOSSES[4:]]
    comparison = compare_losses(write("r.csv", _csv(LOSSES)), write("c.jsonl", _jsonl(lost).replace("nan", "NaN")))
    assert (comparison.trouble, comparison.first_divergent_step) == ("NaN", 4)
    assert np.delete(comparison.points.difference, 3).tolist() == [0.0] * 7


def test_step_10_comes_after_step_2_and_all_steps_are_compared(write) -> None:
    losses = [2.0 - 0.1 * i for i in range(12)]
    comparison = compare_losses(write("r.csv", _csv(losses)), write("c.csv", _csv([*losses[:-1], 5.0])))
    assert comparison.points.step.tolist() == list(range(1, 13))
    assert comparison.first_divergent_step == 12


def test_no_common_step_could_not_be_compared(write) -> None:
    comparison = compare_losses(
        write("r.csv", "step,loss\n1,2.0\n3,1.9\n"), write("c.csv", "step,loss\n10,2.0\n20,1.9\n")
    )
    assert comparison.verdict.outcome is Outcome.NOT_COMPARED
    assert comparison.verdict.exit_code == 2


def test_epoch_means_meet_the_means_of_the_steps_that_they_cover(write) -> None:
    means = [sum(LOSSES[:4]) / 4, sum(LOSSES[4:]) / 4]
    rows = "".join(f"{epoch},{mean!r}\n" for epoch, mean in enumerate(means, 1))
    comparison = compare_losses(write("r.csv", _csv(LOSSES)), write("c.csv", f"epoch,loss\n{rows}"), steps_per_epoch=4)
    assert comparison.points.step.tolist() == [4, 8]
    assert np.abs(comparison.points.difference).max() < 1e-12


def test_losses_printed_with_three_decimals_are_not_blamed_for_it(write) -> None:
    small = [loss / 500 for loss in LOSSES]
    rounded = "step,loss\n" + "".join(f"{i},{loss:.3f}\n" for i, loss in enumerate(small))
    comparison = compare_losses(write("r.csv", _csv(small)), write("c.csv", rounded))
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert np.abs(comparison.points.difference).max() > 1e-4
    assert "hide differences of up to 0.0005" in comparison.verdict.reason


def test_a_loss_of_exactly_zero_does_not_pass_one_of_0_04(write) -> None:
    zeros = write("r.csv", _csv([0.0] * 60))
    comparison = compare_losses(zeros, write("c.csv", _csv([0.04 + i * 1e-6 for i in range(60)])))
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    assert compare_losses(zeros, write("t.csv", _csv([0.0] * 59 + [1e-9]))).verdict.outcome is Outcome.NOT_ALIGNED


def test_a_learning_rate_of_0_1_does_not_pass_one_of_0_14(write) -> None:
    left, right = ("".join(f'{{"step": {i}, "loss": 2.5, "lr": {lr}}}\n' for i in range(9)) for lr in (0.1, 0.14))
    comparison = compare_losses(write("r.jsonl", left), write("c.jsonl", right), metric="lr")
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED


@pytest.mark.parametrize("null", ["null", "nan", "NaN", "-nan", "-inf", "None"])
def test_a_third_of_a_run_without_a_number_is_nan_in_any_format(null: str, write) -> None:
    lines = {
        "c.jsonl": "".join(f'{{"step": {i + 1}, "loss": {null if i > 5 else LOSSES[i]}, "lr": 1}}\n' for i in range(8)),
        "c.log": "".join(f"epoch: 1 step: {i + 1}, loss is {null if i > 5 else LOSSES[i]}\n" for i in range(8)),
        "c.csv": "step,loss,lr\n" + "".join(f"{i + 1},{null if i > 5 else LOSSES[i]},1\n" for i in range(8)),
    }
    for name, text in lines.items():
        comparison = compare_losses(write("r.csv", _csv(LOSSES)), write(name, text))
        assert (comparison.trouble, comparison.first_divergent_step) == ("NaN", 7)


def test_an_explicit_null_in_a_trainer_state_is_nan(write) -> None:
    entries = ", ".join(f'{{"loss": {"null" if i == 2 else 2.5}, "step": {i}}}' for i in (1, 2, 3))
    summary = describe_log(write("trainer_state.json", f'{{"log_history": [{entries}], "global_step": 3}}'))
    assert summary.non_finite_steps == (2,)


def test_a_log_from_0_that_lost_its_first_line_is_told_and_settled_by_the_option(write) -> None:
    losses = [loss + 0.03 * (i % 3) for i, loss in enumerate(LOSSES * 2)]
    paths = write("r.csv", _csv(losses)), write("c.csv", "step,loss\n" + _csv(losses).split("\n", 2)[2])
    comparison = compare_losses(*paths)
    assert comparison.trouble == "counted one step apart"
    assert "--candidate-base 0" in comparison.next_command
    assert compare_losses(*paths, base=(None, 0)).verdict.outcome is Outcome.ALIGNED


def test_a_sparse_log_that_counts_from_0_is_told_by_its_distance(write) -> None:
    sparse = "step,loss\n" + "".join(f"{step},{step / 7}\n" for step in range(9, 100, 10))
    monitor = "".join(f"epoch: 1 step: {step + 1}, loss is {step / 7}\n" for step in range(9, 100, 10))
    comparison = compare_losses(write("r.csv", sparse), write("c.log", monitor))
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert "counting starts at 0: the steps are one less than multiples of 10" in comparison.reference.notes


def test_a_sparse_log_that_counts_from_0_and_meets_no_step_is_settled_by_the_option(write) -> None:
    steps = range(1, 20, 2)
    sparse = "step,loss\n" + "".join(f"{step},{step / 7}\n" for step in steps)
    monitor = "".join(f"epoch: 1 step: {step + 1}, loss is {step / 7}\n" for step in steps)
    paths = write("r.csv", sparse), write("c.log", monitor)
    comparison = compare_losses(*paths)
    assert comparison.verdict.outcome is Outcome.NOT_COMPARED
    assert "--reference-base 0" in comparison.next_command
    assert compare_losses(*paths, base=(0, None)).verdict.outcome is Outcome.ALIGNED


def test_sink_mode_points_meet_the_steps_that_they_stand_for(write) -> None:
    sink = f"epoch: 1 step: 4, loss is {LOSSES[3]}\nepoch: 2 step: 4, loss is {LOSSES[7]}\n"
    comparison = compare_losses(write("r.csv", _csv(LOSSES)), write("c.log", sink))
    assert comparison.points.step.tolist() == [4, 8]
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert "the first loss was not compared" in comparison.verdict.reason


def test_given_lengths_and_bases_are_used_for_the_side_they_are_given_for(write) -> None:
    sparse = "epoch,iter,loss\n0,1,2.251293\n0,3,2.113337\n1,1,1.950087\n1,3,1.790114\n"
    paths = write("r.csv", _csv(LOSSES)), write("c.csv", sparse)
    with pytest.raises(StepsPerEpochError):
        compare_losses(*paths)
    comparison = compare_losses(*paths, steps_per_epoch=(None, 4), base=(None, 0))
    assert comparison.points.step.tolist() == [2, 4, 6, 8]
    assert comparison.verdict.outcome is Outcome.ALIGNED


def test_a_missing_log_is_named(tmp_path: Path, write) -> None:
    with pytest.raises(MissingFileError, match=r"nowhere\.log"):
        compare_losses(write("r.csv", _csv(LOSSES)), tmp_path / "nowhere.log")


@pytest.mark.parametrize("content", ["\n", "Traceback (most recent call last):\n", "step,loss\n", "step,loss\nx,y\n"])
def test_a_log_without_losses_is_named(content: str, write) -> None:
    with pytest.raises(EmptyLogError, match=r"no loss found in .*empty\.log") as caught:
        compare_losses(write("empty.log", content), write("c.csv", _csv(LOSSES)))
    assert caught.value.exit_code == 2


def test_bytes_that_are_no_text_are_a_log_without_losses(tmp_path: Path) -> None:
    path = tmp_path / "events.out"
    path.write_bytes(bytes(range(256)) * 10)
    with pytest.raises(EmptyLogError):
        describe_log(path)


def test_a_log_of_a_windows_shell_is_read(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(_monitor(LOSSES).replace("\n", "\r\n").encode("utf-16"))
    assert describe_log(path).points == 8
    path.write_bytes(b"\xef\xbb\xbf" + _csv(LOSSES).encode())
    assert describe_log(path).points == 8


def test_two_formats_in_one_file_are_refused_by_name(write) -> None:
    with pytest.raises(AmbiguousLogError, match="lossmonitor, mindcv"):
        describe_log(write("both.log", _monitor(LOSSES) + _mindcv(LOSSES)))


def test_a_metric_that_is_not_there_is_answered_with_those_that_are(write) -> None:
    with pytest.raises(MetricMissingError, match=r"c\.log has no metric 'accuracy'; it has: interval_time_s, loss, lr"):
        compare_losses(
            write("r.csv", "step,loss,accuracy\n1,2.0,0.5\n"), write("c.log", _mindcv(LOSSES)), metric="accuracy"
        )


@pytest.mark.parametrize("wrong", [{"last_step": 0}, {"steps_per_epoch": 0}, {"base": 2}, {"base": (0, -1)}])
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, object], write) -> None:
    with pytest.raises(UsageError):
        compare_losses(write("r.csv", _csv(LOSSES)), write("c.csv", _csv(LOSSES)), **wrong)


def test_a_summary_tells_gaps_repeats_and_nan(write) -> None:
    text = "step,loss\n10,2.5\n20,2.4\n20,2.4\n30,nan\n60,2.1\n70,2.0\n"
    summary = describe_log(write("log.csv", text))
    assert (summary.format, summary.points, summary.cadence) == ("csv", 5, 10)
    assert (summary.first_step, summary.last_step, summary.base) == (10, 70, 1)
    assert summary.gaps == ((30, 60),)
    assert summary.duplicates == 1
    assert summary.non_finite_steps == (30,)
