"""What a loss is the mean of, as the user says it."""

from __future__ import annotations

import pytest

from align.curves.log_sources import LogSource
from align.curves.loss_log import EPOCH_MEAN, EPOCH_SO_FAR, RAW, SINCE_LAST_PRINT, Window, find_window
from align.curves.losslogs.tables import CsvFormat
from align.curves.read_logs import declare_window
from align.errors import MetricMissingError, UsageError

CSV = CsvFormat()


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("raw", RAW),
        ("since last print", SINCE_LAST_PRINT),
        ("epoch so far", EPOCH_SO_FAR),
        (" Epoch  mean ", EPOCH_MEAN),
        ("mean of last 10", Window("mean of last", 10)),
        ("median of last 20", Window("median of last", 20)),
        ("mean of last 1", RAW),
    ],
)
def test_each_window_has_its_words(text: str, window: Window) -> None:
    assert find_window(text) == window


@pytest.mark.parametrize("text", ["", "mean", "mean of last", "mean of last 0", "mean of last -3", "10", "epoch"])
def test_other_words_are_refused_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_window(text)
    assert "'mean of last 10', 'median of last 10', 'raw', 'since last print'" in caught.value.hint


def test_the_training_loss_alone_is_what_is_said_and_that_is_noted() -> None:
    log = declare_window(CSV.read(LogSource.of_text("step,loss,lr\n10,2.5,1\n")), find_window("mean of last 10"))
    assert log.table.metrics["loss"].window == Window("mean of last", 10)
    assert log.table.metrics["lr"].window == RAW
    assert "each value of 'loss' is taken as you gave it: mean of last 10" in log.notes


def test_a_log_without_a_training_loss_has_no_window_to_be_told() -> None:
    with pytest.raises(MetricMissingError, match="it has: val_loss"):
        declare_window(CSV.read(LogSource.of_text("step,val_loss\n10,2.5\n")), RAW)
