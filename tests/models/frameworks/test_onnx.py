"""ONNX files as sides: names, values and layers as the exported model had them, and files that cannot be sides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align.cli.main import main
from align.errors import AlignError
from align.forward.compare_forward import compare_forward
from align.models.open_side import open_side, open_sides
from align.names.map_result import follow_origins

pytestmark = pytest.mark.frameworks
sys.path.insert(0, str(Path(__file__).parents[2] / "planted"))

from exported_net import exported, mindspore_net, pixels, torch_net  # noqa: E402


@pytest.fixture(scope="module")
def net() -> Any:
    return torch_net()


@pytest.fixture(scope="module")
def files(net, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("onnx")
    return {
        "torchscript": exported(folder / "script.onnx", net),
        "dynamo": exported(folder / "dynamo.onnx", net, dynamo=True),
    }


def changed(file: Path, name: str, change: Any, to: Path) -> Path:
    """A copy of a file with other values in the first initializer whose name ends so."""
    import onnx

    model = onnx.load(file)
    tensor = next(one for one in model.graph.initializer if one.name.endswith(name))
    value = change(onnx.numpy_helper.to_array(tensor).copy())
    tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
    onnx.save(model, to)
    return to


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_an_export_has_the_parameters_of_its_model(net, files, exporter) -> None:
    """Transposed matrices, folded norms and equal tensors are all found again, bit for bit."""
    ours, theirs = follow_origins(*open_sides(net, str(files[exporter])))
    mine, exported_values = (side.reader.read_values(side.model) for side in (ours, theirs))
    assert set(mine) - set(exported_values) == {"bn1.num_batches_tracked", "layer.1.num_batches_tracked"}
    assert set(exported_values) <= set(mine)
    assert [name for name, value in exported_values.items() if not np.array_equal(value, mine[name])] == []


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_an_export_is_aligned_with_its_model_layer_by_layer(net, files, exporter) -> None:
    result = compare_forward(net, str(files[exporter]), inputs=pixels(), functions=True)
    assert result.verdict.outcome.value == "aligned"
    assert {layer.reference for layer in result.layers} >= {"", "bn1", "relu", "layer", "norm", "fc1", "act", "fc2"}
    assert result.unpaired == ()
    assert "functions-not-compared" in {one.code for one in result.findings}


def test_a_fault_in_an_export_is_found_at_its_layer(net, files, tmp_path) -> None:
    wrong = changed(files["torchscript"], "fc1.bias", lambda value: value + np.float32(0.1), tmp_path / "wrong.onnx")
    result = compare_forward(net, str(wrong), inputs=pixels())
    assert result.verdict.outcome.value == "not aligned"
    assert result.first_divergent is not None
    assert result.layers[result.first_divergent].reference == "fc1"
    assert [one.candidate for one in result.culprits] == ["fc1"]


def test_a_fault_in_a_folded_convolution_is_found_there(net, files, tmp_path) -> None:
    wrong = changed(files["dynamo"], "conv1.weight", lambda value: value * np.float32(1.1), tmp_path / "wrong.onnx")
    result = compare_forward(net, str(wrong), inputs=pixels())
    assert "conv1.weight -> conv1.weight" in [one.subject for one in result.findings if one.code == "weights-differ"]
    assert [one.candidate for one in result.culprits] == ["conv1"]


def test_a_port_in_mindspore_is_aligned_with_the_export_from_both_ends(net, files) -> None:
    import torch

    from align.convert.convert_checkpoint import convert_checkpoint

    folder = files["torchscript"].parent
    torch.save(net.state_dict(), folder / "net.pth")
    convert_checkpoint(folder / "net.pth", folder / "net.ckpt")
    port = open_side(mindspore_net(), folder / "net.ckpt")
    for sides in ((port, str(files["torchscript"])), (str(files["torchscript"]), port)):
        result = compare_forward(*sides, inputs=pixels())
        assert (result.verdict.outcome.value, result.unpaired) == ("aligned", ()), sides[0]


def test_node_by_node_computes_what_an_unoptimised_session_does(files) -> None:
    import onnxruntime

    side = open_side(str(files["torchscript"]))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(files["torchscript"]), options, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(side.model(**pixels()), session.run(None, pixels())[0], rtol=1e-5, atol=1e-6)


def test_values_that_are_loaded_are_used_and_put_back_exactly(net, files) -> None:
    _, side = follow_origins(*open_sides(net, str(files["torchscript"])))
    before, values = side.model(**pixels()), side.reader.read_values(side.model)
    side.reader.load_values(side.model, {**values, "bn1.weight": values["bn1.weight"] * 2})
    assert not np.allclose(side.model(**pixels()), before)
    side.reader.load_values(side.model, values)
    assert np.array_equal(side.model(**pixels()), before)


def test_an_onnx_side_runs_with_onnxruntime_alone(files, tmp_path) -> None:
    """No torch, no MindSpore, and not even the onnx package."""
    code = """
import sys
for name in ("torch", "mindspore", "onnx", "onnxscript", "transformers"):
    sys.modules[name] = None
from align.cli.main import main
sys.exit(main(["capture", *sys.argv[1:], "--input", "x=float32[2,3,6,6]"]))
"""
    command = [sys.executable, "-c", code, str(files["dynamo"]), "-o", str(tmp_path / "trace")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "fc1" in done.stdout
    assert (tmp_path / "trace").is_dir()


def test_what_cannot_be_a_side_says_why(files, tmp_path, capsys) -> None:
    import onnx

    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(files["dynamo"].read_bytes()[:-40])
    strange = onnx.load(files["torchscript"])
    strange.graph.node[1].op_type, strange.graph.node[1].domain = "Frobnicate", "com.example"
    strange.opset_import.append(onnx.helper.make_opsetid("com.example", 1))
    onnx.save(strange, tmp_path / "custom.onnx")
    late = onnx.load(files["torchscript"])
    late.opset_import[0].version = 99
    onnx.save(late, tmp_path / "late.onnx")
    onnx.save(
        onnx.load(files["torchscript"]),
        tmp_path / "data.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    (tmp_path / "w.bin").rename(tmp_path / "gone.bin")
    outside = onnx.load(tmp_path / "data.onnx", load_external_data=False)
    for tensor in outside.graph.initializer:
        next(one for one in tensor.external_data if one.key == "location").value = "../w.bin"
    (tmp_path / "outside.onnx").write_bytes(outside.SerializeToString())
    cases = [
        ("damaged.onnx", "x=float32[2,3,6,6]", "is not a readable checkpoint"),
        ("custom.onnx", "x=float32[2,3,6,6]", "Frobnicate"),
        ("late.onnx", "x=float32[2,3,6,6]", "opset"),
        ("data.onnx", "x=float32[2,3,6,6]", "w.bin"),
        ("outside.onnx", "x=float32[2,3,6,6]", "w.bin"),
        ("no.onnx", "x=float32[2,3,6,6]", "not found"),
        (str(files["dynamo"]), "x=float32[2,3,7,6]", "the graph takes [2, 3, 6, 6]"),
        (str(files["dynamo"]), "x=<5:2,3,6,6", "the graph takes float32"),
    ]
    for name, given, said in cases[:-1]:
        code = main(["capture", str(tmp_path / name), "--input", given, "-o", str(tmp_path / "t")])
        error = capsys.readouterr().err
        assert (code, said in error, "Hint:" in error) == (2, True, True), (name, error)
    with pytest.raises(AlignError, match="the graph takes float32"):
        open_side(cases[-1][0]).model.fitted({"x": np.zeros((2, 3, 6, 6), np.int64)})


def test_an_axis_with_a_name_takes_any_length(net, tmp_path) -> None:
    file = exported(tmp_path / "free.onnx", net, dynamic_axes={"x": {0: "batch"}})
    inputs = {"x": np.random.default_rng(1).standard_normal((5, 3, 6, 6)).astype(np.float32)}
    assert compare_forward(net, str(file), inputs=inputs).verdict.outcome.value == "aligned"


def test_two_exports_of_one_model_differ_by_rounding_only_where_norms_are_folded(files, tmp_path) -> None:
    both = str(files["torchscript"]), str(files["dynamo"])
    assert compare_forward(*both, inputs=pixels()).verdict.outcome.value == "aligned"
    wrong = changed(files["dynamo"], "conv1.weight", lambda value: value * np.float32(1.0001), tmp_path / "wrong.onnx")
    found = compare_forward(both[0], str(wrong), inputs=pixels()).findings
    assert "conv1.weight -> conv1.weight" in [one.subject for one in found if one.code == "weights-differ"]


def test_no_cause_is_seen_in_settings_that_a_graph_does_not_keep(net, files, tmp_path) -> None:
    import onnx

    model = onnx.load(files["torchscript"])
    for attribute in next(node for node in model.graph.node if node.name == "/conv1/Conv").attribute:
        if attribute.name in ("dilations", "pads"):
            attribute.ints[:] = [2] * len(attribute.ints)
    onnx.save(model, tmp_path / "wrong.onnx")
    result = compare_forward(net, str(tmp_path / "wrong.onnx"), inputs=pixels())
    assert [one.candidate for one in result.culprits] == ["conv1"]
    assert "conv-padding" not in str(result.culprits)
