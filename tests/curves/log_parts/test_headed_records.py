"""Logs whose epochs stand above their losses: without their first lines, out of order, or without any epoch."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from align.curves.place_on_axis import place_on_axis
from align.curves.read_logs import read_log
from align.errors import CannotRunError, SeveralRunsError, UnorderedLogError

if TYPE_CHECKING:
    from pathlib import Path

    from align.curves.loss_log import Curve

KERAS = [
    line
    for epoch in range(1, 5)
    for line in (
        f"Epoch {epoch}/4",
        *(f"{step}/500 [==>.......] - ETA: 3s - loss: {3 / epoch + 1 / step:.4f}" for step in range(100, 600, 100)),
    )
]
NNUNET = [
    line
    for epoch in range(6)
    for line in (f"1{epoch}:00:01: Epoch {epoch}", f"1{epoch}:30:00: train_loss {0.9 - epoch / 10:.4f}")
]


def _curve(folder: Path, lines: list[str]) -> Curve:
    path = folder / "train.log"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return place_on_axis(read_log(path))


@pytest.mark.parametrize(("lines", "missing", "left_out", "first"), [(KERAS, 3, 3, 600), (NNUNET, 1, 1, 2)])
def test_losses_above_the_first_line_that_counts_are_left_out(
    lines: list[str], missing: int, left_out: int, first: int, tmp_path: Path
) -> None:
    whole, curve = _curve(tmp_path, lines), _curve(tmp_path, lines[missing:])
    assert curve.steps.tolist() == whole.steps[whole.steps >= first].tolist()
    assert curve.values.tolist() == whole.values[whole.steps >= first].tolist()
    told = "losses" if left_out > 1 else "loss"
    assert any(note.startswith(f"{left_out} {told} above the first line") for note in curve.notes)


def test_epochs_that_no_line_numbers_are_no_run_begun_anew(tmp_path: Path) -> None:
    bars = [line for line in KERAS if not line.startswith("Epoch")]
    with pytest.raises(SeveralRunsError, match="epochs that its lines do not number"):
        _curve(tmp_path, bars)
    assert len(_curve(tmp_path, bars[:5]).steps) == 5
    assert len(_curve(tmp_path, [*bars[:5], *bars[:5]]).steps) == 5


@pytest.mark.parametrize("lines", [KERAS, NNUNET])
def test_lines_out_of_order_are_refused_and_a_second_copy_is_none(lines: list[str], tmp_path: Path) -> None:
    whole = _curve(tmp_path, lines)
    for copied in ([*lines, *lines], [line for line in lines for _ in range(2)]):
        again = _curve(tmp_path, copied)
        assert (again.steps.tolist(), again.values.tolist()) == (whole.steps.tolist(), whole.values.tolist())
    for seed in range(8):
        with pytest.raises(CannotRunError):
            _curve(tmp_path, random.Random(seed).sample(lines, len(lines)))


def test_a_log_out_of_order_says_where_its_counters_stand(tmp_path: Path) -> None:
    with pytest.raises(UnorderedLogError, match="stand in other lines above them"):
        _curve(tmp_path, [*NNUNET[1:4], *NNUNET[5:], NNUNET[0], NNUNET[4]])
