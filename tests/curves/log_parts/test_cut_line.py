"""A last line that was cut in the middle: left out, whatever the format, where others show that it was longer."""

from __future__ import annotations

import re

import pytest

from align.curves.log_parts.record_lines import without_cut_line
from align.curves.log_sources import LogSource

LINES = {
    "a word": (b"step 1 loss 2.5 time 3s\nstep 2 loss 2.25 time 3s\n", b"step 3 loss 2.125 ti"),
    "a number": (
        b"epoch: 1 step: 1, loss is 2.5000\nepoch: 1 step: 2, loss is 2.2500\n",
        b"epoch: 1 step: 3, loss is 2.1",
    ),
    "digits": (b"step: 1, loss is 420.11783\nstep: 2, loss is 476.802\n", b"step: 3, loss is 3.128"),
    "a step that grew": (b"0.5,8\n0.4,9\n0.3,10\n", b"0.2,1"),
    "an object": (b'{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n', b'{"step": 3, "los'),
}
WHOLE = {
    "a line like the others": (b"1,2.5\n2,2.25\n3,2.125\n", b"4,2.0"),
    "one digit less": (b"step: 1, loss is 420.11783\nstep: 2, loss is 476.802\n", b"step: 3, loss is 3.1283"),
    "as many decimals": (b"step: 1, loss is 420.1178\nstep: 2, loss is 476.8020\n", b"step: 3, loss is 3.1283"),
    "another line": (b"step 1 loss 2.5\nstep 2 loss 2.25\n", b"done after 3 s"),
    "the end of a document": (b'{\n "a": 1\n},\n{\n "b": 2\n},\n', b"}"),
    "a lone line": (b"", b"step 1 lo"),
    "too few to tell": (b"step 1 loss 2.50\n", b"step 2 loss 2"),
}


@pytest.mark.parametrize(("before", "last"), LINES.values(), ids=LINES)
def test_the_beginning_of_a_line_is_left_out_with_a_note(before: bytes, last: bytes) -> None:
    source, notes = without_cut_line(LogSource("log", before + last))
    assert source.data == before
    assert notes == ("the last line was cut: it is left out",)
    assert without_cut_line(LogSource("log", before + last + b"\n"))[1] == ()


@pytest.mark.parametrize(("before", "last"), WHOLE.values(), ids=WHOLE)
def test_a_last_line_that_may_be_whole_stays(before: bytes, last: bytes) -> None:
    source, notes = without_cut_line(LogSource("log", before + last))
    assert (source.data, notes) == (before + last, ())


def test_where_the_lines_of_a_format_are_known_one_more_is_enough() -> None:
    cut = LogSource.of_text("epoch 1\nstep 1 loss 2.50\nsaved 3 files\nstep 2 loss 2.1")
    assert without_cut_line(cut) == (cut, ())
    source, notes = without_cut_line(cut, re.compile("step [0-9]+ loss").search)
    assert source.data.endswith(b"saved 3 files\n")
    assert notes == ("the last line was cut: it is left out",)
    other = LogSource.of_text("step 1 loss 2.50\nsaved 3 files of 20\nsaved 3 f")
    assert without_cut_line(other, re.compile("step [0-9]+ loss").search) == (other, ())
