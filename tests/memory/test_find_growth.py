"""Leaks of 1 MB a step are found in 50 steps, with what grows; a healthy training, and one that fills a cache, pass."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.cli.main import main
from align.core.verdicts import Outcome
from align.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

MEGABYTE = 2**20
# Memory of a process in 50 steps of the healthy training below, in MB, read once: an allocator takes and gives it back
# as it sees fit, on a busy machine otherwise than on an idle one.
HEALTHY_HOST = [
    *[358.80, 364.05, 366.15, 367.20], *[369.30] * 5, *[370.35] * 5, *[372.45] * 3, *[370.73] * 4, *[371.79] * 6,
    *[367.59] * 2, *[369.69] * 3, *[371.79] * 5, 366.67, 369.69, *[370.74] * 4, *[371.79] * 7,
]  # fmt: skip


def follow(model: Any, loss: Any = None, steps: int = 50) -> Any:
    import torch

    given = align.Training(model, loss or torch.nn.MSELoss(), torch.optim.SGD(model.parameters(), 0.1))
    arrays = {"input": np.ones((1024, 64), np.float32), "target": np.zeros((1024, 256), np.float32)}
    return align.measure_memory(given, batch=arrays, steps=steps)


@pytest.mark.frameworks
def test_tensors_that_stay_are_named_by_operator_and_layer() -> None:
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.seen = nn.Linear(64, 256), []

        def forward(self, x: Any) -> Any:
            self.seen.append(self.head(x).detach())
            return self.seen[-1] + self.head(x)

    result = follow(Net())
    growth = result.growth[0]
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert next(one.memory for one in growth.series if one.grows) == "tensors"
    assert growth.series[0].per_step == pytest.approx(MEGABYTE, rel=0.01)
    named = growth.objects[0]
    assert (named.kind, named.place) == ("addmm float32[1024,256]", "head")
    assert named.per_step == pytest.approx(1)


@pytest.mark.frameworks
def test_memory_of_python_is_named_by_the_line_that_took_it() -> None:
    from torch import nn

    seen = []

    def loss(output: Any, target: Any) -> Any:
        seen.append(np.ones(MEGABYTE // 8))
        return (output - target).square().mean()

    growth = follow(nn.Linear(64, 256), loss).growth[0]
    assert next(one.memory for one in growth.series if one.grows) == "python"
    assert growth.objects[0].place.startswith("test_find_growth.py:")
    assert growth.objects[0].bytes_per_step == pytest.approx(MEGABYTE, rel=0.05)


@pytest.mark.frameworks
def test_a_healthy_training_and_one_that_fills_a_cache_do_not_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import nn

    kept: list[Any] = []

    def loss(output: Any, target: Any) -> Any:
        if len(kept) < 8:
            kept.append(np.ones(MEGABYTE // 8))
        return (output - target).square().mean()

    host = iter(HEALTHY_HOST)
    monkeypatch.setattr("align.memory.measure_memory.resident_bytes", lambda _process: next(host) * 1e6)
    result = follow(nn.Linear(64, 256), loss, len(HEALTHY_HOST))
    assert [one.memory for one in result.growth[0].series if one.grows] == []
    assert result.verdict.outcome is Outcome.ALIGNED


@pytest.mark.frameworks
def test_too_few_steps_are_refused() -> None:
    from torch import nn

    with pytest.raises(UsageError, match="too few"):
        follow(nn.Linear(64, 256), steps=10)


def write_log(path: Path, growth: float) -> Path:
    rows = [
        {"lr": 0.1, "loss": 2.0, "memory": int(3100 + growth * step), "iter": step, "step": step}
        for step in range(10, 1000, 10)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_log_is_told_to_leak_by_its_column_of_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leaking = align.follow_logged_memory(write_log(tmp_path / "a.json", 1.0)).growth[0]
    assert leaking.grows
    assert leaking.series[0].per_step == pytest.approx(1e6, rel=0.02)
    assert not align.follow_logged_memory(write_log(tmp_path / "b.json", 0.0)).growth[0].grows
    assert main(["memory", str(tmp_path / "a.json")]) == 1
    assert "memory grows by 1 MB a step" in " ".join(capsys.readouterr().out.split())


def test_a_log_without_memory_and_needless_options_end_in_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,loss\n1,2.0\n2,1.5\n3,1.2\n", encoding="utf-8")
    assert main(["memory", str(log)]) == 2
    assert "has no column of memory" in capsys.readouterr().err
    assert main(["memory", str(log), "--steps", "50"]) == 2
    assert "--steps are of no use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py:side", "--batch", "b.npz"], "nowhere.py"),
        (["empty.py:side", "--batch", "b.npz", "--fits", "much"], "much is not a size of memory"),
        (["empty.py:side"], "no batch is given"),
    ],
)
def test_bad_arguments_end_in_one_message(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b.npz", "empty.py"):
        (tmp_path / name).write_bytes(b"")
    assert main(["memory", *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert "Traceback" not in printed
