"""Planted state and masks: each moves the output in the batch that it should, and its undo is exact."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from _cases import _shown
from _planters_state import is_mask, plant_masks, plant_state
from _planting import Port
from _touched import snapshot, touched
from _watching import watch
from _ways import another_batch, give_mask, narrowed, padding_mask

pytestmark = pytest.mark.frameworks

STATE = {
    "kept argument",
    "kept hidden state",
    "kept mask",
    "kept output",
    "positions go on",
    "statistics go on",
}
MASKS = {"ignored mask", "inverted mask", "mask of another sample", "mask on another axis", "mask one further"}


@pytest.fixture(scope="module")
def net() -> Any:
    import mindspore
    from mindspore import nn, ops

    class Hiding(nn.Cell):
        def construct(self, scores: Any, values: Any, mask: Any) -> Any:
            return ops.bmm(ops.softmax(scores + (1.0 - mask) * -1e4, -1), values)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.places = nn.Embedding(16, 4)
            self.norm = nn.BatchNorm1d(4)
            self.rnn = nn.LSTM(4, 4, batch_first=True)
            self.hiding = Hiding()

        def construct(self, x: Any, mask: Any) -> Any:
            x = x + self.places(mindspore.Tensor(np.arange(5)[None]))
            x = self.norm(x.swapaxes(1, 2)).swapaxes(1, 2)
            x = self.rnn(x)[0]
            wide = ops.tile(mask.expand_dims(1), (1, 5, 1))
            return self.hiding(ops.bmm(x, x.swapaxes(1, 2)), x, wide)

    made = Net()
    made.set_train(False)
    drawn = np.random.default_rng(0)
    for parameter in made.get_parameters():
        parameter.set_data(mindspore.Tensor(drawn.uniform(0.5, 1.5, parameter.shape), parameter.dtype))
    return made


@pytest.fixture(scope="module")
def batches() -> list[dict[str, np.ndarray]]:
    drawn = np.random.default_rng(0)
    first = {
        "x": drawn.standard_normal((3, 5, 4)).astype(np.float32),
        "mask": padding_mask(3, 5).astype(np.float32),
    }
    return [first, another_batch(first, 1)]


def run(net: Any, batch: dict[str, np.ndarray]) -> np.ndarray:
    import mindspore

    output: np.ndarray = net(*map(mindspore.Tensor, batch.values())).asnumpy()
    return output


@pytest.fixture(scope="module")
def port(net: Any, batches: Any) -> Port:
    seen = [watch(net, [path for path, _ in net.cells_and_names()], partial(run, net, batch)) for batch in batches]
    return Port(net, seen[0], tuple(seen[1:]))


@pytest.mark.parametrize(("plant", "kinds"), [(plant_state, STATE), (plant_masks, MASKS)])
def test_state_shows_from_the_second_batch_on_and_a_mask_at_once(
    port: Port, batches: Any, plant: Any, kinds: set[str]
) -> None:
    clean, before, planted = [run(port.net, batch) for batch in batches], snapshot(port.net), set()
    for mutation in plant(port):
        undo = mutation.plant()
        moves = [not np.array_equal(run(port.net, batch), was) for batch, was in zip(batches, clean, strict=True)]
        undo()
        assert moves == [plant is plant_masks, True], mutation.name
        assert not touched(before, snapshot(port.net)), mutation.name
        assert [run(port.net, batch).tolist() for batch in batches] == [was.tolist() for was in clean], mutation.name
        planted.add(mutation.kind)
    assert planted == kinds


def test_a_cell_called_twice_in_a_batch_keeps_nothing(net: Any, batches: Any) -> None:
    paths = [path for path, _ in net.cells_and_names()]
    twice = watch(net, paths, lambda: [run(net, batches[0]), run(net, batches[0])])
    later = watch(net, paths, partial(run, net, batches[1]))
    assert {seen.calls for seen in twice.values()} == {2}
    assert [*plant_state(Port(net, twice, (later,)))] == []


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([[1, 1], [1, 0]], True),
        ([[True, False]], True),
        ([[0.0, -3e38]], True),
        ([[0.0, -np.inf]], True),
        ([[0.0, -0.5]], False),
        ([[1, 1]], False),
        ([[3, 4]], False),
        ([0, 1], False),
        ([[np.nan, np.inf]], False),
    ],
    ids=str,
)
def test_a_mask_holds_two_values_that_say_what_is_hidden(values: Any, told: bool) -> None:
    assert is_mask(np.array(values)) is told


def test_another_batch_has_the_same_shapes_and_other_values(batches: Any) -> None:
    first = {**batches[0], "ids": np.arange(8).reshape(2, 4)}
    second = another_batch(first, 1)
    assert {n: (v.shape, v.dtype) for n, v in second.items()} == {n: (v.shape, v.dtype) for n, v in first.items()}
    assert not any(np.array_equal(first[name], second[name]) for name in first)
    assert sorted(second["ids"].flat) == list(range(8))


def test_a_case_gets_a_mask_with_zeros_where_it_is_known_how() -> None:
    ids = {"input_ids": np.ones((2, 6), np.int64)}
    words = SimpleNamespace(KWARGS=True, inputs=lambda: ids)
    assert give_mask("words", words)
    assert words.inputs()["attention_mask"].tolist() == [[1] * 6, [1, 1, 1, 1, 0, 0]]
    assert not give_mask("pictures", SimpleNamespace(inputs=lambda: {"x": np.ones((1, 3, 4, 4), np.float32)}))
    assert _shown(np.ones((2, 6, 3)), words.inputs()).shape == (10, 3)
    assert _shown(np.ones((2, 3)), words.inputs()).shape == (2, 3)


def test_both_sides_run_in_half_precision_on_inputs_that_it_holds() -> None:
    import mindspore
    import torch
    from _cases import Case

    given = {"x": np.full((1, 3), 1 / 3, np.float32)}
    common = SimpleNamespace(
        flatten=lambda value: [value.detach().numpy() if hasattr(value, "detach") else value.asnumpy()]
    )
    net = mindspore.nn.Dense(3, 2)
    layer = torch.nn.Linear(3, 2)
    for ours, theirs in ((net.weight, layer.weight), (net.bias, layer.bias)):
        ours.set_data(mindspore.Tensor(theirs.detach().numpy()))
    case: Any = Case("dense", SimpleNamespace(), layer, net, None, given, {})  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "common", common)
        half = narrowed(case, "float16")
        original, port, wide = half.run_original()[0], half.run_port()[0], half.run_original(wide=True)[0]
    assert half.inputs["x"].dtype == np.float16
    assert np.array_equal(original, original.astype(np.float16))
    assert not np.array_equal(wide, wide.astype(np.float16))
    assert np.abs(original - port).max() <= 2**-10
