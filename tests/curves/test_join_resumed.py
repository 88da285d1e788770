"""The files of one training put one behind the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.curves.jobs import join_logs
from align.curves.log_sources import LogSource
from align.curves.losslogs.tables import CsvFormat
from align.curves.place_on_axis import place_on_axis
from align.errors import UnlikeLogsError

if TYPE_CHECKING:
    from align.curves.loss_log import LossLog

CSV = CsvFormat()


def _csv(text: str, label: str) -> LossLog:
    return CSV.read(LogSource.of_text(text, label))


def test_records_stand_in_order_with_the_line_numbers_of_their_own_files() -> None:
    first, second = _csv("step,loss,lr\n1,2.5,0.1\n2,2.25,0.1\n", "a"), _csv("step,loss\n3,2\n", "b")
    joined = join_logs([first, second], "both")
    assert joined.table.lines.tolist() == [2, 3, 2]
    assert (joined.label, joined.notes[0], joined.ignored_lines) == ("both", "2 files in this order: a, b", 2)
    curve = place_on_axis(joined)
    assert (curve.steps.tolist(), curve.values.tolist()) == ([1, 2, 3], [2.5, 2.25, 2.0])
    assert place_on_axis(joined, "lr").steps.tolist() == [1, 2]


def test_points_that_a_resumed_run_prints_again_take_the_place_of_the_first() -> None:
    joined = join_logs([_csv("step,loss\n1,2.5\n2,2.25\n3,9\n", "a"), _csv("step,loss\n2,2.0\n3,1.75\n", "b")], "both")
    curve = place_on_axis(joined)
    assert (curve.steps.tolist(), curve.values.tolist()) == ([1, 2, 3], [2.5, 2.0, 1.75])
    assert any("goes back" in note for note in curve.notes)


def test_what_a_file_noted_is_told_with_its_name() -> None:
    joined = join_logs([_csv("step,loss\n1,2.5\n2,null\n", "a"), _csv("step,loss\n3,2\n", "b")], "both")
    assert "a: 1 loss is null (first: line 3), kept as NaN" in joined.notes


def test_a_file_of_one_epoch_does_not_hide_that_steps_start_again() -> None:
    whole = "epoch,step,loss\n0,0,1.5\n0,1,1.4\n1,0,1.3\n1,1,1.2\n"
    joined = join_logs([_csv(whole, "a"), _csv("epoch,step,loss\n2,0,1.1\n2,1,1.0\n", "b")], "both")
    assert place_on_axis(joined).steps.tolist() == [1, 2, 3, 4, 5, 6]


def test_a_single_log_stays_as_it_is() -> None:
    log = _csv("step,loss\n1,2.5\n", "a")
    assert join_logs([log], "a") is log


def test_logs_whose_losses_are_unlike_things_are_no_one_log() -> None:
    steps, epochs = _csv("step,loss\n1,2.5\n", "a"), _csv("epoch,loss\n1,2.5\n", "b")
    with pytest.raises(UnlikeLogsError, match="a and b cannot be read as one log: they count different things"):
        join_logs([steps, epochs], "both")
    with pytest.raises(UnlikeLogsError, match="go by other names"):
        join_logs([steps, _csv("step,train_loss\n1,2.5\n", "b")], "both")
