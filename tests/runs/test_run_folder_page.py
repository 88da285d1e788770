"""docs/run-folder.md names every file and every field that there is, and its example runs."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import align
from align.convert import pair_checkpoints as diff_result
from align.core import traces
from align.core.traces import Capture, LimitSource, Measurement, TensorStatistics
from align.core.verdicts import Coverage, Finding, LayerOutcome, Outcome, Verdict
from align.evaluation import compare_generation as generation_result
from align.evaluation import validate_models
from align.forward import forward_result
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.runs.run_folder import KINDS, RunFolder
from align.traces import manifest
from align.traces import manifest as stored_model
from align.traces import open_trace as rounding_noise
from align.traces.module_calls import UnpairedLayer
from align.traces.open_trace import TraceSummary
from align.traces.thresholds import TRACE_HEADER_BYTES
from align.training import check_determinism as determinism_result
from align.training import compare_initial_values as initial_values_result
from align.training import step_result

PAGE = (Path(__file__).parents[2] / "docs" / "run-folder.md").read_text(encoding="utf-8")
TEXT = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)  # without blocks of code
SOURCES = (Path(__file__).parents[2] / "align").rglob("*.py")


def named(text: str = TEXT) -> set[str]:
    return set(re.findall(r"`([^`\s]+)`", text))


@pytest.mark.parametrize(
    "value",
    [
        diff_result.CheckpointDiff, diff_result.TensorDifference,
        diff_result.UpdatesDiff, diff_result.UpdateDifference,
        forward_result.ForwardComparison, forward_result.LayerComparison, UnpairedLayer, Measurement, Finding,
        Capture, Coverage, Verdict,
        traces.TraceHead, traces.KeptValues, TensorStatistics,
        TraceSummary, traces.TracedCall, traces.TracedTensor,
        validate_models.Validation, validate_models.OutputDifference, validate_models.SampleDifference,
        validate_models.Combination,
        determinism_result.DeterminismResult, determinism_result.RepeatedSide, determinism_result.UnrepeatedTensor,
        determinism_result.PartCount,
        step_result.StepComparison, step_result.StepCulprit, step_result.ComparedLoss, step_result.ComparedLayer,
        step_result.ComparedGradient, step_result.ComparedUpdate,
        initial_values_result.InitialValues, initial_values_result.InitialParameter, initial_values_result.Distribution,
        generation_result.GenerationComparison, generation_result.LogitsComparison,
        generation_result.PositionComparison, generation_result.TokenDifference,
    ],
)  # fmt: skip
def test_every_field_is_described(value: type) -> None:
    assert {field.name for field in dataclasses.fields(value)} <= named()


def test_every_word_that_a_field_may_hold_is_described() -> None:
    assert set(typing.get_args(LimitSource)) <= named()
    assert {outcome.value for outcome in Outcome} <= set(re.findall(r"`([^`]+)`", TEXT))
    assert set(typing.get_args(diff_result.TensorOutcome)) <= set(re.findall(r"`([^`]+)`", TEXT))
    assert set(typing.get_args(diff_result.UpdateOutcome)) <= set(re.findall(r"`([^`]+)`", TEXT))
    words = (determinism_result.Builds, determinism_result.RepeatCause, determinism_result.StepPart)
    words += (initial_values_result.InitialOutcome, initial_values_result.Family)
    assert {one for word in words for one in typing.get_args(word) if one} <= set(re.findall(r"`([^`]+)`", TEXT))
    assert set(typing.get_args(LayerOutcome)) <= set(re.findall(r"`([^`]+)`", TEXT))


def test_every_finding_is_described() -> None:
    made = r'(?:Finding|_fault)\(\s*"([a-z-]+)"'
    found = {code for path in SOURCES for code in re.findall(made, path.read_text("utf-8"))}
    assert {"weights-differ", "names-open", "noise-unmeasured", "missing-source", "shape", "contradicted"} <= found
    found |= {"uncovered-source", "uncovered-target"}
    assert found <= named()


def test_files_schemas_and_sizes_are_those_of_the_code() -> None:
    assert {f"{kind}.json" for kind in KINDS} | {
        manifest.MANIFEST,
        manifest.TENSORS,
        manifest.SCHEMA,
    } <= named()
    assert {stored_model.MODEL_FILE, stored_model.VALUES, stored_model.MODEL_SCHEMA} <= named()
    assert {rounding_noise.NOISE_FILE, rounding_noise.NOISE_SCHEMA} <= named()
    assert f"8 + {TRACE_HEADER_BYTES:,} + `offset`" in PAGE


def test_the_example_reads_what_the_page_describes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def model(path: str, family: str) -> ArrayModel:
        weights = {"weight": np.ones((2, 3), np.float32)}
        return ArrayModel((ArrayLayer(path, family, lambda x, weight: x @ weight.T, weights),))

    monkeypatch.chdir(tmp_path)
    result = align.compare_forward(
        model("fc", "torch.nn.Linear"), model("head", "mindspore.nn.Dense"),
        inputs={"x": np.ones((1, 3), np.float32)}, traces=Path("run/traces"),
    )  # fmt: skip
    written = RunFolder.create(Path("run")).write(result, {"reference": "a.py:model"})
    document = json.loads(written.read_text(encoding="utf-8"))
    assert set(document) <= named()
    validated, shown = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(validated, {})
    exec(shown, {})
    assert capsys.readouterr().out == "head#0 float32 (1, 2) 3.0\n#0 float32 (1, 2) 3.0\n"
    written.write_text(json.dumps({**document, "stranger": 1}), encoding="utf-8")
    with pytest.raises(jsonschema.ValidationError, match="stranger"):
        exec(validated, {})
