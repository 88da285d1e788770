"""Checkpoints of a training: what is no weight is left out and said, and stops nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from align.convert.convert_checkpoint import convert_checkpoint
from align.errors import InputsError, UsageError
from align.runs.run_folder import as_document

WEIGHTS = {"emb.embedding_table": (5, 3), "norm.gamma": (3,), "norm.beta": (3,)}
TORCH = ["emb.weight", "norm.weight", "norm.bias"]
STATE = {f"moments.{name}": shape for name, shape in WEIGHTS.items()} | {"momentum": (), "global_step": (1,)}
MODEL = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

def port():
    norm = {"gamma": np.ones(3, np.float32), "beta": np.ones(3, np.float32)}
    return ArrayModel((
        ArrayLayer("emb", "mindspore.nn.Embedding", print, {"embedding_table": np.ones((5, 3), np.float32)}),
        ArrayLayer("norm", "mindspore.nn.LayerNorm", print, norm),
    ))
"""


@pytest.fixture
def trained(tmp_path):
    """A file as MindSpore saves it, with the state of a Momentum."""
    own = {name: np.ones(shape, np.float32) for name, shape in (WEIGHTS | STATE).items()}
    own["global_step"] = np.ones(1, np.int32)
    np.savez(tmp_path / "trained.npz", **own)
    convert_checkpoint(tmp_path / "trained.npz", tmp_path / "trained.ckpt")
    (tmp_path / "models.py").write_text(MODEL, encoding="utf-8")
    return tmp_path / "trained.ckpt"


def test_where_the_names_stay_nothing_is_left_out(trained, tmp_path) -> None:
    for destination in ("out.ckpt", "out.safetensors"):
        record = convert_checkpoint(trained, tmp_path / destination)
        assert (len(record.tensors), record.dropped, record.warnings) == (len(WEIGHTS | STATE), {}, ())


@pytest.mark.parametrize("way", ["file", "model", "map", "record"])
def test_state_is_left_out_on_the_way_to_torch_and_counted(trained, tmp_path, way) -> None:
    (tmp_path / "map.toml").write_text(
        '[names]\n"emb.embedding_table" = "emb.weight"\n'
        '[[rename]]\nfrom = "(.*).gamma"\nto = "\\\\1.weight"\n[[rename]]\nfrom = "(.*).beta"\nto = "\\\\1.bias"\n',
        encoding="utf-8",
    )
    first = convert_checkpoint(trained, tmp_path / "first.pth")
    (tmp_path / "convert.json").write_text(json.dumps(as_document(first, {})), encoding="utf-8")
    said = {
        "file": {},
        "model": {"source_model": f"{tmp_path / 'models.py'}:port"},
        "map": {"name_map": tmp_path / "map.toml"},
        "record": {"name_map": tmp_path / "convert.json"},
    }
    record = convert_checkpoint(trained, tmp_path / "out.pth", **said[way])
    assert [tensor.target for tensor in record.tensors] == TORCH
    assert record.dropped == dict.fromkeys(STATE, "optimizer state")
    assert any(line.startswith("optimizer state: 5 tensors NOT CONVERTED (") for line in record.warnings)
    assert record.verdict.coverage.excluded == 5


def test_a_record_does_not_bring_some_of_the_state_back(trained, tmp_path) -> None:
    there = convert_checkpoint(trained, tmp_path / "there.pth")
    (tmp_path / "convert.json").write_text(json.dumps(as_document(there, {})), encoding="utf-8")
    back = convert_checkpoint(tmp_path / "there.pth", tmp_path / "back.ckpt", name_map=tmp_path / "convert.json")
    assert [tensor.target for tensor in back.tensors] == list(WEIGHTS)


def test_what_a_map_says_of_the_state_counts(trained, tmp_path) -> None:
    pairs = [*zip(WEIGHTS, TORCH, strict=True), ("momentum", "own")]
    lines = "\n".join(f'"{source}" = "{target}"' for source, target in pairs)
    text = f'[names]\n{lines}\n[dropped.source]\n"moments.*" = "not wanted"\n'
    (tmp_path / "map.toml").write_text(text, encoding="utf-8")
    record = convert_checkpoint(trained, tmp_path / "out.pth", name_map=tmp_path / "map.toml")
    assert [tensor.target for tensor in record.tensors] == [*TORCH, "own"]
    assert set(record.dropped.values()) == {"not wanted", "optimizer state"}


def averaged(tmp_path, prefix="module."):
    own = {
        f"{prefix}{name}": np.ones(shape, np.float32) for name, shape in {"bn.weight": (3,), "bn.bias": (3,)}.items()
    }
    np.savez(tmp_path / "m.npz", n_averaged=np.array(7), **own)
    convert_checkpoint(tmp_path / "m.npz", tmp_path / "m.pth", target="torch")
    return tmp_path / "m.pth"


SIDE = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

def model():
    norm = {"weight": np.ones(3, np.float32), "bias": np.ones(3, np.float32)}
    return ArrayModel((ArrayLayer("bn", "torch.nn.LayerNorm", print, norm),))
"""


def test_the_count_of_an_averaged_model_is_left_out_and_needs_no_prefix(tmp_path) -> None:
    (tmp_path / "side.py").write_text(SIDE, encoding="utf-8")
    for number, said in enumerate(({"strip": ["module."]}, {"source_model": f"{tmp_path / 'side.py'}:model"})):
        record = convert_checkpoint(averaged(tmp_path), tmp_path / f"{number}.ckpt", **said)
        assert [tensor.target for tensor in record.tensors] == ["bn.gamma", "bn.beta"]
        assert record.dropped == {"n_averaged": "a wrapper's count of averaged models"}
        assert any("1 tensor NOT CONVERTED (n_averaged)" in line for line in record.warnings)
        for file in ("m.npz", "m.pth"):
            (tmp_path / file).unlink()


def test_a_number_that_only_looks_like_such_a_count_stays_and_must_fit_the_model(tmp_path) -> None:
    (tmp_path / "side.py").write_text(SIDE, encoding="utf-8")
    with pytest.raises(InputsError, match="unexpected: n_averaged"):
        convert_checkpoint(averaged(tmp_path, ""), tmp_path / "o.ckpt", source_model=f"{tmp_path / 'side.py'}:model")


@pytest.mark.frameworks
def test_a_real_averaged_model_becomes_the_model_alone(tmp_path) -> None:
    import torch

    model = torch.optim.swa_utils.AveragedModel(torch.nn.Sequential(torch.nn.Linear(3, 4)))
    torch.save(model.state_dict(), tmp_path / "ema.pth")
    record = convert_checkpoint(tmp_path / "ema.pth", tmp_path / "ema.ckpt", strip=["module."])
    assert [tensor.target for tensor in record.tensors] == ["0.weight", "0.bias"]
    assert list(record.dropped) == ["n_averaged"]


def test_names_that_stay_may_be_called_what_they_are(trained, tmp_path) -> None:
    assert convert_checkpoint(trained, tmp_path / "out.safetensors", target="nn").warnings == ()
    with pytest.raises(UsageError, match="--target mint contradicts the source"):
        convert_checkpoint(trained, tmp_path / "no.safetensors", target="mint")


BATCH_NORM = ("gamma", "beta", "moving_mean", "moving_variance")
BATCH_NORM_PORT = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

def port():
    own = {name: np.ones(3, np.float32) for name in ("gamma", "beta", "moving_mean", "moving_variance")}
    return ArrayModel((ArrayLayer("bn", "mindspore.nn.BatchNorm2d", lambda x, **own: x * 2.0, own),))
"""


def counted(tmp_path, prefix="", steps=77, name="global_step"):
    """A file as `save_checkpoint(net, file, append_dict={name: steps})` writes it."""
    own = {f"{prefix}bn.{attribute}": np.ones(3, np.float32) for attribute in BATCH_NORM}
    np.savez(tmp_path / "counted.npz", **own, **{name: np.array(steps)})
    convert_checkpoint(tmp_path / "counted.npz", tmp_path / "counted.ckpt")
    (tmp_path / "port.py").write_text(BATCH_NORM_PORT, encoding="utf-8")
    return tmp_path / "counted.ckpt"


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("by_model", [False, True])
def test_a_lone_count_is_no_weight_and_hides_no_wrapper(tmp_path, prefix, by_model) -> None:
    said = {"source_model": f"{tmp_path / 'port.py'}:port"} if by_model else {}
    record = convert_checkpoint(counted(tmp_path, prefix), tmp_path / "out.pth", **said)
    assert record.dropped == {"global_step": "optimizer state"}
    assert {tensor.target.rpartition(".")[0] for tensor in record.tensors} == {"bn"}
    assert any(line.startswith("optimizer state: 1 tensor NOT CONVERTED (global_step)") for line in record.warnings)
    assert any("the global_step of the file is 77" in line for line in record.warnings)


def test_a_count_that_a_map_knows_as_a_parameter_is_converted(tmp_path) -> None:
    names = [*(f'"bn.{name}" = "bn.{name}"' for name in BATCH_NORM), '"global_step" = "seen"']
    (tmp_path / "map.toml").write_text("\n".join(["[names]", *names]), encoding="utf-8")
    record = convert_checkpoint(counted(tmp_path), tmp_path / "out.pth", name_map=tmp_path / "map.toml")
    assert "seen" in [tensor.target for tensor in record.tensors]
    assert record.dropped == {}


def test_a_number_of_that_name_that_counts_nothing_is_a_weight(tmp_path) -> None:
    record = convert_checkpoint(counted(tmp_path, steps=np.float32(1.5)), tmp_path / "out.pth")
    assert "global_step" in [tensor.target for tensor in record.tensors]
    assert record.dropped == {}


@pytest.mark.parametrize("prefix", ["", "module."])
def test_every_reader_pairs_the_weights_beside_a_lone_count(tmp_path, prefix) -> None:
    import align

    path, port = counted(tmp_path, prefix), f"{tmp_path / 'port.py'}:port"
    (tmp_path / "plain").mkdir()
    plain = counted(tmp_path / "plain", name="other")
    diff = align.diff_checkpoints(plain, path)
    assert (len(diff.tensors), tuple(diff.missing), tuple(diff.extra)) == (4, ("other",), ())
    assert diff.dropped == {"global_step": "optimizer state"}
    assert "counted.ckpt: no weights but optimizer state: 1 tensor (global_step)" in diff.warnings
    side = align.open_side(port, path)
    assert side.not_loaded == "1 tensor (global_step)"
    inputs = {"x": np.ones((2, 3), np.float32)}
    result = align.compare_forward(port, side, inputs=inputs)
    assert result.verdict.outcome.value == "aligned"
    assert [finding.severity for finding in result.findings if finding.code == "training-state-not-loaded"] == ["note"]


def test_what_is_no_count_must_still_be_a_parameter_of_the_model(tmp_path) -> None:
    import align

    path = counted(tmp_path, name="other")
    with pytest.raises(InputsError, match="unexpected: other"):
        align.open_side(f"{tmp_path / 'port.py'}:port", path)


@pytest.mark.parametrize(("name", "steps"), [("global_step", 77), ("step", [5]), ("epoch", 3)])
def test_a_lone_count_in_a_file_of_torch_counts_for_nothing_and_is_converted(tmp_path, name, steps) -> None:
    import align

    weights = {"fc.weight": np.ones((2, 3), np.float32), "fc.bias": np.zeros(2, np.float32)}
    later = {one: value + 1 for one, value in weights.items()}
    np.savez(tmp_path / "before.npz", **weights)
    np.savez(tmp_path / "after.npz", **later, **{name: np.array(steps)})
    files = [tmp_path / "before.npz", tmp_path / "after.npz"]
    np.savez(tmp_path / "counted.npz", **weights, **{name: np.array(steps)})
    diff = align.diff_checkpoints(files[0], tmp_path / "counted.npz")
    assert (diff.verdict.outcome.value, diff.dropped) == ("aligned", {name: "a count of steps or epochs"})
    updates = align.diff_updates(files, files)
    assert (updates.verdict.outcome.value, len(updates.tensors)) == ("aligned", 2)
    assert align.map_parameters(*files).verdict.outcome.value == "aligned"
    record = convert_checkpoint(tmp_path / "counted.npz", tmp_path / "counted.ckpt")
    assert name in [tensor.target for tensor in record.tensors]


def test_a_count_that_the_model_has_is_a_parameter_of_the_file(tmp_path) -> None:
    from align.checkpoints.open_checkpoint import open_checkpoint
    from align.names.map_result import checkpoint_side

    checkpoint = open_checkpoint(counted(tmp_path))
    names = {wanted: checkpoint_side(checkpoint, wanted).parameters.names for wanted in (("global_step",), ())}
    assert [("global_step" in own) for own in names.values()] == [True, False]
