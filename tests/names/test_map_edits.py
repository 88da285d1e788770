"""A map file that the user edited keeps every word of theirs when it is made again; align's own lines are made anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from align.core.name_map import Dropped, NameMap, Pairing
from align.core.transforms import Reshape
from align.errors import DestinationError, MapError
from align.names.map_file import kept_lines, read_map, read_rules, write_map

if TYPE_CHECKING:
    from pathlib import Path

PAIRS = (
    *(Pairing(f"layers.{i}.q.weight", f"blocks.{i + 1}.q.weight", "structure", 0.8 + i / 20) for i in range(3)),
    Pairing("fc.weight", "head.weight", "structure", 1.0, Reshape((2, 1, 3), (2, 3))),
    Pairing("odd{0..2}.w", "odd.w", "name", 1.0),
)
MAP = NameMap("a", "b", PAIRS, (Dropped("n", "source", "a count {0..3}"),), frameworks=("torch", "mindspore"))
SOURCES = [*(pairing.source for pairing in PAIRS), "n"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_map(tmp_path / "map.toml", MAP)
    return tmp_path / "map.toml"


def remade(path: Path, name_map: NameMap = MAP) -> str:
    write_map(path, name_map, kept_lines(path))
    return path.read_text(encoding="utf-8")


def test_a_run_is_one_line_with_its_lowest_confidence_and_reads_back_pair_by_pair(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert '"layers.{0..2}.q.weight" = "blocks.{1..3}.q.weight"  #= structure 0.80 (' in text
    assert '"odd{{0..2}.w" = "odd.w"  #= name 1.00 (' in text
    read = read_map(path, SOURCES, None)
    assert [(p.source, p.target, p.transform) for p in read.pairings] == [
        (p.source, p.target, p.transform) for p in PAIRS
    ]
    assert [(drop.name, drop.reason) for drop in read.dropped] == [("n", "a count {0..3}")]


def test_expanded_each_pair_has_a_line(path: Path) -> None:
    write_map(path, MAP, expand=True)
    assert '"layers.1.q.weight" = "blocks.2.q.weight"  #= structure 0.85 (' in path.read_text(encoding="utf-8")
    assert len(read_map(path, SOURCES, None).pairings) == len(PAIRS)


def test_an_unedited_file_has_nothing_of_the_users_and_comes_out_the_same(path: Path) -> None:
    before = path.read_text(encoding="utf-8")
    assert kept_lines(path).rules.names == {}
    assert kept_lines(path).rules.drop_of("source", "n") is None
    assert remade(path) == before


EDITS = {
    "another target": ('"odd{{0..2}.w" = "odd.w"', '"odd{{0..2}.w" = "even.w"'),
    "a comment behind a line": ("#= name 1.00", "# checked by hand #= name 1.00"),
    "a line of one's own": ("[names]\n", '[names]\n\n# as the paper says\n"x" = "y"  # why\n'),
    "another reason": ("a count {0..3}", "kept by the optimizer {0..3}"),
    "a drop": ("[dropped.source]\n", '[dropped.source]\n"aux.*" = "in training only"\n'),
    "a rename": ("[dropped.source]", "[[rename]]\nfrom = 'enc\\.(.*)'\nto = 'dec.\\1'\n\n[dropped.source]"),
    "several lines": ("[names]\n", '[names]\n"x" = { to = "y", op = "reshape", shape = [\n  2,\n  3,\n] }\n'),
    "a remark on a table": ("[dropped.source]", "# these stay behind\n[dropped.source]"),
    "a remark on a rename": (
        "[dropped.source]",
        "# as in the paper\n[[rename]]\nfrom = 'a'\nto = 'b'\n\n[dropped.source]",
    ),
    "a comment at the top": ("schema", "# my map\nschema"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_a_rule_and_stays_as_it_was_written(path: Path, edit: str) -> None:
    old, new = EDITS[edit]
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    once = remade(path)
    for line in new.split("\n"):
        assert line in once
    if "remark" in edit:
        assert "\n".join(new.split("\n")[:2]) in once
    assert remade(path) == once
    read_rules(path)


def test_lines_that_cannot_stand_beside_aligns_are_not_lost(path: Path) -> None:
    path.write_text('names."x" = "y"\n', encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(DestinationError, match="cannot be kept"):
        remade(path)
    assert path.read_bytes() == before


def test_an_edited_target_is_what_the_file_says(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace('= "blocks.{1..3}.q.weight"', '= "blocks.{4..6}.q.weight"')
    path.write_text(text, encoding="utf-8")
    assert kept_lines(path).rules.target_of("layers.2.q.weight")[0] == "blocks.6.q.weight"
    remade(path)
    assert read_rules(path).target_of("layers.2.q.weight")[0] == "blocks.6.q.weight"


def test_a_deleted_line_of_aligns_is_found_again(path: Path) -> None:
    before = path.read_text(encoding="utf-8")
    kept = [line for line in before.split("\n") if "layers." not in line]
    path.write_text("\n".join(kept), encoding="utf-8")
    assert remade(path) == before


def test_one_line_of_the_users_changes_one_layer_of_a_run(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("[names]\n", '[names]\n"layers.1.q.weight" = "other"\n')
    path.write_text(text, encoding="utf-8")
    assert read_rules(path).target_of("layers.1.q.weight")[0] == "other"
    assert read_rules(path).target_of("layers.2.q.weight")[0] == "blocks.3.q.weight"
    assert '"layers.0.q.weight" = "blocks.1.q.weight"  #= ' in remade(path)


def test_a_line_of_the_users_beside_aligns_for_the_same_name_counts(path: Path) -> None:
    write_map(path, MAP, expand=True)
    text = path.read_text(encoding="utf-8").replace("[names]\n", '[names]\n"layers.1.q.weight" = "other"\n')
    path.write_text(text, encoding="utf-8")
    assert read_rules(path).target_of("layers.1.q.weight")[0] == "other"
    assert '"layers.1.q.weight" = "other"\n' in remade(path)
    assert remade(path).count('"layers.1.q.weight"') == 1


def test_two_rules_of_one_author_for_one_name_are_a_fault_with_both_lines(path: Path) -> None:
    path.write_text('[names]\n"a.{0..3}" = "b.{0..3}"\n"c" = "d"\n"a.2" = "z"\n', encoding="utf-8")
    with pytest.raises(MapError) as caught:
        read_rules(path)
    assert caught.value.faults == ("line 4: [names] a.2: a.2 has a rule already, line 2",)
    path.write_text('[names]\n"a" = "b"\n"a" = "c"\n', encoding="utf-8")
    with pytest.raises(MapError, match=r"lines 2 and 3: \[names\] a has two rules"):
        read_rules(path)


def test_a_faulty_range_is_a_fault_with_its_line(path: Path) -> None:
    path.write_text('[names]\n"a.{0..3}" = "b"\n"c.{4..1}" = "d.{4..1}"\n', encoding="utf-8")
    with pytest.raises(MapError) as caught:
        read_rules(path)
    assert [fault.partition(":")[0] for fault in caught.value.faults] == ["line 2", "line 3"]


def test_what_a_line_of_the_users_leaves_unsaid_is_added_to_it(path: Path) -> None:
    path.write_text('[names]\n"fc.weight" = "head.weight"  # sure\n', encoding="utf-8")
    made = replace(MAP, pairings=tuple(replace(p, evidence="user") if p.source == "fc.weight" else p for p in PAIRS))
    once = remade(path, made)
    assert '"fc.weight" = { to = "head.weight", op = "reshape", shape = [2, 1, 3], from = [2, 3] }  # sure\n' in once
    assert remade(path, made) == once
