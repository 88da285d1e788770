from __future__ import annotations

import pytest

from align.words.catalogue import counted, printable


def test_numbers_have_their_noun_and_thousands_their_comma() -> None:
    assert counted(1, "tensor") == "1 tensor"
    assert counted(46848, "tensor") == "46,848 tensors"
    assert counted(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize("steer", ["\x1b[2J", "\x9b2J", "\u202e", "\n", "\x00", "\ud800", "\U000e0001"])
def test_what_could_steer_a_terminal_is_escaped_and_all_else_stays(steer: str) -> None:
    shown = printable(f"größe 层 {steer} end")
    assert shown.isprintable()
    assert shown.startswith("größe 层 \\")
    assert shown.endswith(" end")
    assert printable("größe 层") == "größe 层"
