"""One run of a model as a folder: what is kept, of which run, and that nothing else in the folder is touched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.operating_system import LOCK, folder_lock
from align.errors import DestinationError, FolderInUseError, UserCodeError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.traces.trace_folder import TraceFolder

if TYPE_CHECKING:
    from pathlib import Path

X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def model(activation: Any = lambda x: np.maximum(x, 0)) -> ArrayModel:
    linear = ArrayLayer("fc", "torch.nn.Linear", lambda x, weight: x @ weight.T, {"weight": WEIGHT}, {"bias": None})
    return ArrayModel((linear, ArrayLayer("act", "torch.nn.ReLU", activation, {})))


def capture(folder: Path, **options: Any) -> Any:
    return align.capture_trace(model(), folder, inputs={"x": X}, **options)


def test_a_folder_that_another_run_writes_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    capture(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with (
        folder_lock(folder / LOCK, folder, "trace"),
        pytest.raises(FolderInUseError, match=f"the trace folder {folder} is in use by process"),
    ):
        capture(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert capture(folder).complete


def test_a_trace_tells_what_was_run_on_what(tmp_path: Path) -> None:
    trace = capture(tmp_path / "new" / "trace")
    assert [(call.module, call.depth, call.class_name) for call in trace.calls] == [
        ("", 0, "ArrayModel"),
        ("fc", 1, "Linear"),
        ("act", 1, "ReLU"),
    ]
    assert (trace.complete, trace.running, trace.failure) == (True, (), "")
    assert (trace.head.side, trace.head.framework, trace.head.mode) == ("ArrayModel", "arrays", "evaluation")
    assert trace.head.inputs["x"]["shape"] == [4, 3]
    assert {"numpy", "python", "mindalign", "platform"} <= trace.environment.keys()
    assert (trace.tensors, trace.parameters) == (3, 1)
    assert align.show_trace(tmp_path / "new" / "trace") == trace


def test_the_values_are_those_of_the_run(tmp_path: Path) -> None:
    capture(tmp_path)
    trace = TraceFolder(tmp_path)
    found = {one.module: trace.value(one) for one in trace.captures}
    assert np.array_equal(found["fc"], X @ WEIGHT.T)
    assert np.array_equal(found["act"], np.maximum(X @ WEIGHT.T, 0))
    assert np.array_equal(found[""], found["act"])


def test_noise_is_measured_against_float64_and_may_be_left_out(tmp_path: Path) -> None:
    assert capture(tmp_path / "a").noise == 3
    without = capture(tmp_path / "b", noise=False)
    assert (without.noise, without.noise_missing) == (0, "it was not measured")


def test_noise_is_measured_on_the_elements_that_are_kept(tmp_path: Path) -> None:
    assert capture(tmp_path / "a", tensors=("first:2",)).noise == 3
    noise = json.loads((tmp_path / "a" / "noise.json").read_text())["noise"]
    assert {one["count"] for one in noise.values()} == {2}
    assert capture(tmp_path / "b", tensors=("act",)).noise == 2
    assert capture(tmp_path / "c", tensors=("none",)).noise_missing == "no tensors were kept"


def test_without_tensors_the_figures_stay(tmp_path: Path) -> None:
    trace = capture(tmp_path, tensors=("none",))
    assert trace.nbytes == 0
    assert trace.calls[1].outputs[0].statistics.max == pytest.approx((X @ WEIGHT.T).max())


def test_values_of_parameters_may_be_left_out(tmp_path: Path) -> None:
    capture(tmp_path, values=False)
    assert not (tmp_path / "values.safetensors").exists()


def test_a_second_capture_replaces_the_first_whole(tmp_path: Path) -> None:
    capture(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    assert capture(tmp_path, noise=False, values=False).noise == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "inputs.npz", "manifest.jsonl", "model.json", "notes.txt", "step0.safetensors",
    }  # fmt: skip


def test_a_folder_with_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "inputs.npz").write_text("mine")
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(DestinationError, match=r"is no trace folder, it holds thesis\.tex"):
        capture(tmp_path)
    assert (tmp_path / "inputs.npz").read_text() == "mine"


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DestinationError, match="cannot write the trace"):
        capture(tmp_path / "file")


def test_a_model_that_raises_leaves_a_trace_that_ends_there(tmp_path: Path) -> None:
    def broken(x: Any) -> Any:
        raise ValueError(f"no kernel for {x.shape}")

    with pytest.raises(UserCodeError, match="no kernel") as failed:
        align.capture_trace(model(broken), tmp_path, inputs={"x": X})
    assert f"align trace show {tmp_path}" in failed.value.hint
    trace = align.show_trace(tmp_path)
    assert (trace.complete, trace.running) == (False, ("", "act"))
    assert "ValueError: no kernel for (4, 2)" in trace.failure
    assert [call.returned for call in trace.calls] == [False, True, False]


def test_models_that_cannot_run_backwards_say_so(tmp_path: Path) -> None:
    with pytest.raises(align.errors.CannotRunError, match="arrays models cannot be run backwards"):
        capture(tmp_path, backward=True)
