"""Lines of their own that say that a step was skipped, as trainers print them, and what follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align import compare_losses
from align.curves.compare_losses import describe_log

if TYPE_CHECKING:
    from pathlib import Path

DEEPSPEED = (
    "[loss_scaler.py:188:update_scale] [deepspeed] OVERFLOW! Rank {rank} Skipping step. Attempted loss scale: {scale}"
)
APEX = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {scale}.0"
FAIRSEQ = "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: {scale}.0"
MINDYOLO = "2024-12-25 09:58:34,125 [WARNING] overflow, drop the step, loss scale adjust to {scale}.0"
ESPNET = "[trainer] WARNING: The grad norm is nan. Skipping updating the model. ({scale})"
INLINE = "epoch: 1 step: {step}, loss is {loss}, overflow is {flag}, scale is 1024.0"


def _log(folder: Path, text: str, name: str = "train.log") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def _console(line: str, skips: int, every: int = 1, lag: int = 0) -> str:
    """Records of every so many steps, with a line for each of the first skipped ones."""
    text = ""
    for step in range(1, 61):
        if step <= skips:
            text += line.format(rank=0, scale=2 ** (40 - step)) + "\n"
        if step % every == 0:
            done = max(step - min(step, skips) * bool(lag), 0)
            text += f"Epoch: [1/1], batch: [{step}/60], loss: {2.5 * 0.98**done:.6f}\n"
    return text


@pytest.mark.parametrize("line", [DEEPSPEED, APEX, FAIRSEQ, MINDYOLO, ESPNET])
@pytest.mark.parametrize("every", [1, 5])
def test_skipped_steps_are_those_before_the_next_record(line: str, every: int, tmp_path: Path) -> None:
    summary = describe_log(_log(tmp_path, _console(line, 10, every)))
    assert sum(count for _, _, count in summary.skipped_steps) == 10
    assert (summary.skipped_steps[0][0], summary.skipped_steps[-1][1]) == (1, 10)
    assert any("10 steps changed no weight" in note for note in summary.notes)


def test_several_processes_say_it_once_a_step(tmp_path: Path) -> None:
    lines = "\n".join(DEEPSPEED.format(rank=rank, scale=65536) for rank in range(8))
    text = f"{lines}\nEpoch: [1/1], batch: [1/60], loss: 2.5\nEpoch: [1/1], batch: [2/60], loss: 2.4\n"
    assert describe_log(_log(tmp_path, text)).skipped_steps == ((1, 1, 1),)


def test_an_overflow_that_updates_all_the_same_is_no_skipped_step(tmp_path: Path) -> None:
    text = _console("[WARNING] overflow, still update, loss scale adjust to {scale}", 10)
    assert describe_log(_log(tmp_path, text)).skipped_steps == ()


def test_a_flag_in_the_record_counts_where_the_format_knows_none(tmp_path: Path) -> None:
    lines = [INLINE.format(step=step, loss=2.5 - step / 10, flag=step in (2, 4)) for step in range(1, 7)]
    assert describe_log(_log(tmp_path, "\n".join(lines) + "\n")).skipped_steps == ((2, 2, 1), (4, 4, 1))


def test_what_comes_after_the_last_loss_has_none(tmp_path: Path) -> None:
    text = _console(APEX, 0) + "\n".join(APEX.format(scale=2**n) for n in (4, 3, 2)) + "\n"
    summary = describe_log(_log(tmp_path, text))
    assert summary.skipped_steps == ()
    assert any("3 lines after the last loss say" in note for note in summary.notes)


@pytest.mark.parametrize(("line", "skips"), [(DEEPSPEED, 16), (APEX, 12), (FAIRSEQ, 20)])
def test_many_in_a_row_are_the_trouble(line: str, skips: int, tmp_path: Path) -> None:
    sides = _log(tmp_path, _console(line, 0), "a.log"), _log(tmp_path, _console(line, skips, lag=1), "b.log")
    comparison = compare_losses(*sides)
    assert comparison.trouble == "persistent overflow"
    assert "with the initial weights" in comparison.next_command
    assert any(f"{skips} steps changed no weight in the candidate only" in note for note in comparison.notes)


def test_means_since_the_last_print_hold_the_skipped_steps(tmp_path: Path) -> None:
    def printed(before: str) -> str:
        return before + "".join(
            f"{{'loss': {2.5 - n / 10:.4f}, 'learning_rate': 5e-05, 'epoch': {n / 10}}}\n"
            f"  1%|1         | {10 * n}/1000 [00:12<3:20:00, 12.05s/it]\n"
            for n in range(1, 9)
        )

    skips = "".join(DEEPSPEED.format(rank=0, scale=2**n) + "\n" for n in (20, 19))
    comparison = compare_losses(_log(tmp_path, printed(""), "a.log"), _log(tmp_path, printed(skips), "b.log"))
    assert comparison.verdict.coverage.compared == 8
    assert comparison.verdict.outcome.value == "aligned"
