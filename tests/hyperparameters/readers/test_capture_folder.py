"""Two captures are compared by versions, seeds and fingerprints of their inputs and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import align
from align.core.verdicts import Outcome
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def capture(folder: Path, x: float, weight: float = 1.0) -> Path:
    weights = {"weight": np.full((2, 3), weight, np.float32)}
    model = ArrayModel((ArrayLayer("fc", "torch.nn.Linear", lambda x, weight: x @ weight.T, weights),))
    align.capture_trace(model, folder, inputs={"x": np.full((1, 3), x, np.float32)}, noise=False)
    return folder


def test_captures_of_the_same_are_equal(tmp_path: Path) -> None:
    result = align.compare_hyperparameters(capture(tmp_path / "a", 1.0), capture(tmp_path / "b", 1.0))
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.reference.formats == ("capture",)
    equal = {one.parameter for one in result.equal}
    assert {"seed", "fingerprint.inputs.x.sha256", "weights_fingerprint"} <= equal


def test_other_inputs_and_other_weights_show(tmp_path: Path) -> None:
    result = align.compare_hyperparameters(capture(tmp_path / "a", 1.0), capture(tmp_path / "b", 2.0, weight=3.0))
    assert [one.parameter for one in result.differences] == ["fingerprint.inputs.x.sha256"]
    assert [one.parameter for one in result.unsettled] == ["weights_fingerprint"]
    assert result.differences[0].reference.place.endswith("manifest.jsonl:1")


def test_variables_and_the_number_of_processes_of_a_run_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("MS_ACCESS_TOKEN", "hidden")
    first = capture(tmp_path / "a", 1.0)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    result = align.compare_hyperparameters(first, capture(tmp_path / "b", 1.0))
    shown = {one.title: (one.reference.value, one.candidate.value) for one in result.without_effect}
    assert shown["environment.nccl_algo"] == ("Ring", "Tree")
    assert [(one.parameter, one.reference.value, one.candidate.value) for one in result.differences] == [
        ("world_size", "8", "4")
    ]
    assert "hidden" not in (tmp_path / "a" / "manifest.jsonl").read_text()
