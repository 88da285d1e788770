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
            "--dtype has no meaning",
        ),
    ]
    for arguments, said in cases:
        code, text = run(capsys, *arguments)
        assert (code, said in text) == (2, True), text
    assert not (tmp_path / "n.onnx").exists()
