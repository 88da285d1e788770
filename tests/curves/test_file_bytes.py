"""A log that is read from its file a piece at a time is the log that its bytes are."""

from __future__ import annotations

import codecs

import pytest

from align.curves.log_sources import FileBytes, LogSource
from align.curves.thresholds import LEAST_BLOCK_BYTES

LINES = b"".join(b"step %d loss 2.%06d\n" % (step, step) + b"\n" * (step % 3) for step in range(80_000))


@pytest.mark.parametrize(
    "data",
    [
        b"a\nb",
        codecs.BOM_UTF8 + b"a\n",
        "a\nb\n".encode("utf-16"),
        LINES,
        LINES[:-9],
        LINES + b"\n\n",
        b"\n" * (LEAST_BLOCK_BYTES + 5) + b"a\n",
        LINES.replace(b"\n", b"\r\n"),
    ],
)
def test_the_blocks_are_those_of_the_bytes(tmp_path, data: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    stored, whole = LogSource("log", FileBytes(path)), LogSource("log", data)
    for one, other in zip(stored.blocks(), whole.blocks(), strict=True):
        assert (one.text, one.numbers.tolist()) == (other.text, other.numbers.tolist())
    assert (stored.was_cut, stored.is_binary) == (whole.was_cut, whole.is_binary)
    assert stored.head(1000).data == whole.head(1000).data
    assert stored.data == whole.data


def test_what_is_appended_or_takes_its_place_is_not_seen(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    held = FileBytes(path)
    with path.open("ab") as stream:
        stream.write(b"three\n")
    other = tmp_path / "other"
    other.write_bytes(b"another run\n")
    other.replace(path)
    assert (len(held), held[:], held[2:5]) == (8, b"one\ntwo\n", b"e\nt")
    assert (held.find(b"\n", 4), held.find(b"\n", 8), held.find(b"x", 0)) == (7, -1, -1)


def test_a_file_that_lost_its_end_gives_what_it_has(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_bytes(LINES)
    source = LogSource("log", FileBytes(path))
    path.write_bytes(b"step 0 loss 2.0\n")
    assert [line for _, line in source.lines() if line] == ["step 0 loss 2.0"]
