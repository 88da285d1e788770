from __future__ import annotations

import re
from pathlib import Path

import pytest

import align.report
from align.words.catalogue import catalogue, say, word

SOURCES = sorted(Path(align.report.__file__).parent.rglob("*.py"))


def in_the_code(pattern):
    return {found for source in SOURCES for found in re.findall(pattern, source.read_text(encoding="utf-8"))}


def used_keys():
    return {key for key in in_the_code(r'"([a-z]+\.[a-z_0-9]+)"') if key.partition(".")[0] in catalogue()}


def sections_read_by_names_from_data():
    return in_the_code(r'word\("([a-z_]+)"') | in_the_code(r'f"([a-z_]+)\.\{')


def test_every_key_in_the_code_has_a_text():
    keys = used_keys()
    assert len(keys) > 60
    for key in keys:
        section, _, name = key.partition(".")
        assert name in catalogue()[section], key


def test_every_text_is_used():
    keys, open_sections = used_keys(), sections_read_by_names_from_data()
    unused = [
        f"{section}.{name}"
        for section, texts in catalogue().items()
        if section not in open_sections
        for name in texts
        if f"{section}.{name}" not in keys
    ]
    assert unused == []


def test_an_unknown_key_is_an_error_and_an_unknown_word_stays_itself():
    with pytest.raises(KeyError):
        say("word.nonsense")
    assert word("limit_source", "a new source") == "a new source"
    assert word("outcome", "not aligned") == "NOT ALIGNED"
