"""A user's own regular expression in place of a format."""

from __future__ import annotations

import pytest

from align.curves.log_parts.line_reader import PatternFormat
from align.curves.log_sources import LogSource
from align.curves.loss_log import EPOCH_MEAN, LossLog
from align.curves.place_on_axis import place_on_axis
from align.errors import EmptyLogError, NoStepError, UnknownEpochLengthError, UsageError


def _read(pattern: str, text: str) -> LossLog:
    return PatternFormat(pattern).read(LogSource.of_text(text))


def test_named_groups_are_the_step_the_loss_and_metrics() -> None:
    text = "start\n<3> err=2.5 rate 1e-3\n<4> err=2.25 rate 1e-3\n\n<5> err=nan\n"
    log = _read(r"<(?P<step>\d+)> err=(?P<loss>\S+)(?: rate (?P<lr>\S+))?", text)
    assert place_on_axis(log).steps.tolist() == [3, 4, 5]
    assert place_on_axis(log, "lr").values.tolist() == [1e-3, 1e-3]
    assert (log.table.lines.tolist(), log.ignored_lines) == ([2, 3, 5], 1)


def test_steps_inside_epochs_and_their_number_are_told_by_groups() -> None:
    text = "".join(f"e{epoch} {step}/2 {epoch + step / 10}\n" for epoch in (1, 2) for step in (1, 2))
    log = _read(r"e(?P<epoch>\d) (?P<step>\d)/(?P<total>\d) (?P<loss>\S+)", text)
    curve = place_on_axis(log)
    assert (curve.steps.tolist(), curve.values.tolist()) == ([1, 2, 3, 4], [1.1, 1.2, 2.1, 2.2])


def test_losses_by_epoch_alone_are_taken_as_its_means_with_a_note() -> None:
    log = _read(r"epoch (?P<epoch>\d+): (?P<loss>\S+)", "epoch 1: 2.5\nepoch 2: 2.25\n")
    assert (log.counting, log.table.metrics["loss"].window) == ("epoch", EPOCH_MEAN)
    assert "the log counts only epochs: each loss is taken as the mean of its epoch" in log.notes


def test_a_loss_that_is_no_number_is_nan_with_a_note() -> None:
    log = _read(r"(?P<step>\d+) (?P<loss>\S+)", "1 2.5\n2 None\n3 oops\n4 2.0\n")
    assert place_on_axis(log).steps.tolist() == [1, 2, 3, 4]
    assert "1 loss is null (first: line 2), kept as NaN" in log.notes
    assert "1 loss is no number (first: 'oops' in line 3), kept as NaN" in log.notes


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "is no regular expression"),
        (r"(?P<step>\d+)", "has no group loss"),
        (r"(?P<loss>\d+)", r"has no group step \(or epoch\)"),
        (r"(\d+) (\S+)", r"has no group loss and no group step \(or epoch\)"),
    ],
)
def test_an_expression_that_cannot_tell_a_loss_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        PatternFormat(pattern)


def test_an_expression_that_finds_nothing_says_what_was_looked_for() -> None:
    pattern = PatternFormat(r"(?P<step>\d+): (?P<loss>\S+)")
    assert not pattern.recognizes(LogSource.of_text("nothing here\n"))
    with pytest.raises(EmptyLogError, match=r"looked for:\n  lines in which the pattern"):
        pattern.read(LogSource.of_text("nothing here\n"))


def test_steps_that_are_none_are_told() -> None:
    pattern = r"(?P<step>\S+): (?P<loss>\S+)"
    assert any("1 row is left out" in note for note in _read(pattern, "1: 2.5\n-2: 2.4\n").notes)
    with pytest.raises(NoStepError, match=r"the first is '0\.5' in line 1"):
        _read(pattern, "0.5: 2.5\n1.5: 2.4\n")


def test_an_expression_that_would_take_for_ever_is_stopped() -> None:
    with pytest.raises(UsageError, match="takes more than 3 seconds") as caught:
        _read(r"(?P<step>\d+) (x|xx)+[yz] (?P<loss>\S+)", "1 " + "x" * 60 + " 2.5\n")
    assert "repetition inside a repetition" in caught.value.hint


def test_an_overflow_counts_skipped_steps() -> None:
    text = "".join(f"step: {n}, loss: {3 - n / 4}, overflow:{n == 2}, scale:1.0\n" for n in (1, 2, 3))
    words = _read(r"step: (?P<step>\d+), loss: (?P<loss>[\d.]+), overflow:(?P<overflow>\w+)", text)
    counts = _read(r"(?P<step>\d+) (?P<skipped>\d+) (?P<loss>\S+)", "10 0 2.5\n20 3 2.25\n")
    assert words.table.skipped is not None
    assert counts.table.skipped is not None
    assert (words.table.skipped.tolist(), counts.table.skipped.tolist()) == ([0, 1, 0], [0, 3])
    assert sorted(words.table.metrics) == ["loss"]


def test_a_record_may_stand_in_several_lines() -> None:
    text = "".join(f"step {n}\r\n  lr 0.1\r\n  loss {3 - n / 4}\r\n\r\n" for n in (1, 2, 3))
    log = _read(r"^step (?P<step>\d+)$\n.*lr (?P<lr>\S+)\n.*loss (?P<loss>\S+)", text)
    curve = place_on_axis(log)
    assert (curve.steps.tolist(), curve.values.tolist()) == ([1, 2, 3], [2.75, 2.5, 2.25])
    assert log.table.lines.tolist() == [3, 7, 11]
    assert log.table.metrics["lr"].values.tolist() == [0.1] * 3


def test_a_total_that_the_pattern_leaves_is_proposed_where_it_settles_the_steps() -> None:
    text = "".join(f"e{e} {step}/100 {e + step / 10}\n" for e in (1, 2) for step in (10, 50))
    with pytest.raises(UnknownEpochLengthError, match="prints only some steps") as caught:
        place_on_axis(_read(r"e(?P<epoch>\d) (?P<step>\d+)/\d+ (?P<loss>\S+)", text))
    assert "(?P<total>" in caught.value.hint
    settled = _read(r"e(?P<epoch>\d) (?P<step>\d+)\s*/\s*(?P<total>\d+) (?P<loss>\S+)", text)
    assert place_on_axis(settled).steps.tolist() == [10, 50, 110, 150]
    with pytest.raises(UnknownEpochLengthError) as plain:
        place_on_axis(_read(r"e(?P<epoch>\d) (?P<step>\d+) (?P<loss>\S+)", text.replace("/100", "")))
    assert "--candidate-steps-per-epoch" in plain.value.hint


def test_an_empty_counter_numbers_the_records_anew_below_each_header() -> None:
    pattern = r"^loss;|^(?P<step>)(?P<loss>[\d.]+);"
    log = _read(pattern, "loss;acc\n2.5;0.1\n\n2.25;0.2\n2.0;0.3\n")
    assert place_on_axis(log).steps.tolist() == [1, 2, 3]
    twice = place_on_axis(_read(pattern, "loss;acc\n2.5;0.1\n2.25;0.2\nloss;acc\n2.5;0.1\n2.25;0.2\n2.0;0.3\n"))
    assert (twice.steps.tolist(), twice.values.tolist()) == ([1, 2, 3], [2.5, 2.25, 2.0])
