"""The first NaN, Inf or explosion of a loop is named at its step and layer, and clean loops raise no alarm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import align
from align.errors import CannotRunError, NonfiniteFoundError, UsageError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PLANTS = ("log", "softmax", "parameter", "sample", "half forward", "half backward", "root", "optimizer", "explosion")


@pytest.fixture(autouse=True)
def trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def watched(training: Any, steps: int) -> Any:
    with align.watch_nonfinite() as watch:
        training.run(steps)
    return watch.result


@pytest.mark.frameworks
@pytest.mark.parametrize("plant", PLANTS)
def test_a_fault_in_torch_is_named_at_its_step_and_layer(plant: str) -> None:
    from _nonfinite_torch import Training

    at = 6 if plant == "explosion" else 2
    training = Training(4, plant, at, 1)
    event = watched(training, at + 2).event
    assert (event.step, (event.layer, event.direction)) == (at, training.expected())
    assert event.reason
    assert event.remedy


@pytest.mark.frameworks
@pytest.mark.parametrize("plant", PLANTS)
def test_a_fault_in_mindspore_is_named_at_its_step_and_layer(plant: str) -> None:
    from _nonfinite_mindspore import Training

    at = 5 if plant == "explosion" else 1
    training = Training(3, plant, at, 0)
    event = watched(training, at + 1).event
    assert (event.step, (event.layer, event.direction)) == (at, training.expected())


@pytest.mark.frameworks
def test_clean_loops_raise_no_alarm() -> None:
    import torch
    from _nonfinite_clean import CLEAN

    for run in CLEAN:
        torch.manual_seed(0)
        with align.watch_nonfinite() as watch:
            run()
        assert watch.result.event is None, run.__name__


@pytest.mark.frameworks
@pytest.mark.parametrize("module", ["_nonfinite_torch", "_nonfinite_mindspore"])
def test_the_clean_twin_passes_and_has_no_hooks_left(module: str) -> None:
    training = __import__(module).Training(3, "", 0, 0)
    result = watched(training, 6)
    assert result.event is None
    assert result.steps == 6
    if module == "_nonfinite_torch":
        assert not any(one._forward_hooks for one in training.model.modules())


@pytest.mark.frameworks
def test_the_loss_scale_that_is_named_avoids_the_overflow() -> None:
    from _nonfinite_torch import Training

    event = watched(Training(0, "half backward", 1, 0), 3).event
    again = Training(0, "half backward", 1, 0)
    begin = again._begin
    again._begin = lambda step, x: min(begin(step, x), event.better_scale)  # type: ignore[method-assign]
    assert event.loss_scale == 2.0**40
    assert watched(again, 3).event is None


@pytest.mark.frameworks
def test_the_samples_to_blame_are_named() -> None:
    from _nonfinite_torch import Training

    training = Training(1, "sample", 1, 0)
    event = watched(training, 2).event
    assert (event.part, event.tensor, event.samples) == ("input", "x", (training.batch - 2,))


@pytest.mark.frameworks
def test_a_loop_stops_where_it_is_asked_to() -> None:
    from _nonfinite_torch import Training

    training = Training(0, "log", 1, 0)
    with pytest.raises(NonfiniteFoundError, match="log of 0"), align.watch_nonfinite(stop=True) as watch:
        training.run(9)
    assert watch.result.steps == 2


@pytest.mark.frameworks
@pytest.mark.parametrize("faulty", [True, False])
def test_model_train_of_mindspore_is_watched_by_a_callback(faulty: bool) -> None:
    import mindspore
    from mindspore import nn, ops

    class Root(nn.Cell):
        def construct(self, x: Any) -> Any:
            return ops.sqrt(ops.relu(x) * 0) if faulty else ops.sqrt(ops.relu(x) + 1)

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    net = nn.SequentialCell(nn.Dense(3, 4, weight_init="ones"), Root())
    data = (np.ones((4, 3), np.float32), np.zeros((4, 4), np.float32) + 0.5)
    batches = mindspore.dataset.NumpySlicesDataset(data, ["x", "y"], shuffle=False).batch(2)
    model = mindspore.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
    watch = align.watch_nonfinite()
    model.train(1, batches, callbacks=[watch.callback("mindspore")], dataset_sink_mode=False)
    event = watch.result.event
    assert (event and (event.step, event.layer, event.direction, event.cause)) == (
        (0, "1", "backward", "root-of-0") if faulty else None
    )


@pytest.mark.frameworks
def test_a_process_that_is_killed_leaves_all_steps_but_the_last(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal, torch, align\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "with align.watch_nonfinite(steps_file='steps.jsonl'):\n"
        "    for step in range(9):\n"
        "        model(torch.ones(3, 2)).sum().backward()\n"
        "        if step == 7:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        optimizer.step()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ}, check=False)
    assert done.returncode == -signal.SIGKILL
    lines = (tmp_path / "steps.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines][-3:] == [4, 5, 6]


@pytest.mark.frameworks
def test_what_makes_no_sense_is_refused() -> None:
    import torch  # noqa: F401 - a framework must be there

    with pytest.raises(UsageError):
        align.watch_nonfinite(keep=0)
    with pytest.raises(UsageError):
        align.watch_nonfinite(factor=1.0)
    with align.watch_nonfinite() as watch:
        pass
    with pytest.raises(CannotRunError, match="no step was seen"):
        _ = watch.result


@pytest.mark.frameworks
def test_the_size_of_what_squares_overflow_for_is_the_true_one() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Tanh())
    with torch.no_grad():
        model[0].weight.fill_(1e25)
    with align.watch_nonfinite() as watch:
        for _ in range(2):
            (model(torch.ones(3, 2)).sum() * (1e39 if _ else 1.0)).backward()
            torch.optim.SGD(model.parameters(), lr=0.0).step()
    rms = {one.layer: one.rms for one in watch.result.before}
    assert rms["0"] == pytest.approx((2e25, 2e25), rel=1e-5)
