"""The mutations of the benchmark: each touches the cells that it says, and its undo restores the network exactly."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from _judging import judge_mutation
from _planters_code import plant_code
from _planters_settings import plant_settings
from _planters_weights import plant_weights
from _planting import NotPlantableError, Port
from _touched import snapshot, touched
from _watching import call_again, distance, rounding_of, watch

pytestmark = pytest.mark.frameworks

SETTINGS = {
    "activation",
    "approximation",
    "bias",
    "ceil mode",
    "dilation",
    "dropout share",
    "epsilon",
    "group count",
    "momentum",
    "padding",
    "padding in the mean",
    "pool padding",
    "pooling",
    "slope",
    "softmax axis",
    "stride order",
}
WEIGHTS = {"bias not loaded", "stale statistics", "swapped weights", "transposed weight"}
GIVEN = {
    "half as large before",
    "one step late",
    "position ids",
    "sample of a neighbour",
    "token ids",
    "turned round before",
}
CODE = GIVEN | {
    "active dropout",
    "cast to half",
    "channels reversed",
    "cut off at a bound",
    "cut off at zero",
    "dropped addend",
    "float16",
    "halves exchanged",
    "head count",
    "input added on top",
    "last channel lost",
    "layer left out",
    "mean taken away",
    "minus for plus",
    "number added",
    "other factor",
    "parts before channels",
    "permuted channels",
    "reshape for transpose",
    "shares over an axis",
    "sign lost",
    "squashed",
}
MOST_OF_A_KIND = 2  # of each net: the places of one kind are alike


@pytest.fixture(scope="module")
def ports() -> dict[str, tuple[Any, Port]]:
    import mindspore
    from mindspore import nn, ops

    class Images(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 4, 3, 1, "pad", 1, has_bias=True)
            self.second = nn.Conv2d(4, 4, 3, 2, "pad", 1)
            self.norm = nn.BatchNorm2d(4)
            self.groups = nn.GroupNorm(2, 4)
            self.relu = nn.ReLU()
            self.leaky = nn.LeakyReLU(0.1)
            self.shrink = nn.MaxPool2d(3, 2, "pad", 1)
            self.mean = nn.AvgPool2d(3, 2, "pad", 1, count_include_pad=True)

        def construct(self, x: Any) -> Any:
            y = self.relu(self.norm(self.second(self.first(x))))
            y = y + self.leaky(self.groups(y))
            return self.mean(self.shrink(y))

    class Words(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(9, 8)
            self.places = nn.Embedding(6, 8)
            self.attention = Attention()
            self.norm = nn.LayerNorm((8,))
            self.gelu = nn.GELU()
            self.drop = nn.Dropout(p=0.3)

        def construct(self, ids: Any) -> Any:
            x = self.words(ids) + self.places(mindspore.Tensor(np.arange(5)[None]))
            x += self.attention(x)
            return self.drop(self.gelu(self.norm(x)))

    class Attention(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.num_heads, self.head_dim = 4, 2
            self.all = nn.Dense(8, 24)
            self.out = nn.Dense(8, 8)
            self.softmax = nn.Softmax()

        def construct(self, x: Any) -> Any:
            batch, length, width = x.shape
            split = self.all(x).reshape(batch, length, 3, self.num_heads, self.head_dim).transpose(2, 0, 3, 1, 4)
            weights = self.softmax(ops.matmul(split[0], split[1].swapaxes(2, 3)))
            return self.out(ops.matmul(weights, split[2]).swapaxes(1, 2).reshape(batch, length, width))

    drawn = np.random.default_rng(0)
    given = {
        "images": (Images(), drawn.standard_normal((2, 3, 16, 16)).astype(np.float32)),
        "words": (Words(), drawn.integers(0, 9, (2, 5))),
    }
    found = {}
    for name, (net, value) in given.items():
        net.set_train(False)
        for parameter in net.get_parameters():
            spread = drawn.uniform(0.5, 1.5, parameter.shape).astype(np.float32)
            parameter.set_data(mindspore.Tensor(spread, parameter.dtype))
        run = _runner(net, value)
        found[name] = (run, Port(net, watch(net, [path for path, _ in net.cells_and_names()], run)))
    return found


def _runner(net: Any, value: np.ndarray) -> Any:
    import mindspore

    return lambda: [net(mindspore.Tensor(value)).asnumpy()]


@pytest.mark.parametrize(("plant", "kinds"), [(plant_settings, SETTINGS), (plant_weights, WEIGHTS), (plant_code, CODE)])
def test_every_kind_moves_its_own_cells_and_is_undone_bit_for_bit(ports: Any, plant: Any, kinds: set[str]) -> None:
    planted = set()
    for run, port in ports.values():
        clean, before = run(), snapshot(port.net)
        counts: Counter[str] = Counter()
        for mutation in plant(port):
            if counts[mutation.kind] == MOST_OF_A_KIND:
                continue
            try:
                undo = mutation.plant()
            except NotPlantableError:
                continue
            changed = set(touched(before, snapshot(port.net)))
            moved = [path for path in mutation.paths if _moves(port, path)]
            undo()
            counts[mutation.kind] += plant is plant_code
            assert changed == set(mutation.paths) or mutation.kind in GIVEN, mutation.name
            assert not touched(before, snapshot(port.net)), mutation.name
            assert np.array_equal(run()[0], clean[0]), mutation.name
            if moved or mutation.lint:
                planted.add(mutation.kind)
    assert planted == kinds


def _moves(port: Port, path: str) -> bool:
    cell, seen = dict(port.net.cells_and_names())[path], port.seen[path]
    return distance(seen.outputs, call_again(cell, seen)) > rounding_of(seen.outputs)


def test_what_fails_halfway_leaves_nothing_behind(ports: Any) -> None:
    from _planting import all_of, set_attributes

    port = ports["words"][1]
    norm = port.cells["norm"]

    def fail() -> Any:
        raise NotPlantableError

    with pytest.raises(NotPlantableError):
        all_of(lambda: set_attributes(norm, epsilon=3.0), fail)
    assert norm.epsilon != 3.0


def test_a_dropped_residual_is_the_branch_alone(ports: Any) -> None:
    import mindspore

    run, port = ports["images"]
    (mutation,) = (one for one in plant_code(port) if one.kind == "dropped addend")
    assert mutation.change == "self.leaky(self.groups(y)) for y + self.leaky(self.groups(y))"
    branch = mindspore.Tensor(port.seen["leaky"].outputs[0].astype(np.float32))
    undo = mutation.plant()
    dropped = run()[0]
    undo()
    assert np.array_equal(dropped, port.cells["mean"](port.cells["shrink"](branch)).asnumpy())


def said(*paths: str, cause: str = "", verdict: str = "not aligned") -> dict[str, Any]:
    culprits = [{"candidate": path, "cause": cause} for path in paths]
    return {
        "verdict": verdict,
        "reason": "",
        "culprits": culprits,
        "findings": [],
        "linted": [("norm", "batch-norm-momentum")],
        "seconds": 0.0,
    }


def mutation_of(ports: Any, plant: Any, kind: str) -> tuple[Any, Port]:
    port = ports["images"][1]
    return next(one for one in plant(port) if one.kind == kind), port


def test_a_wrong_setting_is_right_at_its_own_cell_alone(ports: Any) -> None:
    mutation, port = mutation_of(ports, plant_settings, "epsilon")
    moves = {"output": 2.0, "layers": {"norm": 9.0}}
    right = judge_mutation(mutation, port, moves, said("norm", "relu", cause="batch-norm-epsilon"), said())
    assert (right["right layer"], right["cause"], right["strangers"], right["moves"]) == (True, True, 1, "output")
    wrong = judge_mutation(mutation, port, moves, said("relu", cause="batch-norm-epsilon"), said())
    assert (wrong["right layer"], wrong["cause"], wrong["strangers"]) == (False, False, 1)


def test_what_is_said_of_the_clean_port_too_is_no_stranger_of_a_mutation(ports: Any) -> None:
    mutation, port = mutation_of(ports, plant_settings, "epsilon")
    moves = {"output": 2.0, "layers": {"norm": 9.0}}
    judged = judge_mutation(mutation, port, moves, said("norm", "relu"), said("relu"))
    assert (judged["right layer"], judged["strangers"]) == (True, 0)


def test_swapped_weights_are_right_where_every_cell_that_moves_is_named(ports: Any) -> None:
    port = ports["images"][1]
    mutation = next(m for m in plant_weights(port) if m.kind == "swapped weights" and len(set(m.paths)) == 2)
    moves = {"output": 2.0, "layers": dict.fromkeys(mutation.paths, 9.0)}
    assert judge_mutation(mutation, port, moves, said(*mutation.paths), said())["right layer"]
    assert not judge_mutation(mutation, port, moves, said(mutation.paths[0]), said())["right layer"]


def test_wrong_code_may_show_where_the_next_cell_begins(ports: Any) -> None:
    mutation, port = mutation_of(ports, plant_code, "float16")
    assert mutation.paths == ("first",)
    moves = {"output": 0.1, "layers": {"first": 9.0}}
    judged = judge_mutation(mutation, port, moves, said("second"), said())
    assert (judged["right layer"], judged["strangers"], judged["moves"]) == (True, 0, "layer")
    assert not judge_mutation(mutation, port, moves, said("shrink"), said())["right layer"]


def test_what_a_run_cannot_show_is_asked_of_a_lint(ports: Any) -> None:
    mutation, port = mutation_of(ports, plant_settings, "momentum")
    judged = judge_mutation(mutation, port, {"output": 0.0, "layers": {"norm": 0.0}}, said(verdict="aligned"), said())
    assert (judged["moves"], judged["linted"], judged["detected"]) == ("nothing", True, False)
