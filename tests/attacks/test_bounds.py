"""What a file may cost: sizes and counts are looked at before it is parsed, and long output is drawn in little time."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from align.batch.read_job import job_faults
from align.curves.log_sources import LogSource
from align.curves.read_logs import open_log
from align.curves.thresholds import LONGEST_READ_LINE, UNPACKED_PIECE
from align.errors import UnreadableLogError
from align.report import show_result as terminal
from align.report.blocks import Column, Row, Table
from align.report.show_result import blocks_as_text

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("guarded")


@pytest.mark.parametrize("filling", [b" ", b"\n", b"1", b"a line that stands there again and again\n"])
def test_a_gz_that_unpacks_to_many_times_its_size_is_refused(filling: bytes, tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    with gzip.open(path, "wb", compresslevel=6) as stream:
        for _ in range(64):
            stream.write(filling * ((1 << 20) // len(filling)))
    with pytest.raises(UnreadableLogError, match="no log does"):
        open_log(path)
    assert len(open_log(path, 1000).data) == 1000  # its beginning shows what it is


def test_a_gz_of_a_log_is_read(tmp_path: Path) -> None:
    text = "".join(f"step {step} loss {2 / (step + 1):.6f}\n" for step in range(UNPACKED_PIECE // 20)).encode()
    (tmp_path / "train.log.gz").write_bytes(gzip.compress(text))
    assert open_log(tmp_path / "train.log.gz").data == text


def test_a_line_of_megabytes_is_read_up_to_a_bound() -> None:
    source = LogSource.of_text("step 1 loss 2.5\n" + "x" * (3 * LONGEST_READ_LINE) + "\nstep 2 loss 2.4\n")
    lines = dict(source.lines())
    assert {number: len(line) for number, line in lines.items()} == {1: 15, 2: LONGEST_READ_LINE, 3: 15}


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("over", [0, 1])
def test_only_what_is_longer_than_the_bound_is_cut(place: int, over: int) -> None:
    lengths = [LONGEST_READ_LINE // 2] * 3
    lengths[place] = LONGEST_READ_LINE + over
    source = LogSource.of_text("\n".join("x" * length for length in lengths) + "\n")
    assert [len(line) for _, line in source.lines()] == [min(length, LONGEST_READ_LINE) for length in lengths]


def table(rows: int) -> Table:
    columns = (Column("name", "path"), Column("count", "number"), Column("word"), Column(""))
    cells = ((f"model.layers.{n}.weight", f"{n:,}", "yes" if n % 3 else "a word", "") for n in range(rows))
    return Table("Rows", columns, tuple(Row(one, "bad" if one[2] == "yes" else "plain") for one in cells), "a note")


def test_a_long_table_is_drawn_as_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = replace(table(40), rows=(*table(40).rows, Row(("x" * 300, "1", "w " * 90, ""))))
    letters = replace(table(40), rows=(*table(40).rows, Row(("层.权重", "1", "字", ""))))
    for block in (table(40), table(1), wide, letters):
        monkeypatch.setattr(terminal, "LONG_TABLE", 1_000)
        drawn = blocks_as_text([block])
        monkeypatch.setattr(terminal, "LONG_TABLE", 0)
        assert blocks_as_text([block]) == drawn


def test_faults_of_a_job_with_thousands_of_keys_are_told_with_their_lines() -> None:
    text = "".join(f"key{n} = 1\n" for n in range(20_000))
    told = list(job_faults({f"key{n}": 1 for n in range(20_000)}, text))
    assert len(told) == 20_000
    assert told[777].startswith("line 778: ")
