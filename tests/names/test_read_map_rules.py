"""The rules of a map are what the user wrote, in whichever file it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.core.name_map import Dropped, NameMap, Pairing
from align.errors import MissingFileError
from align.names.map_export import read_map_rules
from align.names.map_file import write_map
from align.names.map_parameters import map_parameters

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pairs = (Pairing("a", "x", "structure", 0.7), Pairing("b", "y", "structure", 0.7))
    write_map(tmp_path / "map.toml", NameMap("s", "t", pairs))
    return tmp_path / "map.toml"


def test_a_guess_of_aligns_is_no_rule_of_the_users_when_the_file_is_given_as_rules(path: Path) -> None:
    assert read_map_rules(path, path.with_name("other.toml")).rules.all_rules == ()


def test_a_line_that_the_user_changed_is_a_rule_and_its_neighbours_are_none(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace('"b" = "y"', '"b" = "z"'), encoding="utf-8")
    rules = read_map_rules(path).rules
    assert [(name, to) for name, (to, _) in rules.names.items()] == [("b", "z")]
    assert rules.named("b") == "b (line 7)"


def test_a_rule_file_that_is_not_there_is_missed(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"map file not found: .*gone\.toml"):
        read_map_rules(tmp_path / "gone.toml")


def test_a_pair_and_a_drop_that_the_user_told_in_another_file_are_rules_still(tmp_path: Path) -> None:
    pairs = (Pairing("a", "x", "user", 1.0), Pairing("b", "y", "trial", 1.0))
    drops = (Dropped("c", "source", "in training only"),)
    write_map(tmp_path / "map.toml", NameMap("s", "t", pairs, drops))
    assert read_map_rules(tmp_path / "map.toml").rules.all_rules == ("[names] a", "[dropped.source] c")
    assert read_map_rules(None, tmp_path / "map.toml").rules.all_rules == ()


def test_a_rule_against_equal_values_of_two_files_is_told_and_stands(tmp_path: Path) -> None:
    draw = np.random.default_rng(0).normal
    q, k = draw(size=(3, 3)), draw(size=(3, 3))
    np.savez(tmp_path / "a.npz", **{"q.weight": q, "k.weight": k})
    np.savez(tmp_path / "b.npz", **{"red.weight": q, "green.weight": k})
    (tmp_path / "rules.toml").write_text('[names]\n"q.weight" = "green.weight"\n', encoding="utf-8")
    result = map_parameters(tmp_path / "a.npz", tmp_path / "b.npz", rules=tmp_path / "rules.toml")
    assert result.name_map.by_source["q.weight"].target == "green.weight"
    assert result.warnings == (
        "your rule q.weight -> green.weight is kept, but the values contradict: by them it is red.weight",
    )
    assert result.verdict.exit_code == 1
    assert map_parameters(tmp_path / "a.npz", tmp_path / "b.npz").warnings == ()
