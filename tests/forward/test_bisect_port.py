"""Faults planted in a real port that keeps all its weights in one parameter, so that no layer of it pairs by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome
from align.errors import CannotRunError, InputsError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.forward.bisect_precision import Bisection

DEPTH, WIDTH = 7, 6
INPUTS = {"x": np.random.default_rng(0).standard_normal((4, WIDTH)).astype(np.float32)}


def torch_model() -> Any:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)
            self.fc = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            return x + torch.tanh(self.fc(self.norm(x)))

    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(DEPTH)), nn.Linear(WIDTH, 3))


def port(model: Any, faults: Mapping[int, float] = {}, exchanged: tuple[int, int] | None = None) -> Any:
    """Blocks of operators, `faults` scales what they add; two blocks may be exchanged."""
    import mindspore
    from mindspore import nn, ops

    state = {name: value.numpy() for name, value in model.state_dict().items()}
    packed = np.stack([np.vstack([state[f"{n}.fc.weight"], state[f"{n}.fc.bias"]]) for n in range(DEPTH)])

    class Stage(nn.Cell):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number
            self.scale = faults.get(number, 1.0)

        def construct(self, x: Any, weights: Any) -> Any:
            centred = x - x.mean(-1, keep_dims=True)
            normed = centred / ops.sqrt((centred * centred).mean(-1, keep_dims=True) + 1e-5)
            added = ops.matmul(normed, weights[self.number, :-1].T) + weights[self.number, -1]
            return x + ops.tanh(added) * self.scale

    class Port(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.packed = mindspore.Parameter(packed, name="packed")
            self.last = mindspore.Parameter(
                np.vstack([state[f"{DEPTH}.weight"].T, state[f"{DEPTH}.bias"]]), name="last"
            )
            order = [*range(DEPTH)]
            if exchanged:
                order[exchanged[0]], order[exchanged[1]] = exchanged[::-1]
            self.stages = nn.CellList([Stage(number) for number in order])

        def construct(self, x: Any) -> Any:
            for stage in self.stages:
                x = stage(x, self.packed)
            return ops.matmul(x, self.last[:-1]) + self.last[-1]

    return Port()


def named(found: Bisection) -> list[tuple[str, str]]:
    """Where the stretches begin and end in the port."""
    ends = [(one.after, one.before) for one in found.stretches]
    return [
        ("" if a is None else found.points[a].candidate, "" if b is None else found.points[b].candidate)
        for a, b in ends
    ]


@pytest.mark.frameworks
@pytest.mark.parametrize("fault", [0, 3, DEPTH - 1])
def test_the_stretch_that_goes_wrong_is_found_by_halving(fault: int) -> None:
    model = torch_model()
    found = align.bisect_port(model, port(model, {fault: 1.01}), inputs=INPUTS)
    assert named(found) == [(f"stages.{fault - 1}#0" if fault else "", f"stages.{fault}#0")]
    assert found.stretches[0].modules == (f"stages.{fault}",)
    assert found.stretches[0].factor > 1
    assert found.verdict.outcome is Outcome.NOT_ALIGNED
    assert found.runs <= 7


@pytest.mark.frameworks
def test_all_of_several_faults_are_found_and_neighbours_too() -> None:
    model = torch_model()
    found = align.bisect_port(model, port(model, {1: 1.02, 4: 0.9, 5: 1.1}), inputs=INPUTS)
    assert named(found) == [
        ("stages.0#0", "stages.1#0"), ("stages.3#0", "stages.4#0"), ("stages.4#0", "stages.5#0"),
    ]  # fmt: skip
    states = {point.candidate: point.state for point in found.points}
    assert states["stages.3#0"] == "corresponds"
    assert states["stages.4#0"] == "doubtful"


@pytest.mark.frameworks
def test_a_clean_port_is_aligned_after_one_run() -> None:
    model = torch_model()
    found = align.bisect_port(model, port(model), inputs=INPUTS)
    assert found.verdict.outcome is Outcome.ALIGNED
    assert (found.stretches, found.runs) == ((), 1)
    assert found.factor <= 1.0


@pytest.mark.frameworks
def test_given_points_are_used_alone_and_one_that_does_not_correspond_is_dropped(tmp_path: Path) -> None:
    model = torch_model()
    file = tmp_path / "points.toml"
    file.write_text('"1" = "stages.1"\n"3" = "stages.3"\n"4" = "stages.5"\n', encoding="utf-8")
    found = align.bisect_port(model, port(model, {2: 1.05}), inputs=INPUTS, points=file)
    assert named(found) == [("stages.1#0", "stages.3#0")]
    assert found.stretches[0].modules == ("stages.2", "stages.3")
    last = align.bisect_port(model, port(model, {2: 1.05}), inputs=INPUTS, points={"1": "stages.1", "3": "stages.5"})
    assert named(last) == [("stages.1#0", "stages.5#0"), ("stages.5#0", "")]
    assert last.points[1].state == "doubtful"
    dropped = align.bisect_port(
        model, port(model, {1: 1.05}), inputs=INPUTS, points={"1": "stages.1", "2": "stages.4", "5": "stages.5"}
    )
    assert named(dropped) == [("", "stages.1#0")]
    assert [point.state for point in dropped.points] == ["untried", "dropped", "untried"]


@pytest.mark.frameworks
def test_exchanged_blocks_are_told_by_what_they_return() -> None:
    model = torch_model()
    found = align.bisect_port(model, port(model, exchanged=(2, 3)), inputs=INPUTS)
    modules = [module for one in found.stretches for module in one.modules]
    assert modules == ["stages.2", "stages.3"]


def chain(*layers: tuple[str, float]) -> ArrayModel:
    def layer(name: str, factor: float) -> ArrayLayer:
        return ArrayLayer(name, "torch.nn.ReLU", lambda x: x * np.float32(factor), {})

    return ArrayModel(tuple(layer(*one) for one in layers))


def test_points_that_cannot_be_are_all_named_at_once() -> None:
    models = chain(("first", 2.0), ("second", 3.0)), chain(("one", 2.0), ("two", 4.0))
    with pytest.raises(InputsError) as raised:
        align.bisect_port(*models, inputs=INPUTS, points={"frist": "one", "second": "three", "first#1": "one"})
    assert [fault.partition(";")[0] for fault in raised.value.faults] == ["frist", "three", "first#1"]
    assert "close to it: first" in raised.value.message
    crossed = align.bisect_port(*models, inputs=INPUTS, points={"first": "two", "second": "one"})
    assert [finding.code for finding in crossed.findings] == ["point-unusable"]
    assert "runs one#0 before two#0" in crossed.findings[0].message


def test_outputs_of_unlike_shapes_cannot_be_judged() -> None:
    reference = chain(("first", 2.0))
    candidate = ArrayModel((ArrayLayer("one", "torch.nn.ReLU", lambda x: x[:2], {}),))
    with pytest.raises(CannotRunError, match="outputs cannot be compared: shapes"):
        align.bisect_port(reference, candidate, inputs=INPUTS)


def test_infinite_and_complex_values_stand_in_no_ones_way() -> None:
    def model(factor: float) -> ArrayModel:
        layers = (
            ArrayLayer("log", "torch.nn.ReLU", lambda x: np.where(x > 0, x, np.float32(np.inf)), {}),
            ArrayLayer("wave", "torch.nn.ReLU", lambda x: np.where(np.isinf(x), 0, x) + np.complex64(1j), {}),
            ArrayLayer("size", "torch.nn.ReLU", lambda x: np.abs(x) * np.float32(factor), {}),
        )
        return ArrayModel(layers)

    found = align.bisect_port(model(1.0), model(1.5), inputs=INPUTS)
    assert named(found) == [("wave#0", "size#0")]
