"""What a task finds in two captures: fingerprints of parameters stand under the reference's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import align
from align.batch.run_task import compare_dumped

if TYPE_CHECKING:
    from pathlib import Path

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


@pytest.mark.frameworks
def test_a_norm_that_both_frameworks_name_otherwise_is_one_tensor_with_two_prints(tmp_path: Path) -> None:
    import mindspore
    import torch

    weight = np.linspace(1, 2, 4, dtype=np.float32)
    first, second = (
        torch.nn.Sequential(torch.nn.LayerNorm(4)),
        mindspore.nn.SequentialCell(mindspore.nn.LayerNorm((4,))),
    )
    first[0].weight.data = torch.from_numpy(weight)
    second[0].gamma.set_data(mindspore.Tensor(weight))
    for model, name in ((first, "ref"), (second, "port")):
        align.capture_trace(
            model, tmp_path / name, inputs={"input_x": X} if name == "port" else {"input": X}, noise=False
        )
    found = {
        name: (mine, theirs)
        for name, mine, theirs in compare_dumped([tmp_path / "ref", tmp_path / "port"], {})["prints"]
    }
    assert set(found) == {"0.weight", "0.bias"}
    assert found["0.weight"][0] == found["0.weight"][1] is not None
