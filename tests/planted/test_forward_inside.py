"""Faults in code that calls functions: the call is named with its line, by what it makes of right values."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align.core.documents import to_json_data
from align.core.verdicts import Outcome
from align.forward.compare_forward import compare_forward
from align.report.kinds.culprits import culprit_blocks
from align.report.kinds.forward import function_blocks

pytestmark = pytest.mark.frameworks
PORTS = Path(__file__).parent / "ports" / "rotary_attention"
X = {"x": np.random.default_rng(0).standard_normal((2, 12, 16)).astype(np.float32)}
NAMES = {"embed": "stem", "norm": "ln", "attn.q": "mha.wq", "attn.k": "mha.wk", "attn.v": "mha.wv", "attn.o": "mha.wo"}
REPEATED = "k = k.repeat_interleave(2, 1)"
ROTATED = "q = q * self.cos + rotate(q) * self.sin"
SCORES = "y = ops.matmul(ops.softmax(s, -1), v)"
POOLED = "return self.fc(x.mean(1))"


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
    return load(PORTS / "original.py").build()


@pytest.fixture
def ported(tmp_path, original):
    """Write the port with a text replaced, and build it with the original's weights."""
    import mindspore

    def build(name: str, old: str = "", new: str = "") -> tuple[Any, list[str]]:
        text = (PORTS / "port.py").read_text(encoding="utf-8")
        assert old in text
        path = tmp_path / f"{name}.py"
        path.write_text(text.replace(old, new), encoding="utf-8")
        net = load(path).build()
        theirs = {port: mine for mine, port in (NAMES | {"head": "fc"}).items()}
        values = original.state_dict()
        for one in net.get_parameters():
            layer, _, leaf = one.name.rpartition(".")
            leaf = {"gamma": "weight", "beta": "bias"}.get(leaf, leaf)
            one.set_data(mindspore.Tensor(values[f"{theirs[layer]}.{leaf}"].numpy()))
        return net, path.read_text(encoding="utf-8").splitlines()

    return build


def test_the_port_itself_is_right_though_it_computes_much_in_another_way(original, ported):
    net, _ = ported("clean_port")
    assert compare_forward(original, net, inputs=X, power=False).verdict.outcome is Outcome.ALIGNED


FAULTS = {
    "tiled": (REPEATED, "k = ops.tile(k, (1, 2, 1, 1))", "k = ops.tile", "result", "repeat_interleave"),
    "sine_first": (ROTATED, "q = q * self.sin + rotate(q) * self.cos", "q = q * self.sin", "other input", "mul"),
    "another_base": ("100.0 **", "1000.0 **", ROTATED, "other table", "mul"),
    "unmasked": ("s = s - m * 1e9", "s = s + 0.0", SCORES, "missing step", "masked_fill"),
    "mask_of_one_more": ("ms.float32), 1)", "ms.float32), 0)", "m = ops.triu", "result", "triu"),
    "scaled_otherwise": ("8**-0.5", "32**-0.5", SCORES, "scaled input", "softmax"),
    "another_axis": ("softmax(s, -1)", "softmax(s, -2)", "y = ops.matmul(ops.softmax(s, -2), v)", "result", "softmax"),
    "heads_cut_otherwise": (
        "v = self.wv(x).reshape(b, t, 2, 8).swapaxes(1, 2)",
        "v = self.wv(x).reshape(b, t, 8, 2).transpose(0, 3, 1, 2)",
        "v = self.wv(x)",
        "result",
        "transpose",
    ),
    "no_residual": ("x = x + self.mha(self.ln(x))", "x = self.mha(self.ln(x))", POOLED, "missing step", "add"),
    "turned_back": (
        "[ops.neg(x[..., h:]), x[..., :h]]",
        "[x[..., h:], ops.neg(x[..., :h])]",
        ROTATED,
        "scaled input",
        "add",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_functional_call_at_fault_is_named_with_its_line(name, original, ported):
    old, new, line, difference, function = FAULTS[name]
    net, lines = ported(name, old, new)
    result = compare_forward(original, net, inputs=X, power=False, functions=True)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    (culprit,) = result.culprits
    inside = culprit.inside
    assert inside
    assert (inside.difference, inside.reference_function, inside.sureness) == (difference, function, "confirmed")
    assert lines[int(culprit.line.rpartition(":")[2]) - 1].strip().startswith(line)
    assert culprit.line == inside.lines[0]
    if name == "scaled_otherwise":
        assert inside.factor == pytest.approx(0.5)
    (panel,) = culprit_blocks(to_json_data(result), show_all=False)
    shown = {label.strip(): text for label, text in panel.facts}
    assert inside.function in shown["inside"]
    assert culprit.line in shown["inside"]
    assert function in shown["inside"]


def test_every_functional_call_of_a_right_port_is_known_to_the_reference(original, ported):
    net, lines = ported("clean_calls")
    result = compare_forward(original, net, inputs=X, power=False, functions=True)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert len(result.functions) > 30
    assert {one.outcome for one in result.functions} == {"same", "scaled", "constant"}
    assert all(one.relative_l2 < 1e-5 for one in result.functions if one.outcome != "constant")
    (softmax,) = [one for one in result.functions if one.function == "Softmax"]
    assert lines[int(softmax.line.rpartition(":")[2]) - 1].strip() == SCORES
    assert (softmax.candidate, softmax.reference_function, softmax.outcome) == ("mha", "softmax", "same")
    assert softmax.reference_line.rpartition("/")[2].startswith("original.py:")


def test_a_functional_call_that_returns_something_else_stands_out_and_what_follows_has_another_input(original, ported):
    net, lines = ported("one_more_masked", "ms.float32), 1)", "ms.float32), 0)")
    result = compare_forward(original, net, inputs=X, power=False, functions=True)
    (wrong,) = [one for one in result.functions if one.outcome == "other result"]
    assert lines[int(wrong.line.rpartition(":")[2]) - 1].strip().startswith("m = ops.triu")
    assert wrong.reference_function == "triu"
    after = [one for one in result.functions[result.functions.index(wrong) + 1 :] if one.candidate == "mha"]
    assert {one.outcome for one in after} == {"other input"}
    assert {one.outcome for one in result.functions} == {"same", "scaled", "constant", "other result", "other input"}
    (table,) = function_blocks(to_json_data(result)["functions"], show_all=False)
    assert len(table.rows) == 1 + len(after)
    assert table.rows[0].cells[1] == wrong.function
    (whole,) = function_blocks(to_json_data(result)["functions"], show_all=True)
    assert len(whole.rows) == len(result.functions)


def test_a_method_that_works_in_place_without_effect_is_named_with_its_line(original, ported):
    net, lines = ported("in_place", "s = s - m * 1e9", "s.sub_(m * 1e9)")
    (culprit,) = compare_forward(original, net, inputs=X, power=False).culprits
    assert (culprit.cause, culprit.sureness, culprit.inside.difference) == (
        "result-dropped",
        "suspected",
        "dropped result",
    )
    assert lines[int(culprit.line.rpartition(":")[2]) - 1].strip() == "s.sub_(m * 1e9)"


def test_tables_of_nan_are_followed_like_others(original, ported):
    net, _ = ported("not_a_number", "100.0 **", "float('nan') **")
    result = compare_forward(original, net, inputs=X, power=False, functions=True)
    assert [one.candidate for one in result.culprits] == ["mha.wo"]
    assert "other input" in {one.outcome for one in result.functions}


def test_a_model_without_functional_calls_or_whose_calls_are_not_asked_for_has_no_table(original, ported):
    net, _ = ported("not_asked")
    assert compare_forward(original, net, inputs=X, power=False).functions == ()
    assert function_blocks([], show_all=True) == []


def test_nothing_is_looked_at_once_all_runs_are_spent(original, ported, monkeypatch):
    monkeypatch.setattr("align.forward.compare_forward.MOST_LOOK_RUNS", 0)
    net, _ = ported("late", REPEATED, "k = ops.tile(k, (1, 2, 1, 1))")
    result = compare_forward(original, net, inputs=X, power=False)
    (culprit,) = result.culprits
    assert culprit.inside is None
    (told,) = [one for one in result.findings if one.code == "not-looked-inside"]
    assert "--thorough" in told.message


CALLED = """
import numpy as np
import torch
from mindspore import Tensor, nn, ops

def right(net, x):
    RIGHT
    return y

def wrong(net, x):
    WRONG
    return y

class Original(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(right(self, x))

class Port(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(8, 8)

    def construct(self, x):
        return self.fc(wrong(self, x))
"""
WRONG_IN_A_FUNCTION = {
    "divided_by_another_number": (
        "y = torch.softmax(x @ x.transpose(1, 2) / 2, -1) @ x",
        "y = ops.matmul(ops.softmax(ops.matmul(x, x.swapaxes(1, 2)) / 4, -1), x)",
        "scaled input",
    ),
    "other_deviation": (
        "y = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)",
        "y = (x - x.mean(-1, keep_dims=True)) / (x.std(-1, keepdims=True) + 1e-5)",
        "scaled input",
    ),
    "symmetric_window": (
        "y = x * torch.hann_window(8)[None, None, :]",
        "y = x * Tensor(np.hanning(8).astype(np.float32))[None, None, :]",
        "other table",
    ),
    "turned_grid": (
        "y = x + torch.meshgrid(torch.arange(8.0), torch.arange(8.0) * 2, indexing='ij')[0]",
        "y = x + ops.meshgrid(ops.arange(0.0, 8.0), ops.arange(0.0, 8.0) * 2, indexing='xy')[0]",
        "result or before",
    ),
}


@pytest.mark.parametrize("name", WRONG_IN_A_FUNCTION)
def test_the_line_inside_of_a_function_is_named_and_not_the_one_that_called_it(name, tmp_path) -> None:
    import mindspore

    right, wrong, difference = WRONG_IN_A_FUNCTION[name]
    path = tmp_path / f"called_{name}.py"
    path.write_text(CALLED.replace("RIGHT", right).replace("WRONG", wrong), encoding="utf-8")
    module = load(path)
    original, port = module.Original(), module.Port()
    for own in port.get_parameters():
        own.set_data(mindspore.Tensor(original.state_dict()[own.name].numpy()))
    inputs = {"x": np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)}
    (culprit,) = compare_forward(original, port, inputs=inputs, power=False).culprits
    assert culprit.inside
    assert (culprit.inside.difference, culprit.inside.sureness) == (difference, "confirmed")
    assert path.read_text(encoding="utf-8").splitlines()[int(culprit.line.rpartition(":")[2]) - 1].strip() == wrong
