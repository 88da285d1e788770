from __future__ import annotations

import pytest

from align.checkpoints.sound_records import parse_json


def test_json_is_parsed() -> None:
    assert parse_json('{"a": [1, "ü"]}'.encode()) == {"a": [1, "ü"]}


@pytest.mark.parametrize("raw", [b'{"a": 1, "a": 2}', b'{"b": {"a": 1, "a": 1}}', b"{", b"\xff", b"[" * 200_000])
def test_names_given_twice_and_damage_are_value_errors(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are those of the parser
        parse_json(raw)
