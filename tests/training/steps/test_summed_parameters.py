"""Steps of two sides of which one trains several tensors where the other trains their sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
BATCH = {"x": X, "y": np.random.default_rng(1).standard_normal((8, 3)).astype(np.float32)}
MAP = """[names]
"weight" = "weight"
"first" = { to = "bias", op = "sum", term = 0, of = 2 }
"second" = { to = "bias", op = "sum", term = 1, of = 2 }
"""
BACK = """[names]
"weight" = "weight"
"bias" = [{ to = "first", op = "share", term = 0, of = 2 }, { to = "second", op = "share", term = 1, of = 2 }]
"""


def of_torch(names: tuple[str, ...]) -> align.Training:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, shape in {"weight": (4, 3), **dict.fromkeys(names, (3,))}.items():
                setattr(self, name, torch.nn.Parameter(torch.randn(shape)))

        def forward(self, x: Any) -> Any:
            made = x @ self.weight + sum(getattr(self, name) for name in names)
            return made * made

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return align.Training(model, lambda outputs, y: ((outputs - y) ** 2).mean(), optimizer)


def of_mindspore(names: tuple[str, ...], *, faulty: bool = False, centre: float = 0.0) -> align.Training:
    import mindspore
    from mindspore import nn, ops

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            draw = np.random.default_rng(2).standard_normal
            for name, shape in {"weight": (4, 3), **dict.fromkeys(names, (3,))}.items():
                setattr(self, name, mindspore.Parameter(draw(shape).astype(np.float32), name=name))

        def construct(self, x: Any) -> Any:
            added = sum(getattr(self, name) for name in names) - centre
            made = ops.matmul(x, self.weight) + (0.5 * added + 0.5 * ops.stop_gradient(added) if faulty else added)
            return made * made

    model = Net()
    optimizer = nn.SGD(model.trainable_params(), 0.1, momentum=0.9)
    return align.Training(model, lambda outputs, y: ((outputs - y) ** 2).mean(), optimizer)


@pytest.mark.parametrize(
    ("text", "reference", "port", "said"),
    [(MAP, ("first", "second"), ("bias",), "bias"), (BACK, ("bias",), ("first", "second"), "bias")],
    ids=["sum", "share"],
)
def test_each_term_has_the_gradient_of_the_sum_and_its_update_is_not_compared(
    tmp_path: Path, text: str, reference: tuple[str, ...], port: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "map.toml"
    path.write_text(text, encoding="utf-8")
    result = align.compare_training_step(of_torch(reference), of_mindspore(port), batch=BATCH, name_map=path, steps=3)
    assert result.verdict.exit_code == 0, result.verdict
    assert {(one.reference, one.outcome) for one in result.gradients} == {
        (name, "aligned") for name in ("weight", *reference)
    }
    assert {one.candidate for one in result.updates} == {"weight"}
    assert [one.subject for one in result.findings if one.code == "sums-not-compared"] == [said]


def test_a_port_that_halves_the_gradient_of_the_sum_is_found(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text(MAP, encoding="utf-8")
    port = of_mindspore(("bias",), faulty=True)
    result = align.compare_training_step(of_torch(("first", "second")), port, batch=BATCH, name_map=path, steps=1)
    assert result.verdict.exit_code == 1
    assert {name for one in result.culprits for name in one.parameters} == {"bias"}


@pytest.mark.parametrize("faulty", [False, True])
def test_a_parameter_to_which_the_port_adds_a_number_has_the_same_gradient(tmp_path: Path, *, faulty: bool) -> None:
    path = tmp_path / "map.toml"
    text = '[names]\n"weight" = "weight"\n"bias" = { to = "bias", op = "add", value = 1.0 }\n'
    path.write_text(text, encoding="utf-8")
    port = of_mindspore(("bias",), faulty=faulty, centre=1.0)
    result = align.compare_training_step(of_torch(("bias",)), port, batch=BATCH, name_map=path, steps=3)
    assert result.verdict.exit_code == int(faulty), result.verdict
    assert {name for one in result.culprits for name in one.parameters} == ({"bias"} if faulty else set())
    assert {one.candidate for one in result.updates} == {"weight", "bias"}
