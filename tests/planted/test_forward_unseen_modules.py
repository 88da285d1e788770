"""Modules run past their hooks and modules never called: always listed, and agreement that rests on them is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome

if TYPE_CHECKING:
    from align.forward.forward_result import ForwardComparison

pytestmark = pytest.mark.frameworks

X = {"x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)}


def torch_model(past: str = "", *, spare: int = 0) -> Any:
    """Two linear layers, one past its hooks: `body` or `head`, or both; `spare` is the width of one never called."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
            if spare:
                self.spare = nn.Linear(spare, spare)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.body.forward(x) if "body" in past else self.body(x))
            return F.linear(y, self.head.weight, self.head.bias) if "head" in past else self.head(y)

    torch.manual_seed(0)
    return Net()


def mindspore_model(past: str = "", *, spare: int = 0, scale: float = 1.0) -> Any:
    """The port; `jit` compiles its body by itself."""
    import mindspore
    from mindspore import nn, ops

    class Compiled(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Dense(8, 16)

        @mindspore.jit
        def construct(self, x: Any) -> Any:
            return self.inner(x)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.body = Compiled() if past == "jit" else nn.Dense(8, 16)
            self.head = nn.Dense(16, 4)
            if spare:
                self.spare = nn.Dense(spare, spare)

        def construct(self, x: Any) -> Any:
            y = ops.relu(self.body.construct(x) if "body" in past else self.body(x))
            if "head" in past:
                return ops.matmul(y, self.head.weight.T) * scale + self.head.bias
            return self.head(y) * scale

    return Net()


def compare(reference: Any, port: Any) -> ForwardComparison:
    side = align.open_side(port)
    values = [value.numpy() for value in reference.state_dict().values()]
    side.reader.load_values(port, dict(zip(side.reader.read_values(port), values, strict=True)))
    return align.compare_forward(reference, side, inputs=X)


def told(result: ForwardComparison) -> list[tuple[str, str, str]]:
    return [(one.side, one.module, one.state) for one in result.unseen]


def test_models_whose_layers_are_all_seen_have_none_listed() -> None:
    result = compare(torch_model(), mindspore_model())
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.unseen == ()
    assert not [one for one in result.findings if one.code.startswith("modules-")]


@pytest.mark.parametrize("past", ["body", "head", "body, head"])
def test_layers_past_their_hooks_are_listed_on_their_side(past: str) -> None:
    wanted = past.split(", ")
    result = compare(torch_model(past), mindspore_model())
    assert told(result) == [("reference", name, "bypassed") for name in wanted]
    result = compare(torch_model(), mindspore_model(past))
    assert told(result) == [("candidate", name, "bypassed") for name in wanted]
    (finding,) = [one for one in result.findings if one.code == "modules-bypassed"]
    assert (finding.subject, finding.severity) == ("Net", "warning")
    assert all(f"{name} (Dense)" in finding.message for name in wanted)


@pytest.mark.parametrize("reference", [True, False])
def test_agreement_is_none_where_most_parameters_were_not_seen(reference: bool) -> None:
    past = "body"  # 144 of 212 elements; the head has 68
    result = compare(torch_model(past if reference else ""), mindspore_model("" if reference else past))
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert "hold 68% of the " + ("reference's" if reference else "candidate's") in result.verdict.reason
    few = compare(torch_model("head" if reference else ""), mindspore_model("" if reference else "head"))
    assert few.verdict.outcome is Outcome.ALIGNED


def test_a_difference_stays_a_difference() -> None:
    result = compare(torch_model("body"), mindspore_model("body", scale=1.1))
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert told(result) == [("reference", "body", "bypassed"), ("candidate", "body", "bypassed")]


def test_a_module_that_is_never_called_is_told_from_one_that_is_bypassed() -> None:
    result = compare(torch_model("head", spare=3), mindspore_model("head", spare=3))
    states = [("head", "bypassed"), ("spare", "never called")]
    assert told(result) == [(side, *one) for side in ("reference", "candidate") for one in states]
    assert result.verdict.outcome is Outcome.ALIGNED


def test_models_that_mostly_are_not_called_were_not_compared() -> None:
    result = compare(torch_model(spare=40), mindspore_model(spare=40))
    assert told(result) == [(side, "spare", "never called") for side in ("reference", "candidate")]
    assert result.verdict.outcome is Outcome.NOT_COMPARED


def test_values_are_left_as_they_were() -> None:
    reference, port = torch_model("head", spare=3), mindspore_model("head", spare=3)
    before = {name: value.clone() for name, value in reference.state_dict().items()}
    compare(reference, port)
    assert all((value == before[name]).all() for name, value in reference.state_dict().items())
    values = align.open_side(port).reader.read_values(port)
    pairs = zip(values.values(), before.values(), strict=True)
    assert all(np.array_equal(mine, theirs.numpy()) for mine, theirs in pairs)


def test_what_is_compiled_by_jit_is_run_layer_by_layer() -> None:
    result = compare(torch_model(), mindspore_model("jit"))
    assert (result.verdict.outcome, result.unseen) == (Outcome.ALIGNED, ())
    assert ("body", "body.inner") in [(row.reference, row.candidate) for row in result.layers]
    (note,) = (finding for finding in result.findings if finding.code == "jit-uncompiled")
    assert "compiles mindspore_model.<locals>.Compiled.construct. It runs uncompiled" in note.message
    assert "--candidate-mode graph" in note.message
    result = compare(torch_model(), mindspore_model("jit", scale=1.1))
    assert result.verdict.outcome is Outcome.NOT_ALIGNED


def test_compiled_functions_are_found_in_methods_modules_and_on_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    code = """
import mindspore
from mindspore import nn

@mindspore.jit
def double(x): return x * 2

class Calls(nn.Cell):
    def construct(self, x): return double(x)

class Plain(nn.Cell):
    def construct(self, x): return x

class Method(nn.Cell):
    @mindspore.jit
    def tail(self, x): return x
    def construct(self, x): return self.tail(x)
"""
    module = types.ModuleType("jitted_port")
    monkeypatch.setitem(sys.modules, "jitted_port", module)
    exec(code, vars(module))
    put = module.Plain()
    put.construct = module.mindspore.jit(put.construct)
    reader = align.open_side(module.Plain()).reader
    found = [reader.jitted_code(cell) for cell in (module.Calls(), module.Method(), put, module.Plain())]
    assert found == [("double",), ("Method.tail",), ("Plain.construct",), ()]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_is_compiled_otherwise_is_listed() -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.jit.trace(torch_model(), torch.ones(3, 8))

        def forward(self, x: Any) -> Any:
            return self.inner(x) * 1

    reference = Net()
    result = align.compare_forward(reference, Net(), inputs=X)
    assert ("candidate", "inner.body", "bypassed") in told(result)
    assert result.verdict.outcome is Outcome.NOT_COMPARED


def test_a_network_compiled_by_request_is_compared_by_its_outputs() -> None:
    port = mindspore_model()
    reference = torch_model()
    side = align.open_side(port, mode="graph")
    values = {name: value.numpy() for name, value in reference.state_dict().items()}
    side.reader.load_values(port, values)
    result = align.compare_forward(reference, side, inputs=X)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.unseen == ()


def test_a_model_that_is_one_layer_is_compared_by_its_output() -> None:
    from mindspore import nn as mnn
    from torch import nn

    reference, port = nn.Linear(8, 4), mnn.Dense(8, 4)
    result = compare(reference, port)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.unseen == ()


def test_what_is_inside_a_layer_of_a_library_is_compared_with_it() -> None:
    """torch's attention uses the weights of its output layer without calling it."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.scales = nn.MultiheadAttention(8, 2), nn.ParameterList([torch.ones(8)])

        def forward(self, x: Any) -> Any:
            return self.attention(x, x, x)[0] * self.scales[0]

    torch.manual_seed(0)
    reference, twin = Net(), Net()
    twin.load_state_dict(reference.state_dict())
    result = align.compare_forward(reference, twin, inputs=X)
    assert result.unseen == ()
    assert result.verdict.outcome is Outcome.ALIGNED


def test_captured_folders_list_what_was_not_seen(tmp_path: Any) -> None:
    from align.forward.compare_trace_folders import compare_trace_folders
    from align.traces.capture_trace import capture_trace

    makes = {"seen": "", "head": "head", "body": "body"}
    for name, past in makes.items():
        capture_trace(torch_model(past), tmp_path / name, inputs=X)
    found = {name: compare_trace_folders(tmp_path / "seen", tmp_path / name) for name in makes}
    assert [one.verdict.outcome.value for one in found.values()] == ["aligned", "aligned", "could not compare"]
    assert [told(one) for one in found.values()] == [
        [],
        [("candidate", "head", "not seen")],
        [("candidate", "body", "not seen")],
    ]


@pytest.mark.parametrize("forgets", [True, False])
def test_a_port_that_returns_nothing_is_told_as_one_that_ran(forgets: bool) -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch_model()

        def forward(self, x: Any) -> Any:
            y = self.inner(x)
            return None if forgets and self is port else y

    port = Net()
    result = align.compare_forward(Net(), port, inputs=X)
    reasons = [(one.module, one.reason) for one in result.unpaired]
    assert reasons == ([("", "no tensor that the other model returned was seen")] if forgets else [])
    assert result.verdict.outcome is (Outcome.NOT_COMPARED if forgets else Outcome.ALIGNED)
