from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.core.name_map import NameMap, Pairing
from align.core.piece_transforms import Part
from align.errors import MapError
from align.names.map_export import write_map_file
from align.names.map_file import write_map
from align.names.map_result import MapResult, doubled_targets, map_verdict, with_doubled_open
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from pathlib import Path

    from align.core.transforms import Transform


def part(start: int, stop: int, axis: int = 0) -> Transform:
    return Part(axis, start, stop, (6, 6))


def joined(*transforms: Transform) -> list[Pairing]:
    return [Pairing(f"s{n}", "t", "structure", 1.0, transform) for n, transform in enumerate(transforms)]


TWICE = (Pairing("a", "x", "structure", 1.0), Pairing("b", "x", "structure", 1.0), Pairing("c", "y", "structure", 1.0))


@pytest.mark.parametrize(
    ("transforms", "is_doubled"),
    [
        ((part(0, 3), part(3, 6)), False),
        ((part(3, 6), part(0, 3)), False),
        ((part(0, 3),), False),
        ((part(0, 3), part(4, 6)), False),
        ((part(0, 4), part(3, 6)), True),
        ((part(0, 3), part(0, 3)), True),
        ((part(0, 3), part(3, 6, axis=1)), True),
    ],
)
def test_parts_of_one_target_are_fine_unless_they_overlap(transforms: tuple[Transform, ...], is_doubled: bool) -> None:
    assert bool(doubled_targets(joined(*transforms))) is is_doubled


def test_a_target_that_is_made_twice_is_left_open_with_a_line_that_names_its_sources() -> None:
    name_map, notes = with_doubled_open(NameMap("left", "right", TWICE))
    assert [one.source for one in name_map.pairings] == ["c"]
    assert [(group.sources, group.targets) for group in name_map.ambiguous] == [(("a", "b"), ("x",))]
    lines = [sentence(key, **facts) for key, facts in notes]
    assert lines == ["x is left open: a, b all lead to it, and only one source may"]
    assert map_verdict(name_map).exit_code == 1


def test_a_map_without_such_targets_stays_as_it_is() -> None:
    name_map = NameMap("left", "right", TWICE[1:])
    assert with_doubled_open(name_map) == (name_map, [])


@pytest.mark.parametrize("suffix", [".toml", ".csv", ".json"])
def test_a_map_that_no_conversion_follows_is_never_written(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"map{suffix}"
    path.write_text("older", encoding="utf-8")
    name_map = NameMap("left", "right", TWICE)
    with pytest.raises(MapError, match="x: a, b all lead to it"):
        write_map_file(path, MapResult(name_map, None, None, map_verdict(name_map)))  # type: ignore[arg-type]
    with pytest.raises(MapError, match="x: a, b all lead to it"):
        write_map(path, name_map)
    assert path.read_text(encoding="utf-8") == "older"
