"""One message holds all faults of a rule file, each with its line, however it is broken."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from align.errors import MapError
from align.names.map_file import read_rules
from align.names.user_rules import NameRules, apply_rules

if TYPE_CHECKING:
    from pathlib import Path


def faults_of(tmp_path: Path, text: str) -> tuple[str, ...]:
    (tmp_path / "rules.toml").write_text(text, encoding="utf-8")
    with pytest.raises(MapError) as caught:
        read_rules(tmp_path / "rules.toml")
    return caught.value.faults


def test_two_rules_for_one_name_hide_no_other_fault_and_make_none_up(tmp_path: Path) -> None:
    text = """[names]
"a" = "x"
"a" = "y"

[[rename]]
from = '('
to = 'x'

[[rename]]
from = 'b'
to = 'c'

[nmaes]
"c" = "d"
"""
    assert faults_of(tmp_path, text) == (
        "lines 2 and 3: [names] a has two rules",
        "line 13: [nmaes]: unknown table or key",
        "line 5: [[rename]] 1: '(' -> 'x': missing ), unterminated subpattern at position 0",
    )


def test_a_table_that_stands_twice_is_read_as_one(tmp_path: Path) -> None:
    text = '[names]\n"a" = "x"\n\n[dropped.source]\n"b" = "why"\n\n[names]\n"a" = "y"\n"c" = 3\n'
    assert faults_of(tmp_path, text) == (
        "lines 1 and 7: [names] stands more than once",
        "lines 2 and 8: [names] a has two rules",
        "line 9: [names] c: expected a target name or a table with `to` and a transform",
    )


def test_what_is_still_no_toml_without_the_second_rule_is_said_beside_it(tmp_path: Path) -> None:
    doubled, broken = faults_of(tmp_path, '[names]\n"a" = "x"\n"a" = "y"\n"b" = \n')
    assert doubled == "lines 2 and 3: [names] a has two rules"
    assert broken.startswith("not TOML: ")
    assert "line 4" in broken


def test_a_rename_without_a_target_or_with_a_strange_key_is_called_so(tmp_path: Path) -> None:
    text = "[[rename]]\nfrom = 'a'\n\n[[rename]]\nfrom = 'b'\nto = 'c'\nflags = 'i'\n\n[[rename]]\nfrom = 'd'\nto = 3\n"
    assert faults_of(tmp_path, text) == (
        "line 1: [[rename]] 1: `to` is missing",
        "line 4: [[rename]] 2: unknown key flags; known: from, to, back, and a transform by its `op`",
        "line 9: [[rename]] 3: `to` must be a name, not 3",
    )


@pytest.mark.parametrize("written", ["[dropped.sauce]", "[dropped]\nsauce = {}"])
def test_a_side_that_is_none_has_its_line(tmp_path: Path, written: str) -> None:
    (fault,) = faults_of(tmp_path, f"{written}\n")
    line = len(written.splitlines())
    assert fault.startswith(f"line {line}: [dropped")
    assert fault.endswith("unknown key sauce; known: source, target")


def test_dotted_names_without_quotes_are_told_what_they_lack(tmp_path: Path) -> None:
    text = "[names]\nnorm.weight = 'a'\nfc.bias = { to = 'b' }\n\n[dropped.source]\naux.head.weight = 'why'\n"
    assert faults_of(tmp_path, text) == (
        'line 2: [names] norm.weight: a name with dots needs quotes: "norm.weight" = ...',
        'line 3: [names] fc.bias: a name with dots needs quotes: "fc.bias" = ...',
        'line 6: [dropped.source] aux.head.weight: a name with dots needs quotes: "aux.head.weight" = ...',
    )


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_a_map_written_for_other_programs_is_refused_with_the_way_to_the_editable_one(
    tmp_path: Path, suffix: str
) -> None:
    (tmp_path / f"map{suffix}").write_text("source,target\n", encoding="utf-8")
    with pytest.raises(MapError, match=r"for other programs.*\n.*--out map\.toml"):
        read_rules(tmp_path / f"map{suffix}")


def test_the_mark_that_some_editors_put_before_a_text_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('[names]\n"a" = "b"\n', encoding="utf-8-sig")
    assert list(read_rules(tmp_path / "rules.toml").names) == ["a"]


def test_renames_that_collide_name_their_lines(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text("[[rename]]\nfrom = 'a.*'\nto = 'x'\n", encoding="utf-8")
    with pytest.raises(MapError, match=r"a1 \(line 1\) and a2 \(line 1\) both lead to x"):
        apply_rules(read_rules(tmp_path / "rules.toml"), ["a1", "a2"], None)


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NameRules:
    """Rules of which the second pattern never comes to an end, with a tenth of a second for each name."""
    monkeypatch.setattr("align.names.user_rules.PATTERN_SECONDS", 0.1)
    text = "[[rename]]\nfrom = 'fc'\nto = 'y'\n[[rename]]\nfrom = '([a-z.]|..)+[1-9]'\nto = 'x'\n"
    (tmp_path / "rules.toml").write_text(text, encoding="utf-8")
    rules = read_rules(tmp_path / "rules.toml")
    assert isinstance(rules, NameRules)
    return rules


def stop_it(rules: NameRules) -> None:
    with pytest.raises(MapError, match=r"line 4: \[\[rename\]\] \(\[a-z\.\]\|\.\.\)\+.*still matching 'blocks"):
        rules.target_of("blocks.0.attention.weight" * 4)


def test_a_pattern_that_would_take_for_ever_is_stopped_and_named_on_any_thread(endless: NameRules) -> None:
    before = signal.getsignal(signal.SIGALRM)
    stop_it(endless)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(stop_it, endless).result()
    assert signal.getsignal(signal.SIGALRM) is before
