"""docs/diff.md quotes what its command prints, and names every option that there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from align.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "diff.md").read_text(encoding="utf-8")


@pytest.mark.frameworks
def test_the_page_quotes_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    layers = {f"layers.{i}.weight": torch.arange(12.0).reshape(3, 4) - i for i in range(3)}
    before = {**layers, "embed.weight": torch.ones(5, 4), "norm.weight": torch.ones(4)}
    after = {name: value * 0.999 if name.startswith("layers") else value for name, value in before.items()}
    after["norm.weight"] = torch.tensor([1, 1, 1, 1 + 2**-23])
    torch.save(before, tmp_path / "before.pth")
    torch.save({"model": after, "step": 1}, tmp_path / "after.pth")
    monkeypatch.chdir(tmp_path)

    block, _, _ = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    command, *quoted = block.removeprefix("$ ").splitlines()
    assert main(shlex.split(command)[1:]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert len(quoted) > 10
    assert [line for line in quoted if line not in printed] == []


def test_the_page_quotes_how_tensors_are_related(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0).standard_normal
    original = {"embed.weight": draw((1000, 32))}
    for name in (f"layers.{i}" for i in range(4)):
        original |= {f"{name}.qkv.weight": draw((96, 32)), f"{name}.norm.weight": 0.1 * draw(32)}
        original |= {f"{name}.gate_up.weight": draw((128, 32)), f"{name}.down.weight": draw((32, 64))}
    original = {name: value.astype(np.float32) for name, value in original.items()}
    port = dict(original)
    for name, value in original.items():
        if "qkv" in name:  # by heads
            port[name] = value.reshape(3, 4, 8, 32).swapaxes(0, 1).reshape(96, 32)
        if "gate_up" in name:
            port[name] = np.concatenate([value[64:], value[:64]])
        if "norm" in name:
            port[name] = 1 + value
    port["layers.3.down.weight"] = port["layers.3.down.weight"].astype(np.float16).astype(np.float32)
    port["embed.weight"] = np.concatenate([port["embed.weight"], np.zeros((24, 32), np.float32)])
    np.savez("torch.npz", **original)
    np.savez("port.npz", **port)
    _, block, _ = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    commands: dict[str, list[str]] = {}
    for line in block.splitlines():
        if line.startswith("$ "):
            commands[line[2:]] = []
        else:
            [*commands.values()][-1].append(line)
    lines = ["[names]"]
    for command, quoted in commands.items():
        Path("lines.toml").write_text("\n".join(lines), encoding="utf-8")
        main(shlex.split(command)[1:])
        printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert [line for line in quoted if line.rstrip() not in printed] == [], command
        lines += [line.strip() for line in printed if line.startswith('  "') and " = " in line]


def test_the_page_quotes_how_updates_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    shapes = {"body.weight": (8, 6), "head.weight": (4, 8), "head.bias": (32,), "gate": (16,)}
    before = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    waves = {name: np.sin(np.arange(value.size, dtype="f4")).reshape(value.shape) for name, value in before.items()}
    step = {name: 0.01 * wave for name, wave in waves.items()}
    factors = {"body.weight": 1.0, "head.weight": 2.0, "head.bias": 1.0, "gate": 0.0}
    after = {name: value - step[name] for name, value in before.items()}
    other = {name: value - factors[name] * step[name] for name, value in before.items()}
    other["head.bias"] -= 1e-4 * before["head.bias"]
    for name, values in {"a0": before, "a1": after, "b0": before, "b1": other}.items():
        np.savez(f"{name}.npz", **{key: value.astype(np.float32) for key, value in values.items()})
    _, _, block = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    command, *quoted = block.removeprefix("$ ").splitlines()
    assert main(shlex.split(command)[1:]) == 1
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert len(quoted) > 4
    assert [line for line in quoted if line.rstrip() not in printed] == []


def test_the_page_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diff", "--help"])
    options = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out)) - {"--help", "--debug"}
    assert len(options) > 6
    assert {option for option in options if option not in PAGE} == set()
