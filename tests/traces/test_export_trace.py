"""What is exported is read back by the readers of the tools' own dumps, and holds the same values."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

import align
from align.checkpoints.open_checkpoint import npy_bytes
from align.cli.main import main
from align.core.verdicts import Outcome
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.traces.dumped_side import export_trace, open_dumped_side

X = {"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)}
MSPROBE = Path(__file__).parent / "data" / "msprobe"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    weights = np.random.default_rng(1).standard_normal((2, 8, 8)).astype(np.float32)
    layers = (
        ArrayLayer(f"fc{n}", "torch.nn.Linear", lambda x, weight: x @ weight.T, {"weight": w})
        for n, w in enumerate(weights)
    )
    align.capture_trace(ArrayModel(tuple(layers)), tmp_path / "trace", inputs=X)
    return tmp_path / "trace"


@pytest.mark.parametrize("form", ["npy", "msprobe", "polygraphy"])
def test_an_exported_trace_is_read_back(folder: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder.with_name("out")
    assert main(["trace", "export", str(folder), "--to", form, "--out", str(out)]) == 0
    assert "written to" in capsys.readouterr().out
    result = align.compare_trace_folders(folder, out)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert {one.reference for one in result.layers} >= {"fc0", "fc1"}


def test_msprobes_dump_comes_back_whole(tmp_path: Path) -> None:
    """Inputs, parameters and gradients too, as torch's files."""
    assert main(["trace", "export", str(MSPROBE / "torch"), "--to", "msprobe", "--out", str(tmp_path / "out")]) == 0
    result = align.compare_trace_folders(MSPROBE / "torch", tmp_path / "out")
    assert result.verdict.coverage.compared == 51
    assert {one.measurement.max_abs for one in result.layers if one.measurement} == {0.0}
    assert len([*(tmp_path / "out").rglob("*.pt")]) == 51


@pytest.mark.frameworks
def test_torch_reads_the_tensors_that_are_written(tmp_path: Path) -> None:
    import torch

    main(["trace", "export", str(MSPROBE / "torch"), "--to", "msprobe", "--out", str(tmp_path / "out")])
    (mine,) = (MSPROBE / "torch").rglob("Module.fc.Linear.forward.0.output.0.pt")
    (ours,) = (tmp_path / "out").rglob("Module.fc.Linear.forward.0.output.0.pt")
    assert torch.equal(torch.load(mine, weights_only=True), torch.load(ours, weights_only=True))


@pytest.mark.parametrize("form", ["npy", "msprobe", "polygraphy"])
def test_names_that_no_file_can_have_are_written(tmp_path: Path, form: str) -> None:
    """Names of nodes of ONNX have slashes; names that become one in a file are kept apart."""
    names = ["/conv1/Conv_output_0", "/conv/1/Conv_output_0", "../../out", "a b", "a_b", "x" * 300]
    outputs = {}
    for number, name in enumerate(names):
        array = base64.b64encode(npy_bytes(np.full(3, number, np.float32))).decode()
        outputs[name] = {"values": {"array": array, "polygraphy_class": "ndarray"}, "polygraphy_class": "LazyArray"}
    results = tmp_path / "results.json"
    document = {"lst": [["run", [{"outputs": outputs}]]], "polygraphy_class": "RunResults"}
    results.write_text(json.dumps(document), encoding="utf-8")
    out = tmp_path / "deep" / "out"
    out.parent.mkdir()
    assert export_trace(results, form, out).left_out == 0  # type: ignore[arg-type]
    held = {float(one.load()[0]) for one in open_dumped_side(out).dump.tensors if one.load}
    assert held == {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}
    assert {*tmp_path.iterdir()} == {results, out.parent}


def test_a_dump_without_values_is_not_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = MSPROBE / "extra" / "md5_torch"
    assert main(["trace", "export", str(dump), "--to", "npy", "--out", str(tmp_path / "out")]) == 2
    assert "holds no values" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_polygraphys_classes_are_named(folder: Path) -> None:
    out = folder.with_name("out.json")
    assert main(["trace", "export", str(folder), "--to", "polygraphy", "--out", str(out)]) == 0
    ((_, (iteration,)),) = json.loads(out.read_text(encoding="utf-8"))["lst"]
    assert iteration["polygraphy_class"] == "IterationResult"
    assert set(iteration["outputs"]) == {"fc0", "fc1", "_model_output_"}


def test_nothing_is_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "export", str(folder), "--to", "npy", "--out", str(folder)]) == 2
    assert "exists" in capsys.readouterr().err


def test_the_tool_must_be_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "export", str(folder)]) == 2
    assert "--to" in capsys.readouterr().err
