"""The content of a log in blocks of whole cleaned lines."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.curves.log_sources import LogSource
from align.curves.thresholds import LEAST_BLOCK_BYTES, LOG_HEAD_BYTES


@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF8 + "schön\nnan".encode(),
        "schön\nnan".encode("utf-16"),
        codecs.BOM_UTF16_BE + "schön\nnan".encode("utf-16-be"),
        "schön\nnan".encode("utf-16-le"),
        "schön\nnan".encode("utf-16-be"),
    ],
)
def test_byte_order_marks_or_zeros_tell_the_encoding_and_are_taken_off(data: bytes) -> None:
    assert list(LogSource("log", data).lines()) == [(1, "schön"), (2, "nan")]


def test_bytes_that_are_no_text_spoil_their_own_line_only() -> None:
    assert list(LogSource("log", b"a\n\xff\xfeb\nc\n").lines()) == [(1, "a"), (2, "\ufffd\ufffdb"), (3, "c")]


def test_chinese_characters_of_another_encoding_are_read_beside_utf8() -> None:
    data = "损失: 1\n".encode() + "损失: 0.5\n".encode("gbk") + b"20 \xb5s\n"
    assert list(LogSource("log", data).lines()) == [(1, "损失: 1"), (2, "损失: 0.5"), (3, "20 \ufffds")]


def test_zeros_of_binary_files_are_no_encoding() -> None:
    data = b"\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7f" + bytes(range(64)) * 8
    assert LogSource("log", data).data == data


def test_blocks_are_whole_lines_with_numbers_that_go_on() -> None:
    line = "x" * 99 + "\n"
    source = LogSource.of_text(line * (3 * LOG_HEAD_BYTES // len(line)))
    blocks = list(source.blocks())
    assert len(blocks) == pytest.approx(3 * LOG_HEAD_BYTES / LEAST_BLOCK_BYTES, abs=1)
    assert [number for block in blocks for number in block.numbers.tolist()] == list(
        range(1, source.data.count(b"\n") + 1)
    )
    assert all(set(block.text.split("\n")) == {"x" * 99} for block in blocks)


def test_the_beginning_of_a_log_ends_with_a_line() -> None:
    source = LogSource.of_text("one\ntwo\nthree\n")
    assert source.head(9).data == b"one\ntwo\n"
    assert source.head(2).data == b"on"
    assert source.head(14) is source


@given(st.text("a \t\n\r\x1b[0m", max_size=60))
def test_filled_lines_are_counted_as_they_are_read(text: str) -> None:
    source = LogSource.of_text(text)
    filled = sum(bool(line.strip()) for _, line in source.lines())
    assert sum(block.count_filled() for block in source.blocks()) == filled


def test_a_text_without_a_line_end_was_cut() -> None:
    assert LogSource.of_text("a\nb").was_cut
    assert not LogSource.of_text("a\nb\n").was_cut
    assert not LogSource.of_text("").was_cut
