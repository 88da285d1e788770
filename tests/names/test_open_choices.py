"""For what stays open the lines to paste: each fits, each is read as it was meant, and blocks are told once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.errors import MapError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.names.map_export import open_choices
from align.names.map_parameters import map_parameters
from align.report.show_result import blocks_as_text, result_blocks
from align.runs.run_folder import as_document

if TYPE_CHECKING:
    from pathlib import Path

    from align.names.map_result import MapResult

SHAPE = (3, 2)


def model(kind: str, layers: dict[str, tuple[int, ...]]) -> ArrayModel:
    found = (
        ArrayLayer(path, kind, len, {"weight": np.zeros(shape, np.float32), "bias": np.zeros(shape[0], np.float32)})
        for path, shape in layers.items()
    )
    return ArrayModel(tuple(found))


SIDES = (
    model("torch.nn.Linear", {f"blocks.{n}.{name}": SHAPE for n in range(3) for name in ("left", "right")}),
    model("mindspore.nn.Dense", {f"layers.{n}.{name}": SHAPE for n in range(1, 4) for name in ("one", "two")}),
)
LINES = [
    f'"blocks.{{0..2}}.{left}.weight" = "layers.{{1..3}}.{right}.weight"'
    for left in ("left", "right")
    for right in ("one", "two")
]


@pytest.fixture(scope="module")
def opened() -> MapResult:
    return map_parameters(*SIDES)


def test_what_repeats_in_each_block_is_told_once_with_a_line_for_each_candidate(opened: MapResult) -> None:
    text = blocks_as_text(result_blocks(as_document(opened, {})))
    assert "in 3 blocks" in text
    assert [line.strip() for line in text.splitlines() if line.strip().startswith('"')] == LINES


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_is_pasted_settles_all_blocks_and_the_biases(line: str, tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    map_parameters(*SIDES, out=path)
    text = path.read_text(encoding="utf-8")
    assert f"#=     {line}" in text
    path.write_text(text.replace("[names]\n", f"[names]\n{line}\n"), encoding="utf-8")
    result = map_parameters(*SIDES, out=path)
    assert result.verdict.exit_code == 0
    assert line in path.read_text(encoding="utf-8")


def test_a_line_pasted_below_the_drops_is_refused_and_says_where_it_belongs(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text(f"[dropped.source]\n{LINES[0]}\n", encoding="utf-8")
    with pytest.raises(MapError, match=r"its reason layers.* is a name of the other side: write a pair under \[names"):
        map_parameters(*SIDES, rules=path)


@pytest.mark.parametrize(
    ("sources", "targets", "lines"),
    [
        ({"w": (2, 3)}, {"m": (3, 2)}, ['"w" = { to = "m", op = "permute", axes = [1, 0] }']),
        ({"w": (2, 2)}, {"m": (2, 2)}, ['"w" = "m"', '"w" = { to = "m", op = "permute", axes = [1, 0] }']),
        (
            {"w": (3, 2)},
            {"a": (1, 2), "b": (2, 2)},
            [
                '"w" = [{ to = "a", op = "slice", axis = 0, start = 0, stop = 1, from = [3, 2] }, '
                '{ to = "b", op = "slice", axis = 0, start = 1, stop = 3, from = [3, 2] }]',
                '"w" = [{ to = "b", op = "slice", axis = 0, start = 0, stop = 2, from = [3, 2] }, '
                '{ to = "a", op = "slice", axis = 0, start = 2, stop = 3, from = [3, 2] }]',
            ],
        ),
        (
            {"a": (1, 2), "b": (2, 2)},
            {"w": (3, 2)},
            [
                '"a" = { to = "w", op = "part", axis = 0, start = 0, stop = 1, shape = [3, 2] }\n'
                '"b" = { to = "w", op = "part", axis = 0, start = 1, stop = 3, shape = [3, 2] }',
                '"b" = { to = "w", op = "part", axis = 0, start = 0, stop = 2, shape = [3, 2] }\n'
                '"a" = { to = "w", op = "part", axis = 0, start = 2, stop = 3, shape = [3, 2] }',
            ],
        ),
    ],
)
def test_a_candidate_of_another_form_has_its_transform(
    sources: dict[str, tuple[int, ...]], targets: dict[str, tuple[int, ...]], lines: list[str]
) -> None:
    choice = open_choices([(tuple(sources), tuple(targets), "why")], (sources, targets))[0]
    assert list(choice.lines) == lines


def test_of_very_many_candidates_the_first_are_told_and_the_rest_counted() -> None:
    sources, targets = ({f"{side}{letter}": (2, 2) for letter in "abcdef"} for side in "st")
    choice = open_choices([(tuple(sources), tuple(targets), "why")], (sources, targets))[0]
    assert (len(choice.lines), choice.left_out) == (12, 24)


UNLIKE = (
    model("torch.nn.Linear", {f"blocks.{n}.proj": SHAPE for n in range(3)} | {"head": (5, 2)}),
    model("mindspore.nn.Conv2d", {f"layers.{n}.proj": SHAPE for n in range(3)} | {"tail": (7, 2)}),
)


def test_what_is_unmatched_has_a_line_where_a_shape_fits_and_none_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    result = map_parameters(*UNLIKE, out=path)
    assert {one.name for one in result.name_map.unmatched if one.side == "source"} >= {"head.weight"}
    line = '"blocks.{0..2}.proj.weight" = "layers.{0..2}.proj.weight"'
    text = blocks_as_text(result_blocks(as_document(result, {})))
    assert [row.strip() for row in text.splitlines() if row.strip().startswith('"')] == [line]
    said = path.read_text(encoding="utf-8")
    assert f"#=   {line}" in said
    path.write_text(said.replace("[names]\n", f"[names]\n{line}\n"), encoding="utf-8")
    pairs = {(pair.source, pair.target) for pair in map_parameters(*UNLIKE, out=path).name_map.pairings}
    assert pairs >= {(f"blocks.{n}.proj.weight", f"layers.{n}.proj.weight") for n in range(3)}
