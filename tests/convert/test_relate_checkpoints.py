"""A diff says how tensors that differ hang together, and its lines in a map make them equal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.cli.main import main
from align.convert import relate_checkpoints
from align.convert.convert_checkpoint import convert_checkpoint
from align.convert.diff_checkpoints import diff_checkpoints
from align.core.verdicts import Outcome
from align.names.map_parameters import map_parameters

if TYPE_CHECKING:
    from pathlib import Path

    from align.convert.pair_checkpoints import CheckpointDiff

Values = dict[str, np.ndarray[Any, Any]]


def drawn(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def model(layers: int = 3) -> Values:
    values: Values = {"embed.weight": drawn(40, 16)}
    for number in range(layers):
        values |= {
            f"layers.{number}.qkv.weight": drawn(48, 16, seed=number),
            f"layers.{number}.norm.weight": drawn(16, seed=number),
            f"layers.{number}.down.weight": drawn(16, 32, seed=number),
        }
    return values


def ported() -> Values:
    values = model()
    for number in range(3):
        name = f"layers.{number}"
        values[f"{name}.qkv.weight"] = values[f"{name}.qkv.weight"].reshape(3, 4, 4, 16).swapaxes(0, 1).reshape(48, 16)
        values[f"{name}.norm.weight"] = 1 + values[f"{name}.norm.weight"]
    first, second = "layers.0.down.weight", "layers.2.down.weight"
    values[first], values[second] = values[second], values[first]
    values["embed.weight"] = np.concatenate([values["embed.weight"], np.zeros((8, 16), np.float32)])
    return values


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    np.savez(tmp_path / "a.npz", **model())
    np.savez(tmp_path / "b.npz", **ported())
    return tmp_path / "a.npz", tmp_path / "b.npz"


def related(diff: CheckpointDiff) -> dict[str, list[str]]:
    return {one.reference: [relation.id for relation in one.relations] for one in diff.tensors if one.relations}


def test_relations_are_named_and_their_lines_mend_the_map_either_way(
    files: tuple[Path, Path], tmp_path: Path, assert_each: Any
) -> None:
    def check(first: Path, second: Path) -> None:
        diff = diff_checkpoints(first, second)
        assert related(diff) == {
            "embed.weight": ["padded" if first == files[0] else "cropped"],
            **{f"layers.{n}.qkv.weight": ["interleaved"] for n in range(3)},
            **{f"layers.{n}.norm.weight": ["shifted"] for n in range(3)},
            **{f"layers.{n}.down.weight": ["another-tensor"] for n in (0, 2)},
        }
        assert len(diff.map_lines) == 5  # layers that are alike share one
        rules = tmp_path / "lines.toml"
        rules.write_text("[names]\n" + "\n".join(diff.map_lines) + "\n", encoding="utf-8")
        map_parameters(first, second, rules=rules, out=tmp_path / "map.toml")
        mended = diff_checkpoints(first, second, name_map=tmp_path / "map.toml")
        left = {one.reference: one.measurement.relative_l2 for one in mended.tensors if one.outcome != "equal"}
        assert all(value < 1e-6 for value in left.values()), left  # (1 + w) - 1 has lost digits

    assert_each(check, [files, files[::-1]])


def test_the_lines_mend_a_map_that_is_used_backwards(files: tuple[Path, Path], tmp_path: Path) -> None:
    names = {name: f"port.{name}" for name in model()}
    np.savez(tmp_path / "port.npz", **{names[name]: value for name, value in ported().items()})
    own = tmp_path / "own.toml"
    own.write_text("[names]\n" + "\n".join(f'"{a}" = "{b}"' for a, b in names.items()), encoding="utf-8")
    kept = diff_checkpoints(tmp_path / "port.npz", files[0], name_map=own)
    assert any("backwards" in text for text in kept.warnings)
    lines = "\n".join(kept.map_lines)
    assert '"layers.{0..2}.norm.weight" = { to = "port.layers.{0..2}.norm.weight", op = "add", value = 1.0 }' in lines
    assert '"layers.0.down.weight" = "port.layers.2.down.weight"' in lines


def test_several_tensors_that_are_equal_leave_it_open_which_was_meant(tmp_path: Path) -> None:
    values = {"a.weight": drawn(8, 8), "b.weight": drawn(8, 8), "c.weight": drawn(8, 8, seed=3)}
    np.savez(tmp_path / "a.npz", **values)
    np.savez(tmp_path / "b.npz", **{**values, "c.weight": values["a.weight"]})
    diff = diff_checkpoints(tmp_path / "a.npz", tmp_path / "b.npz")
    assert related(diff) == {"c.weight": ["several-tensors"]}
    assert "a.weight, b.weight" in diff.tensors[2].relations[0].says
    assert diff.map_lines == ()


def test_another_layer_s_tensor_alone_is_said_and_no_line_would_leave_one_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **model())
    other = {**model(), "layers.0.down.weight": model()["layers.1.down.weight"]}
    np.savez(tmp_path / "b.npz", **other)
    diff = diff_checkpoints(tmp_path / "a.npz", tmp_path / "b.npz")
    assert related(diff) == {"layers.0.down.weight": ["another-tensor"]}
    assert diff.map_lines == ()
    first, second = "layers.0.qkv.weight", "layers.2.qkv.weight"
    np.savez(tmp_path / "b.npz", **{**other, first: other[second], second: other[first]})
    diff = diff_checkpoints(tmp_path / "a.npz", tmp_path / "b.npz")
    assert set(diff.map_lines) == {f'"{first}" = "{second}"', f'"{second}" = "{first}"'}


def test_constants_and_trained_tensors_have_no_relation(tmp_path: Path) -> None:
    before = {**model(), "ones": np.ones((8, 8), np.float32), "zeros": np.zeros(64, np.float32)}
    after = {name: value + 0.01 * drawn(*value.shape, seed=9) for name, value in model().items()}
    np.savez(tmp_path / "a.npz", **before)
    np.savez(tmp_path / "b.npz", **after, ones=np.full((8, 8), 2, np.float32), zeros=np.ones(64, np.float32))
    diff = diff_checkpoints(tmp_path / "a.npz", tmp_path / "b.npz")
    assert diff.verdict.outcome is Outcome.NOT_ALIGNED
    assert (related(diff), diff.map_lines) == ({}, ())


def test_what_differs_beyond_the_limit_is_said_to_be_not_looked_at(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relate_checkpoints, "MOST_RELATED_TENSORS", 4)
    diff = diff_checkpoints(*files)
    assert len(related(diff)) <= 4
    assert "5 further tensors differ, and how was not looked at" in diff.warnings


def test_the_work_of_relations_grows_with_the_tensors_that_differ(growth: Any, tmp_path: Path) -> None:
    def prepare(count: int) -> tuple[Path, Path]:
        values = {f"layers.{n}.weight": drawn(4, 4, seed=n) for n in range(count)}
        np.savez(tmp_path / f"a{count}.npz", **values)
        swapped = {name: values[f"layers.{n ^ 1}.weight"] for n, name in enumerate(values)}
        np.savez(tmp_path / f"b{count}.npz", **swapped)
        return tmp_path / f"a{count}.npz", tmp_path / f"b{count}.npz"

    sides = {count: prepare(count) for count in (40, 80)}
    assert len(related(diff_checkpoints(*sides[80]))) == 80
    assert growth(lambda count: diff_checkpoints(*sides[count]), 40) < 2.5


def test_a_part_of_a_fused_tensor_is_mended_where_it_lies(tmp_path: Path) -> None:
    gate, up = drawn(8, 16), drawn(8, 16, seed=1)
    np.savez(tmp_path / "a.npz", gate=gate, up=up)
    np.savez(tmp_path / "b.npz", both=np.concatenate([gate, up * np.float32(4)]))
    span = 'op = "part", axis = 0, start = {}, stop = {}, shape = [16, 16]'
    own = tmp_path / "own.toml"
    pieces = [
        f'{name} = {{ to = "both", {span.format(*place)} }}' for name, place in (("gate", (0, 8)), ("up", (8, 16)))
    ]
    own.write_text("[names]\n" + "\n".join(pieces), encoding="utf-8")
    diff = diff_checkpoints(tmp_path / "a.npz", tmp_path / "b.npz", name_map=own)
    assert related(diff) == {"up": ["scaled"]}
    (line,) = diff.map_lines
    own.write_text("[names]\n" + pieces[0] + "\n" + line, encoding="utf-8")
    convert_checkpoint(tmp_path / "a.npz", tmp_path / "made.npz", name_map=own)
    np.testing.assert_array_equal(np.load(tmp_path / "made.npz")["both"], np.load(tmp_path / "b.npz")["both"])


def test_the_command_shows_relations_and_lines_in_both_languages(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["diff", *map(str, files)]) == 1
    shown = capsys.readouterr().out
    assert "layers.{0…2}.norm.weight (3): the candidate is 1 + the reference, as of a zero-centred norm" in shown
    assert '"layers.{0..2}.norm.weight" = { to = "layers.{0..2}.norm.weight", op = "add", value = 1.0 }' in shown
    monkeypatch.setenv("ALIGN_LANG", "zh")
    main(["diff", *map(str, files)])
    assert "待比对侧等于 1 + 标杆，如以零为中心的 norm" in capsys.readouterr().out
    monkeypatch.delenv("ALIGN_LANG")
    main(["diff", *map(str, files), "--json"])
    document = json.loads(capsys.readouterr().out)
    norm = next(one for one in document["tensors"] if one["reference"] == "layers.0.norm.weight")
    assert norm["relations"][0]["transform"] == {"op": "add", "value": 1.0}
