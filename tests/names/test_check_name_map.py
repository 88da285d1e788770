"""A given map against two sides: each planted fault is found and named, and a sound map has none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.core.name_map import Pairing
from align.core.transforms import IDENTITY, Permute
from align.errors import MapError, NothingInCommonError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.names.map_file import read_map
from align.names.map_parameters import check_name_map, map_parameters, name_map_faults
from align.names.map_result import open_map_side
from align.names.user_rules import check_shapes

if TYPE_CHECKING:
    from pathlib import Path


def layer(path: str, class_name: str, **shapes: tuple[int, ...]) -> ArrayLayer:
    weights = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    return ArrayLayer(path, class_name, lambda x, **parameters: x, weights)


ORIGINAL = ArrayModel(
    (
        layer("conv", "torch.nn.Conv2d", weight=(4, 4, 1, 1), bias=(4,)),
        layer("norm", "torch.nn.LayerNorm", weight=(4,), bias=(4,)),
        *(layer(f"blocks.{i}.{name}", "torch.nn.Linear", weight=(4, 4)) for i in range(3) for name in ("q", "k")),
        layer("fc", "torch.nn.Linear", weight=(5, 4)),
    )
)
PORT = ArrayModel(
    (
        layer("stem", "mindspore.nn.Conv2d", weight=(4, 4, 1, 1), bias=(4,)),
        layer("ln", "mindspore.nn.LayerNorm", gamma=(4,), beta=(4,)),
        *(layer(f"layers.{i}.{n}", "mindspore.nn.Dense", weight=(4, 4)) for i in range(3) for n in ("query", "key")),
        layer("head", "mindspore.nn.Dense", weight=(5, 4)),
    )
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    result = map_parameters(ORIGINAL, PORT, out=tmp_path / "map.toml")
    assert result.verdict.exit_code == 0
    return tmp_path / "map.toml"


def faults(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for fault in check_name_map(ORIGINAL, PORT, path).faults:
        found.setdefault(fault.code, []).append(fault.subject)
    return found


def edit(path: Path, old: str, new: str) -> dict[str, list[str]]:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    return faults(path)


def test_the_map_that_align_makes_is_sound(path: Path) -> None:
    checked = check_name_map(ORIGINAL, PORT, path)
    assert checked.faults == ()
    assert (checked.verdict.exit_code, checked.verdict.coverage.compared) == (0, 11)


def test_a_name_that_neither_side_has(path: Path) -> None:
    assert edit(path, '"fc.weight" = "head.weight"', '"fd.weight" = "heat.weight"') == {
        "missing-source": ["fd.weight"],
        "missing-target": ["heat.weight"],
        "uncovered-source": ["fc.weight"],
        "uncovered-target": ["head.weight"],
    }


def test_a_shape_that_does_not_fit_after_its_transform(path: Path) -> None:
    new = '"fc.weight" = { to = "head.weight", op = "permute", axes = [1, 0] }'
    assert edit(path, '"fc.weight" = "head.weight"', new) == {"shape": ["fc.weight -> head.weight"]}


def test_a_scale_paired_with_a_shift_and_a_convolution_with_a_norm(path: Path) -> None:
    found = edit(path, '"norm.weight" = "ln.gamma"', '"norm.weight" = "stem.bias"')
    assert "role" in found
    found = edit(path, '"norm.bias" = "ln.beta"', '"norm.bias" = "ln.gamma"')
    assert "norm.bias -> ln.gamma" in found["role"]


def test_layers_of_two_kinds_with_one_role_and_shape(path: Path) -> None:
    found = edit(path, '"norm.bias" = "ln.beta"', '"norm.bias" = "stem.bias"')
    assert "norm.bias -> stem.bias" in found["kind"]
    assert found["doubled"] == ["stem.bias"]


def test_swapped_siblings_contradict_what_is_sure(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    swapped = text.replace("query.weight", "?").replace("key.weight", "query.weight").replace("?", "key.weight")
    path.write_text(swapped, encoding="utf-8")
    found = faults(path)
    assert sorted(found) == ["contradicted"]
    assert len(found["contradicted"]) == 6


def test_a_line_left_out_is_uncovered_on_both_sides(path: Path) -> None:
    kept = [line for line in path.read_text(encoding="utf-8").split("\n") if not line.startswith('"fc.weight"')]
    path.write_text("\n".join(kept), encoding="utf-8")
    assert faults(path) == {"uncovered-source": ["fc.weight"], "uncovered-target": ["head.weight"]}


def test_a_map_of_another_pair_cannot_be_judged(path: Path) -> None:
    path.write_text('[names]\n"a" = "b"\n', encoding="utf-8")
    with pytest.raises(NothingInCommonError):
        check_name_map(ORIGINAL, PORT, path)


def test_a_source_that_is_cut_with_a_piece_twice_and_one_left_out_is_a_fault(tmp_path: Path) -> None:
    fused = ArrayModel((layer("qkv", "torch.nn.Linear", weight=(12, 4)),))
    apart = ArrayModel(tuple(layer(name, "mindspore.nn.Dense", weight=(4, 4)) for name in "qkv"))
    starts = {"q": 4, "k": 4, "v": 8}
    pieces = (
        f'{{ to = "{n}.weight", op = "slice", axis = 0, start = {start}, stop = {start + 4} }}'
        for n, start in starts.items()
    )
    (tmp_path / "map.toml").write_text(f'[names]\n"qkv.weight" = [{", ".join(pieces)}]\n', encoding="utf-8")
    (fault,) = check_name_map(fused, apart, tmp_path / "map.toml").faults
    assert (fault.code, fault.subject) == ("pieces", "qkv.weight")
    assert fault.message == "it is cut along axis 0, and nothing covers 0:4, 4:8 is covered twice"
    with pytest.raises(MapError, match=r"qkv\.weight \(line 2\) \[12, 4\]: it is cut along axis 0, and nothing covers"):
        map_parameters(fused, apart, rules=tmp_path / "map.toml")
    sides = [open_map_side(model).parameters for model in (fused, apart)]
    given = read_map(tmp_path / "map.toml", sides[0].names, sides[1].names)
    with pytest.raises(MapError, match=r"qkv\.weight \[12, 4\]: it is cut along axis 0, and nothing covers"):
        check_shapes(given, *sides)


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("told", [True, False])
def test_a_square_matrix_is_turned_as_the_classes_of_both_layers_say(written, turned, told) -> None:
    w = written
    source = w.side("torch", w.own("c_proj", weight=(4, 4)) if turned else w.linear("c_proj", 4, 4, bias=False))
    if turned:
        (module,) = source.modules
        known = replace(module, classes=("transformers.pytorch_utils.Conv1D",), inputs_first=True)
        source = replace(source, modules=(known,))
    target = w.side("nn", w.linear("proj", 4, 4, bias=False))
    given = [Pairing("c_proj.weight", "proj.weight", "user", 1.0, Permute((1, 0)) if told else IDENTITY)]
    found = name_map_faults(given, (set(), set()), (source, target), w.matched(source, target))
    assert [fault.code for fault in found] == ([] if turned == told else ["transpose"])


def test_a_square_matrix_of_a_class_that_nobody_knows_may_stand_either_way(written) -> None:
    w = written
    sides = w.side("torch", w.own("fc", weight=(4, 4))), w.side("nn", w.linear("fc", 4, 4, bias=False))
    for change in (IDENTITY, Permute((1, 0))):
        given = [Pairing("fc.weight", "fc.weight", "user", 1.0, change)]
        assert name_map_faults(given, (set(), set()), sides, w.matched(*sides)) == []
