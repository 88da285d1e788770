"""Map files and rules in which one source makes several targets, or several one."""

from __future__ import annotations

import pytest

from align.core.name_map import NameMap, Pairing
from align.core.parameters import Module, Parameter, ParameterSet
from align.core.piece_transforms import Part, Slice
from align.core.transforms import Permute, chained
from align.errors import MapError
from align.names.map_file import read_map, read_rules, write_map
from align.names.matching.match_names import match_names
from align.names.user_rules import NameRules

PAIRINGS = (
    Pairing("qkv", "q", "user", 1.0, Slice(0, 0, 4, (12, 4))),
    Pairing("qkv", "k", "user", 1.0, Slice(0, 4, 8, (12, 4))),
    Pairing("qkv", "v", "user", 1.0, chained(Slice(0, 8, 12, (12, 4)), Permute((1, 0)))),
    Pairing("a", "ab", "user", 1.0, Part(0, 0, 2, (6, 4))),
    Pairing("b", "ab", "user", 1.0, Part(0, 2, 6, (6, 4))),
)


def side(**shapes: tuple[int, ...]) -> ParameterSet:
    parameters = tuple(Parameter(name, shape, "float32", name, "weight") for name, shape in shapes.items())
    return ParameterSet("side", None, parameters, tuple(Module(p.module, (), (p.name,)) for p in parameters))


@pytest.mark.parametrize("expand", [True, False])
def test_a_map_with_pieces_reads_back_as_it_was_written(tmp_path, expand: bool) -> None:
    path = tmp_path / "map.toml"
    write_map(path, NameMap("a", "b", PAIRINGS), expand=expand)
    found = read_map(path, ["qkv", "a", "b"], ["q", "k", "v", "ab"])
    assert [(p.source, p.target, p.transform) for p in found.pairings] == [
        (p.source, p.target, p.transform) for p in PAIRINGS
    ]
    assert found.complete


def test_rules_with_pieces_are_held_against_the_shapes_of_both_sides(tmp_path) -> None:
    path = tmp_path / "map.toml"
    write_map(path, NameMap("a", "b", PAIRINGS))
    sides = side(qkv=(12, 4), a=(2, 4), b=(4, 4)), side(q=(4, 4), k=(4, 4), v=(4, 4), ab=(6, 4))
    name_map = match_names(*sides, read_rules(path))
    assert name_map.complete
    assert len(name_map.pairings) == len(PAIRINGS)
    with pytest.raises(MapError, match=r"is to be cut from \(12, 4\), and has the shape \(13, 4\)"):
        match_names(side(qkv=(13, 4), a=(2, 4), b=(4, 4)), sides[1], read_rules(path))


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (
            {"a": ("ab", Part(0, 0, 2, (6, 4))), "b": ("ab", Part(0, 1, 5, (6, 4)))},
            "ab is made only in part: 1:2 is covered",
        ),
        ({"a": ("ab", Part(0, 0, 2, (6, 4)))}, "ab is made only in part: nothing covers 2:6"),
        ({"a": ("ab", Part(0, 0, 2, (6, 4))), "b": ("ab", Permute((0, 1)))}, "a and b both lead to ab"),
    ],
)
def test_parts_that_make_no_whole_are_refused(names, fault: str) -> None:
    with pytest.raises(MapError, match=fault):
        match_names(side(a=(2, 4), b=(4, 4)), side(ab=(6, 4)), NameRules(names=names))


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ('[{ to = "q", op = "slice", axis = 0 }]', "slice needs start, stop"),
        ("[]", "expected a target name or a table"),
        ('["q", 3]', "expected a target name or a table"),
    ],
)
def test_a_faulty_list_of_targets_is_refused(tmp_path, value: str, fault: str) -> None:
    path = tmp_path / "map.toml"
    path.write_text(f"[names]\nw = {value}\n")
    with pytest.raises(MapError, match=fault):
        read_rules(path)
