"""The torch adapter against real torch: names, ties, buffers, values, runs that leave no trace in the model."""

from __future__ import annotations

import copy
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from align.core.load_code import model_readers
from align.errors import CannotRunError, InputsError, ModelFailedError, UnreadableModelError, UserCodeError
from align.models.open_side import open_side

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
    return model_readers()["torch"]


def run(adapter: Any, model: Any, **inputs: Any) -> Captured:
    sink = Captured()
    adapter.run(model, inputs, sink)
    return sink


def mixed_model() -> Any:
    """Ties, persistent and other buffers, a shared module, a parameter of the model's own."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.randn(1, 4))
            self.embed = nn.Embedding(6, 4)
            self.norm = nn.BatchNorm1d(4)
            self.head = nn.Linear(4, 6, bias=False)
            self.head.weight = self.embed.weight
            self.act = nn.ReLU()
            self.again = self.act
            self.frozen = nn.Linear(4, 4).requires_grad_(False)
            self.register_buffer("mask", torch.ones(3, dtype=torch.bool))
            self.register_buffer("cache", torch.zeros(2), persistent=False)

        def forward(self, ids: Any) -> Any:
            return self.head(self.again(self.frozen(self.act(self.norm(self.embed(ids) + self.token)))))

    return Net()


def test_names_and_order_are_those_of_the_state_dict(adapter: Any) -> None:
    model = mixed_model()
    read = adapter.read_parameters(model, "net")
    assert sorted(read.names) == sorted(model.state_dict())
    assert list(adapter.read_values(model)) == list(model.state_dict())
    assert [p.shape for p in read.parameters] == [tuple(model.state_dict()[p.name].shape) for p in read.parameters]


def test_ties_buffers_and_frozen_parameters_are_told(adapter: Any) -> None:
    read = adapter.read_parameters(mixed_model(), "net").by_name
    assert read["head.weight"].tied_to == "embed.weight"
    assert read["embed.weight"].tied_to is None
    assert {name for name, p in read.items() if p.buffer} == {
        "mask", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
    }  # fmt: skip
    assert "cache" not in read
    assert (read["frozen.weight"].trainable, read["token"].trainable, read["mask"].trainable) == (False, True, False)
    assert (read["token"].module, read["token"].attribute) == ("", "token")
    assert (read["norm.num_batches_tracked"].dtype, read["norm.num_batches_tracked"].shape) == ("int64", ())


def test_modules_have_their_public_classes_and_the_users_own(adapter: Any) -> None:
    from torch import nn

    class Custom(nn.Linear):
        pass

    modules = {m.path: m for m in adapter.read_parameters(nn.Sequential(Custom(2, 2), nn.ReLU()), "net").modules}
    assert modules["0"].classes[0].endswith("Custom")
    assert modules["0"].classes[1] == "torch.nn.Linear"
    assert (modules["1"].classes, modules[""].classes) == (("torch.nn.ReLU",), ("torch.nn.Sequential",))


def test_values_are_copies_in_their_own_dtype(adapter: Any) -> None:
    model = mixed_model()
    values = adapter.read_values(model)
    values["token"][...] = 7
    values["mask"][...] = False
    assert model.token.abs().max() < 7
    assert bool(model.mask.all())
    dtypes = {name: value.dtype.name for name, value in values.items()}
    assert (dtypes["token"], dtypes["mask"], dtypes["norm.num_batches_tracked"]) == ("float32", "bool", "int64")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_values_of_every_float_go_round_bit_for_bit(adapter: Any, dtype: str) -> None:
    import torch

    model = torch.nn.Linear(3, 2)
    model.weight = torch.nn.Parameter(torch.randn(2, 3).to(getattr(torch, dtype)), requires_grad=False)
    before = adapter.read_values(model)
    assert before["weight"].dtype.name == dtype
    target = copy.deepcopy(model)
    target.weight.data.zero_()
    adapter.load_values(target, before)
    assert adapter.read_values(target)["weight"].tobytes() == before["weight"].tobytes()


def test_bfloat16_comes_out_as_the_values_it_holds(adapter: Any) -> None:
    import torch

    model = torch.nn.Linear(3, 2).to(torch.bfloat16)
    value = adapter.read_values(model)["weight"]
    assert value.dtype == ml_dtypes.bfloat16
    assert np.array_equal(value.astype(np.float32), model.weight.detach().float().numpy())


def test_values_of_another_dtype_are_cast_to_the_models(adapter: Any) -> None:
    import torch

    model = torch.nn.Linear(2, 1, bias=False).half()
    adapter.load_values(model, {"weight": np.array([[1.5, 0.1]], ml_dtypes.bfloat16)})
    assert model.weight.dtype == torch.float16
    assert adapter.read_values(model)["weight"].tolist() == [[1.5, 0.10009765625]]


def test_strided_and_lazy_tensors_are_read_as_what_they_show(adapter: Any) -> None:
    import torch

    model = torch.nn.Module()
    base = torch.randn(4, 6)
    model.register_buffer("transposed", base.T)
    model.register_buffer("expanded", base[:1].expand(3, 6))
    model.register_buffer("negative", torch.randn(3, dtype=torch.complex64).conj().imag)
    model.register_buffer("sparse", torch.eye(3).to_sparse())
    model.register_buffer("brief", base.bfloat16().T)
    values = adapter.read_values(model)
    assert np.array_equal(values["transposed"], base.numpy().T)
    assert values["expanded"].shape == (3, 6)
    assert np.array_equal(values["negative"], model.negative.resolve_neg().numpy())
    assert np.array_equal(values["sparse"], np.eye(3))
    assert np.array_equal(values["brief"].astype(np.float32), base.bfloat16().float().numpy().T)


def test_loading_lists_all_faults_and_changes_nothing(adapter: Any) -> None:
    import torch

    model = torch.nn.Linear(3, 2)
    before = adapter.read_values(model)
    with pytest.raises(InputsError) as caught:
        adapter.load_values(model, {"weight": np.zeros((2, 3, 1, 1), np.float32), "scale": np.zeros(2)})
    assert "missing: bias [2]" in caught.value.message
    assert "unexpected: scale [2]" in caught.value.message
    assert "shape: weight is [2, 3, 1, 1], the model has [2, 3]" in caught.value.message
    assert all(np.array_equal(value, before[name]) for name, value in adapter.read_values(model).items())


def test_loading_keeps_ties_tied(adapter: Any) -> None:
    model = mixed_model()
    values = adapter.read_values(model)
    values["embed.weight"] = values["head.weight"] = np.full((6, 4), 2.0, np.float32)
    adapter.load_values(model, values)
    assert model.head.weight is model.embed.weight
    assert float(model.embed.weight.detach().min()) == 2.0


def test_a_run_captures_every_module_in_the_order_of_their_ends(adapter: Any) -> None:
    sink = run(adapter, mixed_model(), ids=np.arange(5))
    assert [capture.key for capture in sink.captures] == [
        "embed#0", "norm#0", "act#0", "frozen#0", "act#1", "head#0", "#0",
    ]  # fmt: skip
    assert [capture.depth for capture in sink.captures] == [1, 1, 1, 1, 1, 1, 0]
    assert np.array_equal(sink.values["head#0"], sink.values["#0"])


@pytest.mark.parametrize("fails", [False, True])
def test_modes_hooks_gradients_and_statistics_are_as_they_were(adapter: Any, fails: bool) -> None:
    model = mixed_model()
    model.train()
    model.frozen.eval()
    modes = {path: module.training for path, module in model.named_modules()}
    before = adapter.read_values(model)
    if fails:
        with pytest.raises(ModelFailedError, match="in layer 'embed'"):
            run(adapter, model, ids=np.array([99]))
    else:
        run(adapter, model, ids=np.arange(5))
    assert {path: module.training for path, module in model.named_modules()} == modes
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(np.array_equal(value, before[name]) for name, value in adapter.read_values(model).items())


def test_a_users_own_hooks_stay_and_are_seen(adapter: Any) -> None:
    import torch

    model = torch.nn.Linear(2, 2)
    handle = model.register_forward_hook(lambda module, args, output: output + 1)
    sink = run(adapter, model, x=np.ones((1, 2), np.float32))
    assert list(model._forward_hooks.values()) == [model._forward_hooks[handle.id]]
    expected = model(torch.ones(1, 2)).detach().numpy()
    assert np.array_equal(sink.values["#0"], expected)


def test_a_run_is_in_evaluation_mode(adapter: Any) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Dropout(0.9), torch.nn.BatchNorm1d(4))
    x = np.ones((8, 4), np.float32)
    assert np.array_equal(run(adapter, model, x=x).values["0#0"], x)


def test_operations_in_place_change_no_capture(adapter: Any) -> None:
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.act = nn.Linear(4, 4), nn.ReLU(inplace=True)

        def forward(self, x: Any) -> Any:
            y = self.fc(x)
            z = self.act(y)
            z += 10
            return z.mul_(2)

    model = Net()
    x = torch.randn(3, 4)
    sink = run(adapter, model, x=x.numpy())
    fc = model.fc(x).detach()
    assert np.array_equal(sink.values["fc#0"], fc.numpy())
    assert np.array_equal(sink.values["act#0"], fc.relu().numpy())
    assert np.array_equal(sink.values["#0"], ((fc.relu() + 10) * 2).numpy())


def test_the_callers_inputs_are_not_changed(adapter: Any) -> None:
    import torch

    x = np.full((2, 2), -1.0, np.float32)
    run(adapter, torch.nn.ReLU(inplace=True), x=x)
    assert x.tolist() == [[-1, -1], [-1, -1]]


def test_inputs_go_by_keyword_or_by_position(adapter: Any) -> None:
    from torch import nn

    class Net(nn.Module):
        def forward(self, a: Any, b: Any = 0.0) -> Any:
            return a - b

    five, two = np.float32([5]), np.float32([2])
    assert run(adapter, Net(), b=five, a=two).values["#0"] == [-3]
    assert run(adapter, Net(), x=five, y=two).values["#0"] == [3]
    assert run(adapter, Net(), a=five).values["#0"] == [5]


def test_outputs_of_every_form_are_captured(adapter: Any) -> None:
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(3, 2, batch_first=True)

        def forward(self, x: Any) -> Any:
            y, state = self.lstm(x)
            return {"y": y, "state": state, "length": 5, "none": None}

    sink = run(adapter, Net(), x=np.ones((1, 4, 3), np.float32))
    own = ["#0:y", "#0:state.0", "#0:state.1", "#0:length"]
    assert list(sink.values) == ["lstm#0:0", "lstm#0:1.0", "lstm#0:1.1", *own]


@pytest.mark.parametrize("nested", [False, True])
def test_the_layers_of_an_encoder_run_one_by_one(adapter: Any, nested: bool) -> None:
    """torch has a fused path for evaluation that calls no layer; hooks keep it away."""
    from torch import nn

    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
    sink = run(adapter, model, src=np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32))
    assert {"layers.1.linear1#0", "layers.0.norm2#0", "layers.1.self_attn#0:0"} <= set(sink.values)


def test_floating_inputs_follow_the_first_floating_tensor(adapter: Any) -> None:
    """An integer buffer may come first; the model's dtype is not an integer then."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("places", torch.arange(3))
            self.fc = nn.Linear(3, 2)

        def forward(self, x: Any, ids: Any) -> Any:
            assert ids.dtype == torch.int64
            return self.fc(x + self.places)

    x, ids = np.ones((1, 3), np.float32), np.arange(3)
    for model, dtype in ((Net(), "float32"), (Net().double(), "float64"), (Net().to(torch.bfloat16), "bfloat16")):
        assert {c.dtype for c in run(adapter, model, x=x, ids=ids).captures} == {dtype}


def test_the_wide_copy_is_a_copy(adapter: Any) -> None:
    import torch

    model = torch.nn.Linear(3, 2)
    wide = adapter.widened(model)
    assert (wide.weight.dtype, model.weight.dtype) == (torch.float64, torch.float32)
    x = np.ones((1, 3), np.float32)
    assert run(adapter, wide, x=x).captures[0].dtype == "float64"


def test_a_model_that_cannot_be_copied_says_so(adapter: Any) -> None:
    import threading

    import torch

    model = torch.nn.Linear(3, 2)
    model.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(UserCodeError, match="copying the torch model failed: TypeError"):
        adapter.widened(model)


def test_an_interrupt_in_the_model_passes_through_and_leaves_no_hooks(adapter: Any) -> None:
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            raise KeyboardInterrupt

    model = Net().train()
    with pytest.raises(KeyboardInterrupt):
        run(adapter, model, x=np.ones((1, 2), np.float32))
    assert model.training
    assert not model.fc._forward_hooks


def drawing_model() -> Any:
    """Counts, caches and draws in its forward."""
    import random

    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)
            self.register_buffer("steps", torch.zeros(1))
            self.register_buffer("seen", torch.zeros(2), persistent=False)
            self.register_buffer("table", torch.zeros(1))
            self.length, self.history, self.cache = 1, [0], {"x": None}
            self.place = torch.zeros(1)

        def forward(self, x: Any) -> Any:
            self.steps += 1
            self.place += 1
            self.seen.data.add_(1)
            if len(x) > self.length:
                self.length = len(x)
                self.table = torch.ones(self.length)
            self.history.append(len(x))
            self.cache["x"] = self.last = x
            self.fc.weight.data = self.fc.weight.data.clamp(-1, 1)
            return self.fc(x) + self.table[: len(x), None] + torch.rand(2) + random.random() + np.random.rand()

    return Net()


def test_buffers_counters_and_caches_are_as_they_were(adapter: Any) -> None:
    model = drawing_model()
    model.fc.weight.data.fill_(2)
    buffers = dict(model.named_buffers())
    storage = model.fc.weight.data_ptr()
    run(adapter, model, x=np.ones((3, 2), np.float32))
    assert dict(model.named_buffers()).keys() == buffers.keys()
    assert all(buffer is buffers[name] for name, buffer in model.named_buffers())
    assert not any(tensor.any() for tensor in (*buffers.values(), model.place))
    assert (model.length, model.history, model.cache) == (1, [0], {"x": None})
    assert not hasattr(model, "last")
    assert (model.fc.weight.data_ptr(), float(model.fc.weight.detach().min())) == (storage, 2)


def test_a_buffer_that_a_run_does_not_change_stays_fit_for_a_backward_pass(adapter: Any) -> None:
    import torch

    model = torch.nn.BatchNorm1d(2).eval()
    loss = model(torch.randn(3, 2)).sum()
    run(adapter, model, x=np.ones((3, 2), np.float32))
    loss.backward()
    assert model.weight.grad is not None


def test_every_run_draws_the_same_and_leaves_the_random_states(adapter: Any) -> None:
    import random

    import torch

    model = drawing_model()
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    first, second = (run(adapter, model, x=np.ones((1, 2), np.float32)).values["#0"] for _ in range(2))
    assert np.array_equal(first, second)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (np.random.get_state()[1].tolist(), random.getstate())  # type: ignore[index]


def test_tensors_without_a_shape_are_named(adapter: Any) -> None:
    from torch import nn

    model = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 3), nn.LazyBatchNorm1d())
    for read in (lambda: adapter.read_parameters(model, "net"), lambda: run(adapter, model, x=np.ones((2, 2)))):
        with pytest.raises(UnreadableModelError, match="have no shape yet") as caught:
            read()
        assert caught.value.lines == (
            "0.weight", "0.bias", "2.weight", "2.bias", "2.running_mean", "2.running_var",
        )  # fmt: skip
        assert "run the model once" in caught.value.hint


def test_tensors_without_values_have_names_but_are_neither_read_filled_nor_run(adapter: Any) -> None:
    import torch

    with torch.device("meta"):
        model = torch.nn.Linear(3, 2)
    assert adapter.read_parameters(model, "net").names == ("weight", "bias")
    values = {"weight": np.ones((2, 3)), "bias": np.ones(2)}
    for use in (
        lambda: adapter.read_values(model),
        lambda: adapter.load_values(model, values),
        lambda: run(adapter, model, x=np.ones((1, 3), np.float32)),
    ):
        with pytest.raises(UnreadableModelError, match=r"meta device, without values \(2 tensors\)\n  weight\n  bias"):
            use()


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_an_exported_program_is_refused_with_the_reason_and_its_original_is_run(adapter: Any, inner: bool) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    exported: Any = torch.export.export(model.eval(), (torch.ones(1, 3),)).module()
    exported = torch.nn.Sequential(torch.nn.Identity(), exported) if inner else exported
    place = "its module '1' is" if inner else "it is"
    with pytest.raises(CannotRunError, match=f"{place} a program of torch.export") as caught:
        run(adapter, exported, x=np.ones((1, 3), np.float32))
    assert "exported from" in caught.value.hint
    with pytest.raises(CannotRunError, match=r"torch\.export"), adapter.evaluating(exported):
        pass
    assert [one.module for one in run(adapter, model, x=np.ones((1, 3), np.float32)).captures] == ["0", "1", ""]


@pytest.mark.filterwarnings("ignore")
def test_a_program_that_is_no_module_is_refused_with_the_same_reason(adapter: Any) -> None:
    import torch

    program = torch.export.export(torch.nn.Linear(3, 2).eval(), (torch.ones(1, 3),))
    with pytest.raises(CannotRunError, match=r"it is a program of torch\.export") as caught:
        open_side(program)
    assert "exported from" in caught.value.hint
    assert not adapter.owns(object())


@pytest.mark.parametrize("compiled", ["trace", "script"])
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_model_that_runs_past_its_hooks_is_refused_but_has_names(adapter: Any, compiled: str) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh())
    made = torch.jit.trace(model, torch.ones(1, 3)) if compiled == "trace" else torch.jit.script(model)
    assert adapter.read_parameters(made, "net").names == ("0.weight", "0.bias")
    with pytest.raises(CannotRunError, match="Sequential is a TorchScript model") as caught:
        run(adapter, made, x=np.ones((1, 3), np.float32))
    assert "traced or scripted from" in caught.value.hint
    within = torch.nn.Sequential(made, torch.nn.Linear(2, 2)).train()
    assert {c.module for c in run(adapter, within, x=np.ones((1, 3), np.float32)).captures} == {"1", ""}
    assert all(module.training for module in within.modules())


def test_the_environment_names_version_device_and_threads(adapter: Any) -> None:
    import torch

    environment = adapter.environment()
    assert environment["torch"] == torch.__version__
    assert environment["threads"] == str(torch.get_num_threads())
