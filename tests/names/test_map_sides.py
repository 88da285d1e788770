"""Sides of a map that are checkpoints: what their names and shapes tell, and what only their values do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.errors import MapError, SideError, UsageError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.models.open_side import open_side
from align.names.map_export import read_map_rules, require_used, write_map_file
from align.names.map_parameters import map_parameters
from align.names.map_result import open_map_side
from align.names.user_rules import NameRules

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(0)


def torch_weights() -> dict[str, np.ndarray]:
    shapes = {"conv.weight": (4, 3, 3, 3), "bn.weight": (4,), "bn.bias": (4,), "bn.running_mean": (4,)}
    shapes |= {"bn.running_var": (4,), "bn.num_batches_tracked": (), "emb.weight": (7, 4)}
    shapes |= {f"layers.{i}.{name}.weight": (4, 4) for i in range(3) for name in "qk"}
    return {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


TO_PORT = {"bn.weight": "bn.gamma", "bn.bias": "bn.beta", "emb.weight": "emb.embedding_table"}
TO_PORT |= {"bn.running_mean": "bn.moving_mean", "bn.running_var": "bn.moving_variance", "conv.weight": "conv.weight"}
TO_PORT |= {
    f"layers.{i}.{a}.weight": f"blocks.{i}.{b}.weight" for i in range(3) for a, b in zip("qk", "ba", strict=True)
}


def save(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(path, **arrays)
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    weights = torch_weights()
    port = {target: weights[source] for source, target in TO_PORT.items()}
    return save(tmp_path / "torch.npz", weights), save(tmp_path / "port.npz", port)


def test_two_checkpoints_of_the_same_weights_are_mapped_whole(files: tuple[Path, Path]) -> None:
    result = map_parameters(*map(str, files))
    assert {p.source: p.target for p in result.name_map.pairings} == TO_PORT
    assert {p.source for p in result.name_map.pairings if p.evidence == "values"} == {
        name for name in TO_PORT if name.startswith("layers.")
    }
    assert result.name_map.frameworks == (None, "mindspore")  # mint's names are torch's
    assert [drop.name for drop in result.name_map.dropped] == ["bn.num_batches_tracked"]
    assert result.verdict.exit_code == 0


def test_checkpoints_of_other_weights_stay_open_where_names_say_nothing(files: tuple[Path, Path]) -> None:
    port = {name: value + 1 for name, value in np.load(files[1]).items()}
    result = map_parameters(files[0], save(files[1], port))
    assert len(result.name_map.ambiguous) == 3
    assert {p.source: p.target for p in result.name_map.pairings} == {
        source: target for source, target in TO_PORT.items() if not source.startswith("layers.")
    }


def test_running_statistics_tell_a_batch_norm_and_a_lone_matrix_is_left_open(files: tuple[Path, Path]) -> None:
    classes = {module.path: module.class_name for module in open_map_side(files[0]).parameters.modules}
    assert classes["bn"] == "BatchNorm1d"
    assert classes["emb"] == classes["layers.0.q"] == ""
    classes = {module.path: module.class_name for module in open_map_side(files[1]).parameters.modules}
    assert (classes["bn"], classes["emb"]) == ("BatchNorm1d", "Embedding")


def model(names: str, framework: str = "torch") -> ArrayModel:
    layer = "torch.nn.Linear" if framework == "torch" else "mindspore.nn.Dense"
    weights = torch_weights()
    return ArrayModel(
        tuple(
            ArrayLayer(f"m.{i}.{name}", layer, lambda x, weight: x, {"weight": weights[f"layers.{i}.{q}.weight"]})
            for i in range(2)
            for name, q in zip(names, "qk", strict=True)
        )
    )


def test_a_live_model_and_a_checkpoint(tmp_path: Path) -> None:
    live = model("qk")
    values = open_side(live).reader.read_values(live)
    path = save(tmp_path / "a.npz", {name.replace("m.", "n."): value for name, value in values.items()})
    result = map_parameters(live, path)
    assert {(p.source, p.target) for p in result.name_map.pairings} == {(n, n.replace("m.", "n.")) for n in values}


def test_models_filled_from_checkpoints_are_settled_by_values_and_fresh_ones_are_not(tmp_path: Path) -> None:
    live, port = model("qk"), model("ab", "mindspore")
    values = open_side(live).reader.read_values(live)
    swapped = {name.replace("q", "b").replace("k", "a"): value for name, value in values.items()}
    files = save(tmp_path / "a.npz", values), save(tmp_path / "b.npz", swapped)
    assert len(map_parameters(live, port).name_map.ambiguous) == 2
    sides = [open_side(side, file) for side, file in zip((live, port), files, strict=True)]
    found = {p.source: p.target for p in map_parameters(*sides).name_map.pairings}
    assert found == {name: name.replace("q", "b").replace("k", "a") for name in values}


def test_optimizer_state_is_left_out_with_its_reason(tmp_path: Path) -> None:
    arrays = {"fc.weight": RNG.normal(size=(2, 3)), "fc.bias": RNG.normal(size=2), "gn.gamma": np.ones(2)}
    state = {f"moment1.{n}": v for n, v in arrays.items()} | {f"moment2.{n}": v for n, v in arrays.items()}
    extra = {"gn.beta": np.zeros(2), "moment1.gn.beta": np.zeros(2), "moment2.gn.beta": np.zeros(2)}
    path = save(tmp_path / "a.npz", arrays | state | extra | {"global_step": np.array([1])})
    side = open_map_side(path)
    assert set(side.parameters.names) == {"fc.weight", "fc.bias", "gn.gamma", "gn.beta"}
    assert set(side.left_out.values()) == {"optimizer state"}
    result = map_parameters(path, path)
    assert result.verdict.exit_code == 0
    assert {drop.side for drop in result.name_map.dropped} == {"source", "target"}


def test_a_side_that_is_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SideError, match="neither an existing checkpoint nor"):
        map_parameters(str(tmp_path / "gone.npz"), model("qk"))


def test_a_checkpoint_cannot_be_run(files: tuple[Path, Path]) -> None:
    inputs = {"x": np.ones((1, 4), np.float32)}
    with pytest.raises(UsageError, match="is a checkpoint, which cannot be run"):
        map_parameters(*files, inputs=inputs)


def test_what_the_user_wrote_into_the_map_counts_when_it_is_made_again(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "map.toml"
    map_parameters(*files, out=out)
    line = '"layers.{0..2}.q.weight" = "blocks.{0..2}.b.weight"'
    text = out.read_text(encoding="utf-8")
    assert line in text
    out.write_text(text.replace(line, '"layers.{0..2}.q.weight" = "blocks.{0..2}.a.weight"'), encoding="utf-8")
    result = map_parameters(*files, out=out)
    found = {p.source: (p.target, p.evidence) for p in result.name_map.pairings}
    assert found["layers.1.q.weight"] == ("blocks.1.a.weight", "user")
    assert found["layers.1.k.weight"][0] == "blocks.1.b.weight"
    once = out.read_text(encoding="utf-8")
    assert '"layers.{0..2}.q.weight" = "blocks.{0..2}.a.weight"' in once
    map_parameters(*files, out=out)
    assert out.read_text(encoding="utf-8") == once


def test_rules_of_two_files_that_contradict_each_other_are_refused_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('[names]\n"a" = "b"\n', encoding="utf-8")
    (tmp_path / "map.toml").write_text('[names]\n\n"a" = "c"\n"d" = "e"\n', encoding="utf-8")
    with pytest.raises(MapError, match=r"a \(line 2\) -> b; .* says a \(line 3\) -> c"):
        read_map_rules(tmp_path / "rules.toml", tmp_path / "map.toml")
    assert read_map_rules(None, tmp_path / "map.toml").rules.names.keys() == {"a", "d"}
    assert read_map_rules(None, tmp_path / "map.csv").kept is None


def test_one_file_as_rules_and_as_map_gives_the_users_lines_alone(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "map.toml"
    map_parameters(*files, out=out)
    before = out.read_text(encoding="utf-8")
    map_parameters(*files, out=out, rules=out)
    assert out.read_text(encoding="utf-8") == before


def test_rules_that_match_nothing_are_refused_on_request(tmp_path: Path) -> None:
    rules = NameRules("r.toml", lines={"[names] gone": 7})
    require_used((), rules)
    with pytest.raises(MapError, match=r"\[names\] gone matches nothing \(line 7\)"):
        require_used(("[names] gone",), rules)


def test_csv_and_json_hold_every_name(files: tuple[Path, Path], tmp_path: Path) -> None:
    import json

    import pandas as pd

    import align

    result = map_parameters(*files)
    for path in (tmp_path / "map.csv", tmp_path / "map.json"):
        write_map_file(path, result)
    frame = pd.read_csv(tmp_path / "map.csv", keep_default_na=False)
    rows = json.loads((tmp_path / "map.json").read_text(encoding="utf-8"))["rows"]
    assert list(frame["source"]) == [row["source"] for row in rows] == list(align.map_frame(result)["source"])
    assert set(frame["status"]) == {"paired", "dropped"}
    first = rows[0]
    assert (first["source_shape"], first["target_dtype"], first["confidence"]) == ("4x3x3x3", "float32", 1.0)
    with pytest.raises(UsageError, match=r"map\.xlsx"):
        write_map_file(tmp_path / "map.xlsx", result)
