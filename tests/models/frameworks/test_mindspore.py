"""The MindSpore adapter against real MindSpore: names, values, runs that leave no trace, a quiet end of the program."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from align.core.load_code import model_readers
from align.core.parameters import summarize_parameters
from align.errors import InputsError, ModelFailedError, UnreadableModelError

pytestmark = pytest.mark.frameworks


class Captured:
    """A sink that keeps copies."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.captures: list[Any] = []

    def add(self, capture: Any, value: Any) -> None:
        assert capture.shape == value.shape
        assert capture.dtype == value.dtype.name
        self.captures.append(capture)
        self.values[capture.key] = value.copy()


@pytest.fixture
def adapter() -> Any:
    return model_readers()["mindspore"]


def run(adapter: Any, model: Any, **inputs: Any) -> Captured:
    sink = Captured()
    adapter.run(model, inputs, sink)
    return sink


def small_net() -> Any:
    """A dense layer in a cell of its own, a BatchNorm, a shared activation; fails on inputs of three rows."""
    from mindspore import nn

    class Inner(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(4, 4)

        def construct(self, x: Any) -> Any:
            if x.shape[0] == 3:
                raise ValueError("three rows")
            return self.dense(x)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()
            self.norm = nn.BatchNorm1d(4)
            self.act = nn.ReLU()
            self.last = nn.Dense(4, 2)

        def construct(self, x: Any) -> Any:
            return self.act(self.last(self.act(self.norm(self.inner(x)))))

    return Net()


X = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)


def test_names_are_those_of_a_checkpoint_and_statistics_are_buffers(adapter: Any) -> None:
    model = small_net()
    read = adapter.read_parameters(model, "net")
    assert set(read.names) == {p.name for p in model.get_parameters()} == set(adapter.read_values(model))
    assert {p.name for p in read.parameters if p.buffer} == {"norm.moving_mean", "norm.moving_variance"}
    assert {p.name for p in read.parameters if p.trainable} == {
        "inner.dense.weight", "inner.dense.bias", "norm.gamma", "norm.beta", "last.weight", "last.bias",
    }  # fmt: skip
    assert read.by_name["inner.dense.weight"].module == "inner.dense"
    assert {p.dtype for p in read.parameters} == {"float32"}


def test_the_buffers_of_a_mint_layer_are_buffers(adapter: Any) -> None:
    from mindspore import mint

    read = adapter.read_parameters(mint.nn.BatchNorm2d(3), "net").by_name
    assert {name for name, p in read.items() if p.buffer} == {"running_mean", "running_var", "num_batches_tracked"}
    assert read["num_batches_tracked"].shape == ()


def test_a_tied_parameter_is_one_parameter(adapter: Any) -> None:
    from mindspore import nn

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Dense(4, 4, has_bias=False)
            self.second = nn.Dense(4, 4, has_bias=False)
            self.second.weight = self.first.weight

        def construct(self, x: Any) -> Any:
            return self.second(self.first(x))

    model = Net()
    read = adapter.read_parameters(model, "net")
    assert (read.names, read.shared) == (("first.weight",), (("second.weight", "first.weight"),))
    assert summarize_parameters(read).ties == read.shared
    adapter.load_values(model, {"first.weight": np.eye(4, dtype=np.float32) * 2})
    assert np.array_equal(run(adapter, model, x=X).values["#0"], X * 4)


def test_classes_are_named_as_users_write_them(adapter: Any) -> None:
    from mindspore import mint, nn

    model = nn.SequentialCell(nn.Dense(2, 2), mint.nn.BatchNorm2d(2))
    assert [module.classes[0] for module in adapter.read_parameters(model, "net").modules] == [
        "mindspore.nn.SequentialCell", "mindspore.nn.Dense", "mindspore.mint.nn.BatchNorm2d",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32", "bool"])
def test_values_go_round_bit_for_bit(adapter: Any, dtype: str) -> None:
    import mindspore
    from mindspore import nn

    class Holder(nn.Cell):
        def __init__(self, value: Any) -> None:
            super().__init__()
            self.held = mindspore.Parameter(value, name="held", requires_grad=False)

    kind = getattr(mindspore, "bool_" if dtype == "bool" else dtype)
    model = Holder(mindspore.Tensor(X).astype(kind))
    before = adapter.read_values(model)["held"]
    assert before.dtype.name == dtype
    assert np.array_equal(
        before.astype(np.float32), mindspore.Tensor(X).astype(kind).astype(mindspore.float32).asnumpy()
    )
    other = Holder(mindspore.ops.zeros((2, 4), kind))
    adapter.load_values(other, {"held": before})
    after = adapter.read_values(other)["held"]
    assert (after.dtype, after.tobytes()) == (before.dtype, before.tobytes())


def test_values_are_copies(adapter: Any) -> None:
    model = small_net()
    adapter.read_values(model)["last.weight"][...] = 7
    assert adapter.read_values(model)["last.weight"].max() < 7


def test_values_of_another_dtype_are_cast_to_the_nets(adapter: Any) -> None:
    model = small_net()
    values = {name: value.astype(ml_dtypes.bfloat16) for name, value in adapter.read_values(model).items()}
    adapter.load_values(model, values)
    after = adapter.read_values(model)
    assert {value.dtype.name for value in after.values()} == {"float32"}
    assert np.array_equal(after["last.weight"], values["last.weight"].astype(np.float32))


def test_loading_lists_all_faults_and_changes_nothing(adapter: Any) -> None:
    """MindSpore's own loader would take both: it matches by suffix, and reshapes the live parameter."""
    model = small_net()
    before = adapter.read_values(model)
    values = {**before, "last.weight": np.zeros((2, 4, 1, 1), np.float32), "aux.last.bias": before["last.bias"]}
    del values["last.bias"]
    with pytest.raises(InputsError) as caught:
        adapter.load_values(model, values)
    assert "missing: last.bias [2]" in caught.value.message
    assert "unexpected: aux.last.bias [2]" in caught.value.message
    assert "shape: last.weight is [2, 4, 1, 1], the model has [2, 4]" in caught.value.message
    after = adapter.read_values(model)
    assert all(np.array_equal(value, before[name]) for name, value in after.items())
    assert tuple(model.last.weight.shape) == (2, 4)


def test_a_run_captures_every_cell_in_the_order_of_their_ends(adapter: Any) -> None:
    sink = run(adapter, small_net(), x=X)
    assert [capture.key for capture in sink.captures] == [
        "inner.dense#0", "inner#0", "norm#0", "act#0", "last#0", "act#1", "#0",
    ]  # fmt: skip
    assert [capture.depth for capture in sink.captures] == [2, 1, 1, 1, 1, 1, 0]
    assert [capture.class_name for capture in sink.captures][:2] == ["Dense", "Inner"]


def test_inputs_go_by_keyword_or_by_position(adapter: Any) -> None:
    from mindspore import nn

    class Net(nn.Cell):
        def construct(self, a: Any, b: Any = 0) -> Any:
            return a - b

    five, two = np.float32([5]), np.float32([2])
    assert run(adapter, Net(), b=five, a=two).values["#0"] == [-3]
    assert run(adapter, Net(), x=five, y=two).values["#0"] == [3]
    assert run(adapter, Net(), a=five).values["#0"] == [5]


@pytest.mark.parametrize("fails", [False, True])
def test_modes_hooks_and_values_are_as_they_were(adapter: Any, fails: bool) -> None:
    model = small_net()
    model.set_train(True)
    model.inner.set_train(False)
    modes = [cell.training for _, cell in model.cells_and_names()]
    before = adapter.read_values(model)
    if fails:
        with pytest.raises(
            ModelFailedError, match=r"in layer 'inner' \(\w+\) .* inputs x float32\[3, 4\], failed: ValueError"
        ):
            run(adapter, model, x=np.ones((3, 4), np.float32))
    else:
        run(adapter, model, x=X)
    assert [cell.training for _, cell in model.cells_and_names()] == modes
    assert not any(cell._forward_hook or cell._forward_pre_hook for _, cell in model.cells_and_names())
    after = adapter.read_values(model)
    assert all(np.array_equal(value, before[name]) for name, value in after.items())


def test_a_failing_operator_names_its_own_layer(adapter: Any) -> None:
    """MindSpore runs ahead by default, and a failure surfaces in a later layer."""
    with pytest.raises(ModelFailedError, match=r"in layer 'inner\.dense' .* failed: ValueError: For 'MatMul'"):
        run(adapter, small_net(), x=np.ones((2, 5), np.float32))


def test_an_interrupt_passes_through_and_leaves_no_hooks(adapter: Any) -> None:
    from mindspore import nn

    class Net(nn.Cell):
        def construct(self, x: Any) -> Any:
            raise KeyboardInterrupt

    model = Net()
    with pytest.raises(KeyboardInterrupt):
        run(adapter, model, x=X)
    assert not model._forward_hook


def test_a_run_is_in_evaluation_mode(adapter: Any) -> None:
    from mindspore import nn

    assert np.array_equal(run(adapter, nn.SequentialCell(nn.Dropout(p=0.9)), x=X).values["0#0"], X)


def test_operations_in_place_change_no_capture(adapter: Any) -> None:
    import mindspore
    from mindspore import nn

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Dense(4, 4)

        def construct(self, x: Any) -> Any:
            y = self.first(x)
            y += 1
            y[0] = 5.0
            return y

    model = Net()
    before = model.first(mindspore.Tensor(X)).asnumpy()
    sink = run(adapter, model, x=X)
    assert np.allclose(sink.values["first#0"], before, atol=1e-6)
    assert np.allclose(sink.values["#0"], [[5.0] * 4, before[1] + 1], atol=1e-6)


def test_floating_inputs_follow_the_nets_dtype(adapter: Any) -> None:
    import mindspore

    model = small_net()
    assert {c.dtype for c in run(adapter, model.last, x=X.astype(np.float64)).captures} == {"float32"}
    for parameter in model.last.get_parameters():
        parameter.set_dtype(mindspore.float16)
    assert {c.dtype for c in run(adapter, model.last, x=X).captures} == {"float16"}


def test_integer_inputs_stay_integers(adapter: Any) -> None:
    from mindspore import nn

    assert run(adapter, nn.Embedding(5, 3), ids=np.array([[1, 4]])).captures[0].shape == (1, 2, 3)


def test_outputs_of_every_form_are_captured(adapter: Any) -> None:
    from mindspore import nn

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 2)

        def construct(self, x: Any) -> Any:
            y, state = self.lstm(x)
            return {"y": y, "state": state, "length": 5}

    sink = run(adapter, Net(), x=X[None])
    assert [key for key in sink.values if not key.startswith("lstm.")] == [
        "lstm#0:0", "lstm#0:1.0", "lstm#0:1.1", "#0:y", "#0:state.0", "#0:state.1", "#0:length",
    ]  # fmt: skip


def test_graph_mode_is_put_back_and_still_works(adapter: Any) -> None:
    import mindspore

    model = small_net()
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    try:
        sink = run(adapter, model, x=X)
        assert mindspore.get_context("mode") == mindspore.GRAPH_MODE
        with pytest.raises(ModelFailedError):
            run(adapter, model, x=np.ones((3, 4), np.float32))
        assert mindspore.get_context("mode") == mindspore.GRAPH_MODE
        assert adapter.environment()["mode"] == "GRAPH"
    finally:
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    assert len(sink.captures) == 7


def drawing_net() -> Any:
    """Counts, caches and draws in its forward."""
    import mindspore
    from mindspore import nn, ops

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Dense(4, 4)
            self.steps = mindspore.Parameter(mindspore.Tensor(np.zeros(1, np.float32)), name="steps")
            self.steps.requires_grad = False
            self.register_buffer("seen", mindspore.Tensor(np.zeros(2, np.float32)), persistent=False)
            self.calls, self.cache = 0, {"x": None}
            self.place = mindspore.Tensor(np.zeros(1, np.float32))

        def construct(self, x: Any) -> Any:
            self.steps.set_data(self.steps + 1)
            self.seen.assign_value(self.seen + 1)
            self.calls += 1
            self.place.assign_value(self.place + 1)
            self.cache["x"] = x
            return self.fc(x) + ops.standard_normal(x.shape) + float(np.random.rand())

    return Net()


def test_counters_buffers_and_caches_are_as_they_were(adapter: Any) -> None:
    net = drawing_net()
    run(adapter, net, x=X)
    assert (net.steps.asnumpy().tolist(), net.seen.asnumpy().tolist()) == ([0], [0, 0])
    assert (net.calls, net.cache, net.place.asnumpy().tolist()) == (0, {"x": None}, [0])


@pytest.mark.parametrize("seed", [None, 7])
def test_every_run_draws_the_same_and_leaves_the_random_states(adapter: Any, seed: int | None) -> None:
    import mindspore

    def states() -> tuple[Any, ...]:
        pipeline = mindspore.dataset.config.get_seed()
        return mindspore.get_seed(), pipeline, mindspore.get_rng_state().asnumpy().tolist(), np.random.get_state()[2]

    program = vars(sys.modules["mindspore.common.seed"])
    program["_GLOBAL_SEED"] = None
    if seed is not None:
        mindspore.set_seed(seed)
        mindspore.ops.standard_normal((2,))
    net, before, counts = drawing_net(), states(), dict(program["_KERNEL_SEED"])
    first, second = (run(adapter, net, x=X).values["#0"] for _ in range(2))
    assert np.array_equal(first, second)
    assert states() == before
    assert program["_KERNEL_SEED"] == counts


def test_two_parameters_of_one_name_are_named_with_their_places(adapter: Any) -> None:
    from mindspore import nn

    net = nn.SequentialCell(nn.Dense(4, 4), nn.Dense(4, 4), nn.Dense(4, 4))
    net[0].weight.name = net[2].weight.name = "w"
    net[1].bias = net[0].bias  # one Parameter in two places: no doubled name
    with pytest.raises(UnreadableModelError, match="net has several tensors of one name") as caught:
        adapter.read_parameters(net, "net")
    assert caught.value.lines == ("w: 0.weight, 2.weight",)
    assert "parameter.name" in caught.value.hint


PROGRAM = """
import copy
import sys
import numpy as np
from align.forward.compare_forward import compare_forward
from align.models.open_side import open_side
import mindspore
{before}
def build():
    return mindspore.nn.SequentialCell(mindspore.nn.Dense(4, 4), mindspore.nn.ReLU())
mindspore.set_seed(1)  # an output of zeros alone would compare nothing
side = open_side(build())
same = compare_forward(side, copy.deepcopy(side.model), inputs={{"x": np.ones((2, 4), np.float32)}})
print(same.verdict.outcome.value)
kept_alive_until_the_very_end = side
"""


@pytest.mark.parametrize("before", ["", "build_early = mindspore.nn.Dense(3, 3)"])
def test_a_program_that_ends_with_live_cells_prints_no_traceback(before: str) -> None:
    program = PROGRAM.format(before=before)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout.strip()) == (0, "aligned")
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr
