"""Wrong code with one expression to change: the change is tried, named with its line, and ends the fault."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.fixes.plan_edits import plan_edits
from align.forward.compare_forward import compare_forward
from align.models.function_source import CodeChange, edited

pytestmark = pytest.mark.frameworks
PORTS = Path(__file__).parent / "ports" / "code_between"
X = {"x": np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)}
TOKENS = {"x": np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)}


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def original() -> Any:
    return load(PORTS / "original.py")


@pytest.fixture
def ported(tmp_path, original):
    """Build a net of a port's source with the original's weights."""
    import mindspore

    def build(name: str, text: str, kind: str = "Net") -> Any:
        path = tmp_path / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        module = load(path)
        net = module.build(getattr(module, kind))
        values = original.build(getattr(original, kind)).state_dict()
        for one, value in zip(net.get_parameters(), values.values(), strict=True):
            one.set_data(mindspore.Tensor(value.numpy()))
        return net

    return build


SOFTMAX = ("* 0.7, axis=-1)", "* 0.7, axis=1)")
RELU = ("ops.relu(self.conv1(x))", "self.conv1(x)")
JOINED = ("[a, self.conv2(a)]", "[self.conv2(a), a]")
TURNED = ("heads.transpose(0, 2, 1, 3).reshape(b, n, -1)", "heads.reshape(b, n, -1)")  # in a function
GELU = ('approximate="none"', 'approximate="tanh"')
OTHER = ('ops.gelu(self.fc1(x.mean(1)), approximate="none")', "ops.sigmoid(self.fc1(x.mean(1)))")
NUMBER = ("self.fc2(x) * 3.0", "self.fc2(x) * 2.5")
RESIDUAL = ("x + self.attention(x)", "self.attention(x)")


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("softmax", *SOFTMAX),
        ("relu", *RELU),
        ("joined", *JOINED),
        ("turned", *TURNED),
        ("gelu", *GELU),
        ("other", *OTHER),
        ("number", *NUMBER),
        ("residual", *RESIDUAL),
    ],
)
def test_the_change_that_ends_a_fault_in_code_is_found_by_trying_and_can_be_written(
    original, ported, name, right, wrong
):
    text = (PORTS / "port.py").read_text(encoding="utf-8")
    assert text.count(right) == 1
    net = ported(f"edited_{name}", text.replace(right, wrong))
    construct = type(net).construct.__code__
    found = compare_forward(original.build(), net, inputs=X, power=False)
    (culprit,) = found.culprits
    line = text[: text.index(right)].count("\n") + 1
    assert culprit.sureness == "confirmed"
    assert culprit.line.endswith(f"edited_{name}.py:{line}")
    assert type(net).construct.__code__ is construct
    planned = plan_edits(found.culprits, net)
    assert not planned.refused
    (written,) = planned.texts.values()
    mended = ported(f"mended_{name}", written)
    assert compare_forward(original.build(), mended, inputs=X, power=False).verdict.outcome is Outcome.ALIGNED


ENDING = ("conv(width, 3), nn.ReLU())", "conv(width, 3))", 0)
BETWEEN = ("nn.Dense(3, 8), nn.GELU(approximate=False)]", "nn.Dense(3, 8)]", 2)
APPENDED = ("[nn.Sigmoid(), nn.Tanh()]", "[]", 0)


@pytest.mark.parametrize(("right", "wrong", "moves"), [ENDING, BETWEEN, APPENDED])
def test_layers_that_a_list_lacks_are_tried_and_written_wherever_their_line_makes_one(
    original, ported, right, wrong, moves
):
    text = (PORTS / "port.py").read_text(encoding="utf-8")
    net = ported("list_with_less", text.replace(right, wrong), "Listed")
    found = compare_forward(original.build(original.Listed), net, inputs=X, power=False)
    assert {one.sureness for one in found.culprits} == {"confirmed"}
    assert {one.code.moves for one in found.culprits} == {moves}
    if moves:
        (refused,) = plan_edits(found.culprits, net, "port.ckpt").refused
        assert refused.reason == "fix_refused.moves_names"
    (written,) = plan_edits(found.culprits, net).texts.values()
    mended = ported("list_with_all", written, "Listed")
    again = compare_forward(original.build(original.Listed), mended, inputs=X, power=False)
    assert again.verdict.outcome is Outcome.ALIGNED


def test_layers_that_a_list_has_too_many_are_left_out_and_each_is_named_once(original, ported):
    text = (PORTS / "port.py").read_text(encoding="utf-8")
    right = "conv(width, 3), nn.ReLU())"
    more = text.replace(right, "conv(width, 3), nn.ReLU(), nn.Sigmoid())")
    net = ported(
        "list_with_more", more.replace("nn.Sigmoid(), nn.Tanh()]", "nn.Sigmoid(), nn.Tanh(), nn.GELU()]"), "Listed"
    )
    found = compare_forward(original.build(original.Listed), net, inputs=X, power=False)
    named = [(one.candidate, one.cause, one.sureness) for one in found.culprits]
    assert named == [(one, "layer-extra", "confirmed") for one in ("features.0.3", "features.1.3", "head.5")]
    (written,) = plan_edits(found.culprits, net).texts.values()
    mended = ported("list_without", written, "Listed")
    again = compare_forward(original.build(original.Listed), mended, inputs=X, power=False)
    assert again.verdict.outcome is Outcome.ALIGNED


@pytest.mark.parametrize("kind", ["Shared", "Acted"])
def test_no_change_is_offered_that_makes_another_layer_wrong(kind, original, ported):
    net = ported("shared_code", (PORTS / "port.py").read_text(encoding="utf-8"), kind)
    found = compare_forward(original.build(getattr(original, kind)), net, inputs=TOKENS, power=False)
    (culprit,) = found.culprits
    assert culprit.code is None
    assert culprit.sureness != "confirmed"


ORIGINAL = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc1 = nn.Linear(32, 32)
        self.fc2 = nn.Linear(32, 16)

    def scaled(self, x):
        return x * 4.0

    def forward(self, x):
        return self.fc2(self.scaled(self.fc1(x)))
"""
DERIVED = """from code_of_both import Net


class Port(Net):
    def forward(self, x):
        y = self.fc1(x)
        return self.fc2(self.scaled(y + y))
"""


def test_code_that_the_reference_runs_too_is_not_changed(tmp_path):
    for name, text in (("code_of_both", ORIGINAL), ("code_of_port", DERIVED)):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    both, port = (load(tmp_path / f"{name}.py") for name in ("code_of_both", "code_of_port"))
    inputs = {"x": np.random.default_rng(0).standard_normal((8, 16, 32)).astype(np.float32)}
    (culprit,) = compare_forward(both.Net(), port.Port(), inputs=inputs, power=False).culprits
    assert culprit.cause == "scaled"
    assert culprit.code is None


def test_what_python_warns_of_in_a_file_is_not_said_again_when_its_code_is_edited(tmp_path):
    path = tmp_path / "warned.py"
    path.write_text('def halved(x):\n    assert (x, "always true")\n    return x * 2.0\n', encoding="utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        halved = load(path).halved
        assert len(caught) == 1
        with edited(halved, CodeChange(str(path), 3, 15, "2.0", "0.5")) as is_edited:
            assert is_edited
            assert halved(3.0) == 1.5
        assert halved(3.0) == 6.0
        assert len(caught) == 1
