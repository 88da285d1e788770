"""Each side takes its inputs in its own dtypes: labels, and floats in the precision of the layer that they go to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align
from align.errors import InputsError, ModelFailedError
from align.models.inputs import run_fitted
from align.models.open_side import open_side

pytestmark = pytest.mark.frameworks

X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
LABELS = np.array([1, 2, 0, 3])


class Given:
    """What a model is given, by name."""

    def __init__(self) -> None:
        self.dtypes: dict[str, str] = {}

    def add(self, capture: Any, value: Any) -> None:
        pass

    def enter(self, module: str, call: int, inputs: Any) -> None:
        if not module:
            self.dtypes = {name: value.dtype.name for name, value in inputs.items()}


@pytest.fixture(scope="module")
def classes() -> Any:
    import mindspore
    import torch
    from mindspore import nn, ops

    class Original(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.fc = torch.nn.Linear(8, 4)

        def forward(self, x: Any, labels: Any) -> Any:
            return torch.nn.functional.cross_entropy(self.fc(x), labels)

    class Port(nn.Cell):
        def __init__(self, scale: float = 1.0) -> None:
            super().__init__()
            self.fc = nn.Dense(8, 4)
            self.loss = nn.CrossEntropyLoss()
            self.scale = scale
            state = Original().fc.state_dict()
            self.fc.weight.set_data(mindspore.Tensor(state["weight"].numpy()))
            self.fc.bias.set_data(mindspore.Tensor(state["bias"].numpy()))

        def construct(self, x: Any, labels: Any) -> Any:
            return self.loss(self.fc(x) * self.scale, labels)

    class Mixed(torch.nn.Module):
        """Its own parameter is first, and in another precision than the layers that take the inputs."""

        def __init__(self) -> None:
            super().__init__()
            self.token = torch.nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
            self.wide = torch.nn.Linear(8, 4)
            self.short = torch.nn.Linear(8, 4).half()

        def forward(self, x: Any, y: Any) -> Any:
            return self.wide(x) + self.short(y).float()

    class Pixels(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.fc = Port().fc

        def construct(self, pixels: Any) -> Any:
            return ops.relu(self.fc(pixels / 255.0))

    return type("Classes", (), {"Original": Original, "Port": Port, "Mixed": Mixed, "Pixels": Pixels})


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16"])
def test_a_model_that_ends_in_its_loss_is_compared(classes: Any, dtype: str) -> None:
    inputs = {"x": X, "labels": LABELS.astype(dtype)}
    result = align.compare_forward(classes.Original(), classes.Port(), inputs=inputs)
    assert result.verdict.exit_code == 0
    told = {one.subject: one.message for one in result.findings if one.code == "inputs-cast"}
    assert ("Original" in told) == (dtype != "int64")
    assert ("Port" in told) == (dtype != "int32")
    wrong = align.compare_forward(classes.Original(), classes.Port(scale=1.01), inputs=inputs)
    assert wrong.verdict.exit_code == 1


def test_only_what_a_model_fails_on_is_cast(classes: Any) -> None:
    sink = Given()
    side = open_side(classes.Original())
    taken = run_fitted(side, {"x": X, "labels": LABELS}, lambda inputs: side.runner.run(side.model, inputs, sink))
    assert taken["labels"] is LABELS  # type: ignore[call-overload]
    with pytest.raises(ModelFailedError, match="cannot be multiplied"):
        run_fitted(side, {"x": X[:, :5], "labels": LABELS}, lambda inputs: side.runner.run(side.model, inputs, sink))


def test_each_input_of_a_model_in_several_precisions_gets_that_of_its_consumer(classes: Any) -> None:
    sink, side = Given(), open_side(classes.Mixed())
    for dtype in ("float64", "float32", "float16"):
        inputs = {"x": X.astype(dtype), "y": X[::-1].astype(dtype)}
        run_fitted(side, inputs, lambda given: side.runner.run(side.model, given, sink))
        assert sink.dtypes == {"0": "float32", "1": "float16"} or sink.dtypes == {"x": "float32", "y": "float16"}


def test_a_model_of_one_precision_takes_floats_of_any_in_its_own(classes: Any) -> None:
    sink, side = Given(), open_side(classes.Pixels())
    run_fitted(side, {"pixels": X.astype(np.float64)}, lambda given: side.runner.run(side.model, given, sink))
    assert set(sink.dtypes.values()) == {"float32"}


def test_the_candidate_may_have_inputs_of_its_own(classes: Any) -> None:
    import torch

    class Relu(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = classes.Original().fc

        def forward(self, x: Any) -> Any:
            return torch.relu(self.fc(x))

    def compared(pixels: Any) -> Any:
        return align.compare_forward(Relu(), classes.Pixels(), inputs={"x": X}, candidate_inputs=pixels)

    result = compared({"pixels": X * 255})
    assert result.verdict.exit_code == 0
    assert list(result.candidate_inputs) == ["pixels"]
    assert compared({"pixels": X * 250}).verdict.exit_code == 1
    with pytest.raises(InputsError, match="the reference has 1 batches, and the candidate has 2"):
        compared([{"pixels": X}, {"pixels": X}])


def test_other_commands_give_each_side_its_own_dtypes_too(classes: Any, tmp_path: Any) -> None:
    inputs = {"x": X, "labels": LABELS}
    for name, model in (("original", classes.Original()), ("port", classes.Port())):
        align.capture_trace(model, tmp_path / name, inputs=inputs)
    assert align.compare_trace_folders(tmp_path / "original", tmp_path / "port").verdict.exit_code == 0
    assert align.bisect_port(classes.Original(), classes.Port(), inputs=inputs).verdict.exit_code == 0
    assert align.bisect_port(classes.Original(), classes.Port(1.01), inputs=inputs).verdict.exit_code == 1
    for trial in (False, True):
        assert align.map_parameters(classes.Original(), classes.Port(), inputs=inputs, trial=trial).name_map.complete
