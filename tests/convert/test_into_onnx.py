"""Weights of a checkpoint in an ONNX file: the file then computes what the model with these weights does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align.cli.main import main
from align.convert.convert_checkpoint import convert_checkpoint
from align.forward.compare_forward import compare_forward
from align.models.open_side import open_side

pytestmark = pytest.mark.frameworks
sys.path.insert(0, str(Path(__file__).parents[1] / "planted"))

from exported_net import exported, pixels, torch_net  # noqa: E402

LINEAR = """
import torch


def make():
    layers = torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)
    return torch.nn.Sequential(*layers).eval()
"""
NET = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "planted")!r})
from exported_net import torch_net as make
"""


def run(capsys: Any, *arguments: object) -> tuple[int, str]:
    code = main(["convert", *map(str, arguments)])
    said = capsys.readouterr()
    return code, " ".join((said.out + said.err).split())


def trained(net: Any) -> Any:
    """Other weights than those of the file."""
    import torch

    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return net


def linear(tmp_path: Path) -> Any:
    import importlib.util

    (tmp_path / "linear.py").write_text(LINEAR)
    spec = importlib.util.spec_from_file_location("linear_of_into", tmp_path / "linear.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return trained(module.make())


def test_a_torch_and_a_mindspore_checkpoint_go_into_a_file(tmp_path, capsys) -> None:
    import torch

    net = linear(tmp_path)
    old = _script(net, tmp_path / "old.onnx", torch.zeros(4, 6))
    torch.save(trained(net).state_dict(), tmp_path / "new.pth")
    convert_checkpoint(tmp_path / "new.pth", tmp_path / "new.ckpt")
    inputs = {"input": np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)}
    before = old.read_bytes()
    for source in ("new.pth", "new.ckpt"):
        file = tmp_path / f"{source}.onnx"
        code, said = run(capsys, tmp_path / source, old, "--into", "-o", file)
        assert (code, "6 parameters in 6 initializers" in said) == (0, True), said
        assert compare_forward(net, str(file), inputs=inputs).verdict.outcome.value == "aligned"
    assert compare_forward(net, str(old), inputs=inputs).verdict.outcome.value == "not aligned"
    assert old.read_bytes() == before


def _script(net: Any, path: Path, example: Any) -> Path:
    import warnings

    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (example,), str(path), dynamo=False)
    return path


def test_a_folded_norm_needs_the_model_and_is_folded_again(tmp_path, capsys) -> None:
    import torch

    (tmp_path / "net.py").write_text(NET)
    old = exported(tmp_path / "old.onnx", torch_net())
    net = torch_net(seed=8)
    torch.save(net.state_dict(), tmp_path / "new.pth")
    command = [tmp_path / "new.pth", old, "--into", "-o", tmp_path / "new.onnx"]
    code, said = run(capsys, *command)
    assert (code, "--source-model" in said, (tmp_path / "new.onnx").exists()) == (2, True, False), said
    code, said = run(capsys, *command, "--source-model", f"{tmp_path}/net.py:make")
    assert code == 0, said
    result = compare_forward(net, str(tmp_path / "new.onnx"), inputs=pixels())
    assert result.verdict.outcome.value == "aligned"
    assert [one.code for one in result.findings if one.severity == "error"] == []


def test_external_data_are_copied_beside_the_new_file(tmp_path, capsys) -> None:
    import onnx
    import torch

    net = linear(tmp_path)
    _script(net, tmp_path / "plain.onnx", torch.zeros(4, 6))
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir(), new.mkdir()
    beside = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(onnx.load(tmp_path / "plain.onnx"), old / "net.onnx", **beside)
    torch.save(trained(net).state_dict(), tmp_path / "new.pth")
    code, said = run(capsys, tmp_path / "new.pth", old / "net.onnx", "--into", "-o", old / "other.onnx")
    assert (code, "another folder" in said, (old / "other.onnx").exists()) == (2, True, False)
    assert run(capsys, tmp_path / "new.pth", old / "net.onnx", "--into", "-o", new / "net.onnx")[0] == 0
    inputs = {"input": np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)}
    assert compare_forward(net, str(new / "net.onnx"), inputs=inputs).verdict.outcome.value == "aligned"


def test_what_does_not_fit_is_refused_and_nothing_is_written(tmp_path, capsys) -> None:
    import torch

    net = linear(tmp_path)
    old = _script(net, tmp_path / "old.onnx", torch.zeros(4, 6))
    torch.save({**net.state_dict(), "more.weight": torch.zeros(5, 5)}, tmp_path / "more.pth")
    cases = [
        ([tmp_path / "more.pth", old, "--into", "-o", tmp_path / "n.onnx"], "more.weight"),
        ([tmp_path / "more.pth", old, "--into"], "with -o"),
        ([tmp_path / "more.pth", old, "--into", "-o", old], "is there already"),
        (
            [tmp_path / "more.pth", old, "--into", "-o", tmp_path / "n.onnx", "--dtype", "fp16"],
            "--dtype cannot be used",
        ),
    ]
    for arguments, said in cases:
        code, text = run(capsys, *arguments)
        assert (code, said in text) == (2, True), text
    assert not (tmp_path / "n.onnx").exists()


COMPUTED = '''
import torch
from torch.nn import functional as F


class Norm(torch.nn.Module):
    """Its scale is 1 + weight, which exporters compute."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + self.weight)


class Product(torch.nn.Module):
    """A matrix that is used as it lies, one that is turned, and a value that is used in two ways."""

    def __init__(self):
        super().__init__()
        self.w1, self.w2 = (torch.nn.Parameter(torch.randn(4, 4)) for _ in range(2))
        self.g = torch.nn.Parameter(torch.randn(4))

    def forward(self, x):
        return torch.relu(x @ self.w1) @ self.w2.t() * self.g + (1 + self.g)


class Ones(torch.nn.Module):
    """A constant that is equal to the fresh weight of a norm: the dynamo exporter keeps them once."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(4)
        self.register_buffer("one", torch.ones(4), persistent=False)

    def forward(self, x):
        return torch.minimum(self.norm(x), self.one)


def net(layer):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), layer()).eval()


def norm(): return net(Norm)
def product(): return net(Product)
def ones(): return net(Ones)
def folded():
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3)).eval()
    made[1].running_var.uniform_(0.5, 2.0)
    return made
'''


def _computed(tmp_path: Path, name: str, *, dynamo: bool) -> tuple[Any, Path]:
    """A net of that name, and the file that was exported of it; other weights lie beside it, in `new.pth`."""
    import importlib
    import warnings

    import torch

    (tmp_path / "computed_nets.py").write_text(COMPUTED)
    sys.path.insert(0, str(tmp_path))
    try:
        sys.modules.pop("computed_nets", None)
        made = getattr(importlib.import_module("computed_nets"), name)()
    finally:
        sys.path.remove(str(tmp_path))
    more = {"external_data": False, "verbose": False} if dynamo else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(made, (torch.ones(2, 4),), str(tmp_path / "old.onnx"), dynamo=dynamo, **more)
    return made, tmp_path / "old.onnx"


ROWS = {"input": np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)}


@pytest.mark.parametrize("dynamo", [False, True])
def test_a_value_that_the_export_computed_is_no_parameter_of_that_name(tmp_path, capsys, dynamo) -> None:
    import torch

    net, old = _computed(tmp_path, "norm", dynamo=dynamo)
    result = compare_forward(net, str(old), inputs=ROWS)
    assert (result.verdict.outcome.value, [one.code for one in result.findings if one.severity == "error"]) == (
        "aligned",
        [],
    )
    torch.save(trained(net).state_dict(), tmp_path / "new.pth")
    code, said = run(capsys, tmp_path / "new.pth", old, "--into", "-o", tmp_path / "new.onnx")
    assert (code, "source 1.weight" in said, (tmp_path / "new.onnx").exists()) == (2, True, False), said


def test_a_matrix_that_keeps_its_name_is_not_turned_and_what_stays_is_named(tmp_path, capsys) -> None:
    import torch

    net, old = _computed(tmp_path, "product", dynamo=False)
    torch.save(trained(net).state_dict(), tmp_path / "new.pth")
    code, said = run(capsys, tmp_path / "new.pth", old, "--into", "-o", tmp_path / "new.onnx")
    assert (code, "stay as before: onnx::" in said, "align forward MODEL" in said) == (0, True, True), said
    side = open_side(str(tmp_path / "new.onnx"))
    stored = {name: tensor.load() for name, tensor in side.model.tensors.items()}
    assert np.array_equal(stored["1.w1"], net[1].w1.detach().numpy())


def test_a_constant_that_is_equal_to_a_weight_is_not_changed_with_it(tmp_path, capsys) -> None:
    import torch

    net, old = _computed(tmp_path, "ones", dynamo=True)
    torch.save(trained(net).state_dict(), tmp_path / "new.pth")
    code, said = run(capsys, tmp_path / "new.pth", old, "--into", "-o", tmp_path / "new.onnx")
    assert (code, "as a constant" in said, (tmp_path / "new.onnx").exists()) == (2, True, False), said


def test_a_norm_folded_into_a_linear_layer_is_taken_apart_and_folded_again(tmp_path, capsys) -> None:
    import torch

    net, old = _computed(tmp_path, "folded", dynamo=True)
    assert compare_forward(net, str(old), inputs=ROWS).verdict.outcome.value == "aligned"
    torch.save(trained(net).state_dict(), tmp_path / "new.pth")
    code, said = run(
        capsys, tmp_path / "new.pth", old, "--into", "-o", tmp_path / "new.onnx",
        "--source-model", f"{tmp_path}/computed_nets.py:folded",
    )  # fmt: skip
    assert code == 0, said
    assert compare_forward(net, str(tmp_path / "new.onnx"), inputs=ROWS).verdict.outcome.value == "aligned"
