"""What else lies in files of real libraries: older names of the same values, state of modules, objects. Real torch."""

from __future__ import annotations

import argparse
import collections
import datetime as dt
import decimal
import enum
import pathlib
import uuid
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.checkpoints.inspect_checkpoint import inspect_checkpoint
from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.errors import OpenNamesError
from align.names.map_parameters import map_parameters

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks


def saved(path: Path, contents: Any) -> Path:
    import torch

    torch.save(contents, path)
    return path


def targets(record: Any) -> list[str]:
    return [one.target for one in record.tensors]


def normed(newer: bool) -> Any:
    """A convolution under weight_norm and a linear layer under spectral_norm, in torch's older or newer way."""
    import torch

    torch.manual_seed(0)
    of = torch.nn.utils.parametrizations if newer else torch.nn.utils
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return torch.nn.ModuleDict(
            {"c": of.weight_norm(torch.nn.Conv1d(2, 3, 3)), "d": of.spectral_norm(torch.nn.Linear(4, 3))}
        )


@pytest.mark.parametrize("newer", [False, True])
def test_parts_of_weights_pair_under_the_older_and_newer_names_of_torch(tmp_path: Path, newer: bool) -> None:
    import torch

    source, other = normed(newer), normed(not newer)
    files = [saved(tmp_path / f"{n}.pth", net.state_dict()) for n, net in enumerate((source, other))]
    found = map_parameters(*files, out=tmp_path / "map.toml")
    assert found.verdict.outcome.value == "aligned"
    record = convert_checkpoint(files[0], tmp_path / "out.pth", name_map=tmp_path / "map.toml")
    assert {str(one.transform) for one in record.tensors} == {"{'op': 'identity'}"}
    other.load_state_dict(torch.load(tmp_path / "out.pth", weights_only=True))
    source.eval()
    other.eval()
    values = torch.randn(2, 2, 8)
    assert torch.equal(source["c"](values), other["c"](values))
    assert torch.equal(source["d"](values[..., :4]), other["d"](values[..., :4]))


def test_parts_of_other_weights_or_shapes_do_not_pair(tmp_path: Path) -> None:
    import torch

    old, new = normed(False).state_dict(), normed(True).state_dict()
    new["d.parametrizations.weight.original"] = torch.zeros(3, 5)
    files = [saved(tmp_path / "old.pth", old), saved(tmp_path / "new.pth", new)]
    found = map_parameters(*files)
    assert found.verdict.outcome.value == "not aligned"
    assert "d.weight_orig" in [one.name for one in found.name_map.unmatched]


def test_extra_state_is_listed_and_is_no_weight(tmp_path: Path) -> None:
    """As TransformerEngine keeps scales: a tensor of bytes, a stream, or a dict that holds tensors."""
    import io

    import torch

    class Scaled(torch.nn.Linear):
        def __init__(self, kept: Any) -> None:
            super().__init__(2, 2)
            self.kept = kept

        def get_extra_state(self) -> Any:
            return self.kept

        def set_extra_state(self, state: Any) -> None:
            self.kept = state

    kept = [
        torch.zeros(0, dtype=torch.uint8),
        torch.ones(5, dtype=torch.uint8),
        io.BytesIO(b"a"),
        {"scale": torch.ones(3), "amax": torch.ones(3)},
    ]
    net = torch.nn.Sequential(*map(Scaled, kept))
    source = saved(tmp_path / "a.pth", net.state_dict())
    record = convert_checkpoint(source, tmp_path / "a.ckpt")
    assert targets(record) == [f"{n}.{name}" for n in range(4) for name in ("weight", "bias")]
    reason = "what a module keeps beside its parameters (get_extra_state)"
    assert record.dropped == dict.fromkeys(["0._extra_state", "1._extra_state"], reason)
    seen = inspect_checkpoint(source)
    assert any(reason in str(note) and "1._extra_state" in str(note) for note in seen.notes)
    assert {"2._extra_state", "3._extra_state"} <= seen.other.keys()
    assert "3._extra_state (mapping of 2 entries) holds 2 tensors: NOT CONVERTED" in " ".join(map(str, record.warnings))
    kept_names = convert_checkpoint(source, tmp_path / "b.pth")
    assert "1._extra_state" in targets(kept_names)


def test_the_state_of_a_generator_of_random_numbers_is_no_rival_of_the_weights(tmp_path: Path) -> None:
    import torch

    layer = torch.nn.Linear(2, 2).state_dict()
    states = {"rng_state": torch.get_rng_state(), "cuda_rng_state": torch.zeros(16, dtype=torch.uint8)}
    record = convert_checkpoint(saved(tmp_path / "a.pth", {"model": layer, **states}), tmp_path / "a.ckpt")
    assert targets(record) == ["weight", "bias"]
    assert sum("NOT CONVERTED" in str(line) for line in record.warnings) == 2


def old_bert() -> dict[str, Any]:
    import torch

    names = {"encoder.layer.0.attention.self.query": (4, 4), "encoder.layer.0.output.dense": (4, 4)}
    found = {f"bert.{name}.weight": torch.ones(shape) for name, shape in names.items()}
    found |= {f"bert.{name}.bias": torch.ones(4) for name in names}
    found["bert.embeddings.word_embeddings.weight"] = torch.ones(9, 4)
    for module in ("bert.embeddings", "bert.encoder.layer.0.output"):
        found |= {f"{module}.LayerNorm.gamma": torch.full((4,), 3.0), f"{module}.LayerNorm.beta": torch.full((4,), 5.0)}
    return found


def test_scale_and_shift_of_an_old_bert_are_those_of_its_norms(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    source = saved(tmp_path / "a.bin", old_bert())
    save_file(old_bert(), tmp_path / "a.safetensors")
    norm = "bert.encoder.layer.0.output.LayerNorm"
    for file in (source, tmp_path / "a.safetensors"):
        for options, wanted in (
            ({"target": "mint"}, ("weight", "bias")),
            ({"family": "hf-bert"}, ("weight", "bias")),
            ({"layers": ["*word_embeddings=embedding"]}, ("gamma", "beta")),
        ):
            record = convert_checkpoint(file, tmp_path / "o.ckpt", overwrite=True, **options)
            pairs = {one.source: one.target for one in record.tensors}
            assert pairs[f"{norm}.gamma"] == f"{norm}.{wanted[0]}"
            assert pairs[f"{norm}.beta"] == f"{norm}.{wanted[1]}"
            assert not any("taken as MindSpore's" in str(line) for line in record.warnings)
    assert f"{norm}.weight" in targets(convert_checkpoint(source, tmp_path / "new.pth", target="torch"))
    assert f"{norm}.gamma" in targets(convert_checkpoint(source, tmp_path / "same.pth"))


def test_a_file_of_mindspore_with_norms_of_that_name_is_one_of_mindspore(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    names = old_bert()
    names["bert.embeddings.word_embeddings.embedding_table"] = names.pop("bert.embeddings.word_embeddings.weight")
    save_file(names, tmp_path / "ms.safetensors")
    record = convert_checkpoint(tmp_path / "ms.safetensors", tmp_path / "o.pth", layers=["*word_embeddings=embedding"])
    pairs = {one.source: one.target for one in record.tensors}
    assert pairs["bert.embeddings.LayerNorm.gamma"] == "bert.embeddings.LayerNorm.weight"
    assert pairs["bert.embeddings.word_embeddings.embedding_table"] == "bert.embeddings.word_embeddings.weight"
    assert any("taken as MindSpore's" in str(line) for line in record.warnings)


def scaled_block() -> Any:
    """A BatchNorm, a LayerScale beside it and in a module of its own, and a GRN, as real models have them."""
    import torch

    block = torch.nn.Module()
    block.bn, block.fc = torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 4)
    block.gamma = torch.nn.Parameter(torch.full((4,), 0.1))
    block.ls1, block.grn = torch.nn.Module(), torch.nn.Module()
    block.ls1.gamma = torch.nn.Parameter(torch.full((4,), 0.2))
    block.grn.gamma, block.grn.beta = (torch.nn.Parameter(torch.zeros(1, 1, 1, 4)) for _ in range(2))
    return block


def test_a_scale_of_ones_own_keeps_its_name_beside_that_of_a_norm(tmp_path: Path) -> None:
    block = scaled_block()
    source = saved(tmp_path / "a.pth", block.state_dict())
    there = convert_checkpoint(source, tmp_path / "a.ckpt")
    assert {"gamma", "ls1.gamma", "grn.gamma", "grn.beta", "bn.gamma", "bn.beta"} <= {*targets(there)}
    with pytest.raises(
        OpenNamesError, match=r"grn \(gamma \(1, 1, 1, 4\), beta \(1, 1, 1, 4\)\): as-is -> gamma, beta"
    ):
        convert_checkpoint(tmp_path / "a.ckpt", tmp_path / "back.pth")
    convert_checkpoint(tmp_path / "a.ckpt", tmp_path / "back.pth", layers=["grn=as-is"])
    found = open_checkpoint(tmp_path / "back.pth").tensors
    wanted = block.state_dict()
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[name].load(), value) for name, value in wanted.items())


class Colour(enum.Enum):
    """Pickled by its name."""

    RED = 1


def test_objects_beside_the_tensors_are_listed_and_never_made(tmp_path: Path) -> None:
    import torch

    objects = {
        "args": argparse.Namespace(lr=0.1, out=pathlib.Path("/a/b")),
        "best": np.float64(3.5),
        "path": pathlib.PurePosixPath("a"),
        "when": dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc),
        "took": dt.timedelta(3),
        "colour": Colour.RED,
        "part": slice(1, 2),
        "log": collections.defaultdict(list, {"loss": [1.0]}),
        "count": collections.Counter("aa"),
        "seen": {1, 2},
        "number": decimal.Decimal("1.5"),
        "id": uuid.UUID(int=7),
        "size": torch.Size([1, 2]),
        "dtype": torch.float32,
        "activation": torch.nn.functional.relu,
        "array": np.ones(3),
    }
    source = saved(tmp_path / "a.pth", {"state_dict": torch.nn.Linear(2, 2).state_dict(), **objects})
    seen = inspect_checkpoint(source)
    assert objects.keys() == seen.other.keys()
    assert seen.other["args"] == "argparse.Namespace"
    assert seen.other["colour"].endswith("Colour")
    assert seen.other["best"].endswith("multiarray.scalar")
    assert targets(convert_checkpoint(source, tmp_path / "a.ckpt")) == ["weight", "bias"]
