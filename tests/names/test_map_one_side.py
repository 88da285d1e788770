"""One side alone is mapped to the names of the other framework's layers; what a checkpoint leaves open is listed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.core.name_map import Dropped
from align.errors import CannotRunError, MapError, UsageError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.names.map_file import read_map
from align.names.map_one_side import map_one_side

if TYPE_CHECKING:
    from align.names.map_result import MapResult

FAMILY_NAMES = Path(__file__).parents[1] / "rules" / "data" / "model_names.json.gz"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    shapes = {"embed.weight": (5, 4), "blocks.0.fc.weight": (4, 4), "blocks.1.fc.weight": (4, 4)}
    norm = {f"bn.{name}": (4,) for name in ("weight", "bias", "running_mean", "running_var")}
    np.savez(tmp_path / "torch.npz", **{name: np.ones(shape, np.float32) for name, shape in (shapes | norm).items()})
    return tmp_path / "torch.npz"


def pairs(result: MapResult) -> dict[str, str]:
    return {one.source: one.target for one in result.name_map.pairings}


def test_what_a_checkpoint_leaves_open_is_listed_with_the_option_and_nothing_is_written(checkpoint: Path) -> None:
    result = map_one_side(checkpoint, "nn", out=checkpoint.with_name("map.toml"))
    assert result.verdict.exit_code == 1
    assert not checkpoint.with_name("map.toml").exists()
    assert pairs(result)["bn.running_var"] == "bn.moving_variance"
    said = {one.name: one.reason.partition(": ")[2] for one in result.name_map.unmatched}
    assert said == {
        "embed.weight": "say which by --layer 'embed=embedding' or ...=linear",
        "blocks.0.fc.weight": "say which by --layer 'blocks.*.fc=embedding' or ...=linear",
        "blocks.1.fc.weight": "say which by --layer 'blocks.*.fc=embedding' or ...=linear",
    }


def test_settled_it_is_written_as_a_map_that_can_be_read(checkpoint: Path) -> None:
    out = checkpoint.with_name("map.toml")
    result = map_one_side(checkpoint, "nn", layers=["embed=embedding", "blocks.*=linear"], out=out)
    assert result.verdict.exit_code == 0
    assert result.name_map.frameworks == ("torch", "mindspore")
    assert pairs(result)["embed.weight"] == "embed.embedding_table"
    read = read_map(out, [one.name for one in result.source_parameters], [one.name for one in result.target_parameters])
    assert {one.source: one.target for one in read.pairings} == pairs(result)


def test_what_the_user_wrote_into_the_map_counts_and_stays(checkpoint: Path) -> None:
    out = checkpoint.with_name("map.toml")
    out.write_text('[names]\n"embed.weight" = "tok.weight"  # a class of ours\n', encoding="utf-8")
    result = map_one_side(checkpoint, "mint", layers=["blocks.*=linear"], out=out)
    assert result.verdict.exit_code == 0
    assert pairs(result)["embed.weight"] == "tok.weight"
    assert '"embed.weight" = "tok.weight"  # a class of ours\n' in out.read_text(encoding="utf-8")


def test_a_rule_that_leads_to_a_name_which_is_taken_is_refused_with_its_line(checkpoint: Path) -> None:
    rules = checkpoint.with_name("rules.toml")
    rules.write_text('[names]\n"embed.weight" = "bn.gamma"\n', encoding="utf-8")
    with pytest.raises(MapError, match=r"embed\.weight \(line 2\), bn\.weight all lead to bn\.gamma"):
        map_one_side(checkpoint, "nn", layers=["blocks.*=linear"], rules=rules)


def model(*layers: tuple[str, str, dict[str, tuple[int, ...]]]) -> ArrayModel:
    return ArrayModel(
        tuple(
            ArrayLayer(path, name, lambda x, **_: x, {key: np.ones(shape) for key, shape in shapes.items()})
            for path, name, shapes in layers
        )
    )


def test_the_classes_of_a_model_leave_nothing_open() -> None:
    net = model(("embed", "torch.nn.Embedding", {"weight": (5, 4)}), ("fc", "torch.nn.Linear", {"weight": (4, 4)}))
    assert pairs(map_one_side(net, "nn")) == {"embed.weight": "embed.embedding_table", "fc.weight": "fc.weight"}
    assert pairs(map_one_side(net, "mint")) == {"embed.weight": "embed.weight", "fc.weight": "fc.weight"}


def test_a_class_that_no_rule_knows_keeps_its_names_which_is_said() -> None:
    result = map_one_side(model(("scale", "mine.Scale", {"weight": (4,)})), "nn")
    assert pairs(result) == {"scale.weight": "scale.weight"}
    assert result.warnings == ("no rule knows Scale, which leaves the names in 1 such layer unchanged: scale",)


def test_the_way_to_torch_adds_what_a_mindspore_file_never_has(tmp_path: Path) -> None:
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    np.savez(tmp_path / "ms.npz", **{f"net.bn.{name}": np.ones(4) for name in names})
    result = map_one_side(tmp_path / "ms.npz", "torch", layers=["net.bn=batch-norm"])
    assert pairs(result)["net.bn.moving_mean"] == "net.bn.running_mean"
    assert [(drop.name, drop.side) for drop in result.name_map.dropped if isinstance(drop, Dropped)] == [
        ("net.bn.num_batches_tracked", "target")
    ]


def test_a_family_names_the_modules_of_its_port(tmp_path: Path) -> None:
    shapes = json.loads(gzip.decompress(FAMILY_NAMES.read_bytes()))["models"]["torchvision resnet18"]
    tensors = {name: np.zeros(shape, np.int8) for name, shape in shapes.items()}
    np.savez(tmp_path / "resnet.npz", **tensors)
    result = map_one_side(tmp_path / "resnet.npz", "nn", family="tv-resnet")
    assert result.verdict.exit_code == 0
    assert pairs(result)["bn1.running_mean"].endswith("moving_mean")
    with pytest.raises(UsageError, match=r"and only one side is given\nHint: .*tv-resnet"):
        map_one_side(tmp_path / "resnet.npz", "nn", family="auto")
    with pytest.raises(UsageError, match="does not go with --family"):
        map_one_side(tmp_path / "resnet.npz", "nn", family="tv-resnet", layers=["fc=linear"])


def test_names_that_are_the_targets_already_are_refused(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match="are torch's already"):
        map_one_side(checkpoint, "torch")


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(CannotRunError, match="no parameter in ArrayModel"):
        map_one_side(ArrayModel(()), "nn")


@pytest.mark.frameworks
def test_the_names_are_those_of_the_port_of_real_layers() -> None:
    import mindspore.nn as ms_nn
    from torch import nn

    original = nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.Embedding(5, 4), nn.LayerNorm(4), nn.PReLU())
    port = ms_nn.SequentialCell(
        ms_nn.Conv1d(3, 4, 3, has_bias=True),
        ms_nn.BatchNorm1d(4),
        ms_nn.Embedding(5, 4),
        ms_nn.LayerNorm((4,)),
        ms_nn.PReLU(),
    )
    made = {one.name: one.shape for one in map_one_side(original, "nn").target_parameters}
    assert made == {parameter.name: tuple(parameter.shape) for parameter in port.get_parameters()}
