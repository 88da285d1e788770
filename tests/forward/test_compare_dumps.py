"""Dumps are compared as they are: by the name map, with all their parts, and statistics never show agreement."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.cli.main import main
from align.core.verdicts import Outcome
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

if TYPE_CHECKING:
    from align.forward.forward_result import ForwardComparison, LayerComparison

DATA = Path(__file__).parents[1] / "traces" / "data" / "msprobe"
EXTRA = DATA / "extra"


def compare(reference: Path, candidate: Path) -> ForwardComparison:
    return align.compare_trace_folders(reference, candidate)


def row(result: ForwardComparison, part: str, module: str, item: str = "") -> LayerComparison:
    (found,) = (
        one for one in result.layers if (one.part, one.reference, one.output, one.call) == (part, module, item, 0)
    )
    return found


@pytest.fixture(scope="module")
def result() -> ForwardComparison:
    return compare(DATA / "torch", DATA / "mindspore")


def test_all_that_can_pair_pairs_without_a_map(result: ForwardComparison) -> None:
    assert len(result.layers) == 51
    assert result.verdict.coverage.compared == 51
    assert (result.verdict.coverage.unmatched_reference, result.verdict.coverage.unmatched_candidate) == (0, 2)
    assert row(result, "parameter", "layers.2", "weight").candidate == "layers.2"


def test_the_fault_is_named_with_its_settings(result: ForwardComparison) -> None:
    (culprit,) = result.culprits
    assert (culprit.candidate, culprit.cause) == ("layers.2", "epsilon")
    assert (culprit.facts["reference"], culprit.facts["candidate"]) == (1e-5, 1e-7)
    assert culprit.line == "/data/port/ms_r.py:14"
    assert result.first_divergent is not None
    assert result.layers[result.first_divergent].reference == "layers.2"
    assert result.verdict.outcome is Outcome.NOT_ALIGNED


def test_a_gradient_of_rounding_noise_is_no_fault(result: ForwardComparison) -> None:
    noise = row(result, "parameter gradient", "conv1", "bias")
    assert noise.measurement is not None
    assert noise.measurement.relative_l2 is not None
    assert noise.measurement.relative_l2 > 1.0
    assert noise.outcome == "aligned"
    assert row(result, "parameter gradient", "conv1", "weight").outcome == "not aligned"


def test_a_wrong_gradient_of_a_bias_is_found(tmp_path: Path) -> None:
    shutil.copytree(DATA / "mindspore", tmp_path / "port")
    (file,) = (tmp_path / "port").rglob("Cell.fc.Dense.parameters_grad.0.bias.npy")
    np.save(file, np.load(file) * np.float32(1.001))
    assert row(compare(DATA / "torch", tmp_path / "port"), "parameter gradient", "fc", "bias").outcome == "not aligned"


def test_other_weights_are_the_first_difference(tmp_path: Path) -> None:
    """Before the fault that is behind them, though that is the one of a layer."""
    shutil.copytree(DATA / "mindspore", tmp_path / "port")
    for name in ("parameters.weight", "output.0"):
        (file,) = (tmp_path / "port").rglob(f"Cell.conv1.Conv2d.forward.0.{name}.npy")
        np.save(file, np.load(file) * np.float32(1.01))
    other = compare(DATA / "torch", tmp_path / "port")
    assert "first at parameter weight of conv1 (Conv2d) -> conv1 (Conv2d)" in other.verdict.reason
    assert [one.subject for one in other.findings if one.code == "weights-differ"] == ["conv1.weight"]


def test_a_dump_agrees_with_itself() -> None:
    same = compare(DATA / "torch", DATA / "torch")
    assert same.verdict.outcome is Outcome.ALIGNED
    assert same.culprits == ()


def test_the_first_fault_is_found_among_functions_too() -> None:
    mixed = compare(EXTRA / "mix_torch", EXTRA / "mix_mindspore")
    assert [one.candidate for one in mixed.culprits] == ["layers.2"]
    assert mixed.first_divergent is not None
    assert mixed.layers[mixed.first_divergent].reference == "layers.2"
    assert row(mixed, "output", "conv1/Functional.conv2d").outcome == "not comparable"
    assert row(mixed, "output", "/Functional.cross_entropy").outcome == "aligned"


def test_statistics_show_a_difference_and_no_agreement() -> None:
    told = compare(EXTRA / "md5_torch", EXTRA / "md5_mindspore")
    assert row(told, "output", "layers.2").outcome == "not aligned"
    assert row(told, "output", "conv1").outcome == "not comparable"
    assert "could not tell" in row(told, "output", "conv1").note
    assert row(told, "parameter", "conv1", "weight").outcome == "aligned"  # its checksum is equal
    assert told.first_divergent is not None
    assert told.layers[told.first_divergent].reference == "layers.2"
    assert row(told, "parameter gradient", "conv1", "bias").outcome == "not comparable"


def test_equal_checksums_are_equal() -> None:
    assert compare(EXTRA / "md5_torch", EXTRA / "md5_torch").verdict.outcome is Outcome.ALIGNED


def bare(folder: Path, to: Path) -> Path:
    """The dump without checksums: statistics alone."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(one) for key, one in value.items() if key != "md5"}
        return [strip(one) for one in value] if isinstance(value, list) else value

    shutil.copytree(folder, to)
    for file in to.rglob("dump.json"):
        file.write_text(json.dumps(strip(json.loads(file.read_text(encoding="utf-8")))), encoding="utf-8")
    return to


def test_statistics_that_agree_could_not_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = bare(EXTRA / "md5_torch", tmp_path / "a")
    assert main(["forward", str(folder), str(folder)]) == 2
    assert "could not tell" in capsys.readouterr().out


def told(folder: Path, shape: tuple[int, ...] = (2,), **figures: Any) -> Path:
    """A dump of one output, of which there are figures alone."""
    folder.mkdir()
    value = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": shape, **figures}
    record = {"Module.fc.Linear.forward.0": {"output": [value]}}
    (folder / "dump.json").write_text(json.dumps({"level": "L0", "framework": "pytorch", "data": record}))
    return folder


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), "nan"], ids=repr)
def test_statistics_show_that_one_side_is_not_finite(tmp_path: Path, odd: float | str) -> None:
    sound = told(tmp_path / "sound", Max=1.0, Min=0.0, Mean=0.5, Norm=1.0)
    wrong = told(tmp_path / "wrong", Max=odd, Min=0.0, Mean=odd, Norm=odd)
    for sides in ((sound, wrong), (wrong, sound)):
        result = compare(*sides)
        assert result.verdict.outcome is Outcome.NOT_ALIGNED
        assert "NaN or Inf on one side" in row(result, "output", "fc").note
    assert compare(wrong, wrong).verdict.outcome is Outcome.NOT_COMPARED


def test_a_tensor_without_elements_is_no_statistic(tmp_path: Path) -> None:
    result = compare(*(told(tmp_path / name, (0, 3), Max=None, Min=None) for name in "ab"))
    assert row(result, "output", "fc").note == "no elements"
    assert "no layer could be compared: no elements" in result.verdict.reason


def test_unequal_checksums_are_not_said_to_agree(tmp_path: Path) -> None:
    result = compare(told(tmp_path / "a", md5="0b1c2d3e"), told(tmp_path / "b", md5="0b1c2d3f"))
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert "do not show whether they agree" in result.verdict.reason


@pytest.mark.parametrize(("dtype", "outcome"), [("torch.int64", "not aligned"), ("torch.float32", "not comparable")])
def test_unequal_checksums_of_whole_numbers_are_a_difference(tmp_path: Path, dtype: str, outcome: str) -> None:
    result = compare(*(told(tmp_path / sum_, dtype=dtype, md5=sum_) for sum_ in ("0b1c2d3e", "0b1c2d3f")))
    assert row(result, "output", "fc").outcome == outcome


def test_a_dump_without_what_the_reference_ends_with_could_not_tell(tmp_path: Path) -> None:
    shutil.copytree(DATA / "torch", tmp_path / "port")
    (file,) = (tmp_path / "port").rglob("dump.json")
    table = json.loads(file.read_text(encoding="utf-8"))
    table["data"] = {name: record for name, record in table["data"].items() if ".fc." not in name}
    file.write_text(json.dumps(table), encoding="utf-8")
    cut = compare(DATA / "torch", tmp_path / "port")
    assert cut.verdict.outcome is Outcome.NOT_COMPARED
    assert "last output of the reference, fc (Linear), has no counterpart" in cut.verdict.reason
    assert compare(tmp_path / "port", DATA / "torch").verdict.outcome is Outcome.ALIGNED


def test_a_dump_with_tensors_is_held_against_checksums() -> None:
    mixed = compare(DATA / "torch", EXTRA / "md5_torch")
    assert {one.outcome for one in mixed.layers} == {"aligned"}
    assert mixed.verdict.outcome is Outcome.ALIGNED


def test_a_dump_is_compared_with_a_trace_folder(tmp_path: Path) -> None:
    """The convolution of the dump, run again as a model, is the same; with another bias it is not."""
    folder = next((DATA / "mindspore").rglob("dump_tensor_data"))
    weight, bias, x = (
        np.load(folder / f"Cell.fc.Dense.forward.0.{name}.npy")
        for name in ("parameters.weight", "parameters.bias", "input.0")
    )
    for name, shift in (("same", 0.0), ("other", 0.1)):
        values = {"weight": weight, "bias": bias + np.float32(shift)}
        layer = ArrayLayer("fc", "mindspore.nn.Dense", lambda x, weight, bias: x @ weight.T + bias, values)
        align.capture_trace(ArrayModel((layer,)), tmp_path / name, inputs={"x": x})
    same, other = (compare(DATA / "mindspore", tmp_path / name) for name in ("same", "other"))
    assert row(same, "output", "fc").outcome == row(same, "parameter", "fc", "bias").outcome == "aligned"
    assert row(other, "output", "fc").outcome == row(other, "parameter", "fc", "bias").outcome == "not aligned"


def test_a_model_and_a_dump_are_no_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("port.py").write_text("def build(): ...", encoding="utf-8")
    assert main(["forward", str(DATA / "torch"), "port.py:build"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "is a dump without the inputs of its run, and port.py:build is a model" in message
    assert "align capture port.py:build" in message
    assert "inputs.npz" not in message  # a dump has none


def test_what_no_reader_knows_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    assert main(["forward", str(tmp_path), str(tmp_path)]) == 2
    assert "msprobe" in capsys.readouterr().err
