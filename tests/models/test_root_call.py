"""A class that calls itself in its own way passes by the hooks of its framework: its output is compared too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align

pytestmark = pytest.mark.frameworks
X = {"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)}


def pair(scale: float = 1.0, *, own_call: bool = True) -> Any:
    import mindspore
    import torch
    from mindspore import nn

    class Original(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.fc = torch.nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.fc(x))

    class Straight(Original):
        def __call__(self, x: Any) -> Any:
            return self.forward(x)

    class Port(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Dense(8, 4)
            for name, value in Original().fc.state_dict().items():
                getattr(self.fc, name).set_data(mindspore.Tensor(value.numpy()))

        def construct(self, x: Any) -> Any:
            return mindspore.ops.relu(self.fc(x)) * scale

    class StraightPort(Port):
        def __call__(self, x: Any) -> Any:
            return self.construct(x)

    return (Straight(), StraightPort()) if own_call else (Original(), Port())


@pytest.mark.parametrize("own_call", [True, False])
def test_the_output_of_a_model_that_calls_itself_is_compared(own_call: bool) -> None:
    right = align.compare_forward(*pair(own_call=own_call), inputs=X, power=False)
    assert right.verdict.exit_code == 0
    assert [row.candidate for row in right.layers] == ["fc", ""]
    wrong = align.compare_forward(*pair(1.01, own_call=own_call), inputs=X, power=False)
    assert wrong.verdict.exit_code == 1
    assert [(one.candidate, one.part) for one in wrong.culprits] == [("", "code")]


def test_models_without_parameters_are_compared_by_what_they_return() -> None:
    import mindspore
    import torch
    from mindspore import nn

    class Port(nn.Cell):
        def __init__(self, axis: int) -> None:
            super().__init__()
            self.axis = axis

        def construct(self, x: Any) -> Any:
            return mindspore.ops.softmax(x, self.axis)

    def compared(axis: int) -> Any:
        return align.compare_forward(torch.nn.Softmax(1), Port(axis), inputs=X, power=False).verdict.exit_code

    assert (compared(1), compared(0)) == (0, 1)
    with pytest.raises(align.errors.NothingInCommonError, match="Port has none at all") as caught:
        align.compare_forward(torch.nn.Linear(8, 8), Port(1), inputs=X)
    assert "as parameters of its layers" in caught.value.hint
