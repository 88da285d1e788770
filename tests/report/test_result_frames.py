"""Results as pandas frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

import numpy as np

from align.core.documents import to_json_data
from align.curves.compare_losses import compare_losses
from align.forward.compare_forward import compare_forward
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.names.map_parameters import map_parameters
from align.report.open_run import layer_frame, pair_frame, point_frame


def model(path: str, layer: str, factor: float = 1.0) -> ArrayModel:
    weights = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3)}
    return ArrayModel((ArrayLayer(path, layer, lambda x, weight: factor * x @ weight.T, weights),))


def test_each_pair_is_a_row() -> None:
    result = map_parameters(model("fc", "torch.nn.Linear"), model("head", "mindspore.nn.Dense"))
    frame = pair_frame(to_json_data(result))
    assert frame[["source", "target", "transform"]].values.tolist() == [["fc.weight", "head.weight", "identity"]]


def test_each_compared_tensor_is_a_row_with_figures_and_limit() -> None:
    sides = model("fc", "torch.nn.Linear"), model("head", "mindspore.nn.Dense", factor=1.5)
    frame = layer_frame(to_json_data(compare_forward(*sides, inputs={"x": np.ones((4, 3), np.float32)})))
    assert list(frame["reference"]) == ["fc", ""]
    assert (frame["outcome"] == "not aligned").all()
    assert (frame["max_abs"] > frame["limit_max_abs"]).all()


def test_each_common_step_is_a_row(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n', encoding="utf-8")
    frame = point_frame(to_json_data(compare_losses(log, log)))
    assert list(frame["step"]) == [1, 2]
    assert list(frame["difference"]) == [0.0, 0.0]
